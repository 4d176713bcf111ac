// server/generation.h - one exchange answered by the engine: n answers of one or more prompts, whole or streamed.
//
// Promise: exactly one end: the complete answer, an error (as a status, or as an event once the stream began), or a client
// that is gone, whose requests are cancelled at once unless they run in the background.
// Threads: the server's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/request.h"
#include "host/ask.h"
#include "server/context.h"

namespace deepinfer {

// The wire form of an answer with several choices. Streams are written as server-sent events behind `out`.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  // Whole answers: keeps the event.
  virtual void collect(size_t choice, const OutputEvent& event, const OutputStream& stream) = 0;
  // Streams: the event; nothing when it shows nothing.
  virtual void append(size_t choice, const OutputEvent& event, const OutputStream& stream, std::string& out) = 0;
  // The whole answer. Before an answer in the background is there: what says so.
  virtual std::string body(const AnswerUsage& usage, const OutputStream& stream) const = 0;
  // What ends a complete stream.
  virtual void end(const AnswerUsage& usage, const OutputStream& stream, std::string& out) const;
  // The error that ends a stream.
  virtual void fail(const Error& error, std::string& out);
  // What keeps a silent stream alive.
  virtual void keep_alive(std::string& out) const { out += ": keep-alive\n\n"; }

  // For answers that are kept: it runs, and `cancel` stops it (an Error: it cannot be kept as it must); it is complete; it was
  // cancelled; it broke.
  virtual Status begun(std::function<void()> cancel) { return (void)cancel, Status(); }
  virtual void completed(const OutputStream& stream) { (void)stream; }
  virtual void cancelled() {}
  virtual void broken(const Error& error) { (void)error; }
};

// A checked request, ready to run.
struct AnswerPlan {
  std::vector<AskPrompt> prompts;
  int num_answers = 1;  // of each prompt
  AskOptions options;
  bool stream = false;
  bool background = false;  // goes on when the client is gone; a whole answer is not waited for
  std::unique_ptr<AnswerForm> form;
};

class Generation final : public EngineSink, public std::enable_shared_from_this<Generation> {
 public:
  Generation(ServerContext& context, CallPtr call, AnswerPlan plan);

  // Submits everything; answers with an error when that fails.
  void start();
  void take(size_t choice, const Event& event) override;
  // A comment when nothing was written for a while, so that nobody on the way gives up; of a whole answer, after a longer
  // while, its head and then blank lines, which JSON allows in front. Ends what waits for too long to begin.
  void keep_alive(int64_t now_us);
  // Somebody else stops it: a stream that is still read ends with an error.
  void cancel();
  bool over() const { return over_; }

 private:
  struct Choice {
    std::unique_ptr<Ask> ask;
    bool done = false;
  };
  void submit_all();
  void note_report(size_t index, const Event& event);
  void listen_for_the_end();
  void begin_stream(const char* type);
  bool is_overdue(int64_t now_us) const;
  void show(size_t choice, const std::vector<OutputEvent>& events);
  void write_out();
  void fail(const Error& error);
  void complete();
  void abandon(const std::string& reason);
  void cancel_rest();
  AnswerUsage total_usage() const;
  void note_usage();

  ServerContext& context_;
  CallPtr call_;
  AnswerPlan plan_;
  std::vector<Choice> choices_;
  size_t left_ = 0;
  bool over_ = false;
  bool unheard_ = false;  // nobody reads the answer
  int64_t begun_us_ = 0, written_us_ = 0, first_token_us_ = 0;
  std::string out_;
  std::vector<OutputEvent> pieces_;
};

// A request as a wire gets it.
struct WireCall {
  const ServerContext& context;
  std::string_view body;
  std::string id;          // of the answer
  std::string request_id;  // of the exchange
  std::string tenant;      // whose cache and kept responses it may use
};

// What the bodies of the wires come to; expensive for long ones, run on any thread. One file a wire: plan_WIRE.cc.
Result<AnswerPlan> plan_chat(const WireCall& wire);
Result<AnswerPlan> plan_completion(const WireCall& wire);
Result<AnswerPlan> plan_messages(const WireCall& wire);
Result<AnswerPlan> plan_response(const WireCall& wire);

// What every wire with a conversation shares: the prompt and how it is drawn; the form is still missing.
Result<AnswerPlan> plan_conversation(const WireCall& wire, const ChatRequest& request, bool fits_max_tokens = false);

// The conversation of a Responses body, what it continues included.
Result<ChatRequest> read_response_chat(const WireCall& wire);

// The same characters for the same answer: suffixes of tool call ids are made of it.
uint64_t answer_seed(std::string_view id);

}  // namespace deepinfer
