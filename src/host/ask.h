// host/ask.h - one conversation through recipe and engine: render, encode, submit, decode, parse.
//
// An Ask is one request in flight. Its engine events arrive in an EventQueue that several asks may share; hand each to the
// ask it belongs to. Stop strings are decided by the parser, which then tells the engine.
// Promise: start() refuses what can never run, with the reason; take() returns true exactly once, with the final event.
// Threads: one thread at a time per ask.
//
//   EventQueue queue;
//   DI_TRY(auto ask, Ask::start(host, conversation, options, queue));
//   std::vector<OutputEvent> pieces;
//   for (bool done = false; !done; show(pieces)) { pieces.clear(); DI_TRY(done, ask->take(queue.pop(), pieces)); }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "core/event_queue.h"
#include "core/types.h"
#include "host/host.h"
#include "recipe/conversation.h"
#include "recipe/output_stream.h"
#include "recipe/prompt_map.h"

namespace deepinfer {

// How an answer is drawn; unset fields take the model folder's recommendation, then the recipe's default.
struct AskOptions {
  std::optional<float> temperature, top_p;
  int32_t top_k = 0;
  float min_p = 0;
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;
  bool fits_max_tokens = false;  // more than the context has left is lowered, not refused
  std::vector<std::string> stop;
  // Fields only some wires have.
  float frequency_penalty = 0, presence_penalty = 0, repetition_penalty = 1;
  std::vector<std::pair<TokenId, float>> logit_bias;
  int32_t num_logprobs = -1;
  std::optional<std::string> grammar;  // EBNF the answer is held to, instead of the conversation's format
  // What a server knows of the client.
  int32_t priority = 0;
  int64_t deadline_us = 0;  // of the engine's clock, 0 = none
  std::string tenant;
  std::optional<RetentionClass> retention;  // unset: what its conversation is
  bool draft_usage = false;                 // the usage tells of drafts
  bool cache_debug = false;                 // the usage says why no more of the prompt was cached
};

// Where an answer begins: a prompt in ids with the rows of its pictures, and how its text is to be read.
struct AskPrompt {
  std::vector<TokenId> ids;
  std::vector<ImageSpan> images;
  ParseOptions parsing;
  int64_t max_tokens = 0;  // at least 1
  AnswerConstraint constraint;
  PromptMap map;
  RetentionClass retention = RetentionClass::kChat;
  bool thinking = false;
};

// What `finish` of the engine and the parser came to.
struct AskReport {
  AnswerEnd end = AnswerEnd::kStop;
  bool cancelled = false;
  bool expired = false;  // its deadline passed
  AnswerUsage usage;
  int64_t first_token_us = 0;  // from start() to the first token; 0 = none came
  int64_t total_us = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // of speculation
  RequestReport engine;                             // phases, and what the prefix cache did
};

class Ask {
 public:
  static Result<std::unique_ptr<Ask>> start(Host& host, const Conversation& conversation, const AskOptions& options,
                                            EventQueue& queue);
  // The same in two steps: prepare() is the expensive one and may run on any thread, many at a time; `handler` gets the
  // events, to be handed to take(). It may be called before start() returns.
  static Result<AskPrompt> prepare(const Host& host, const Conversation& conversation, const AskOptions& options);
  static Result<std::unique_ptr<Ask>> start(Host& host, AskPrompt prompt, const AskOptions& options, EventHandler handler);

  RequestId id() const { return id_; }
  // The events before the first token: kStart.
  const std::vector<OutputEvent>& opening() const { return opening_; }
  // Takes one event of this request. True: the answer is complete. An Error: the engine failed it, and it is over, too.
  Result<bool> take(const Event& event, std::vector<OutputEvent>& out);
  // What the answer's wire form needs besides the events.
  const OutputStream& stream() const { return stream_; }
  void cancel() { host_.service().cancel(id_); }
  const PromptMap& prompt_map() const { return map_; }
  // Complete after the final event.
  const AskReport& report() const { return report_; }

 private:
  Ask(Host& host, OutputStream stream) : host_(host), stream_(std::move(stream)) {}
  void note_end(const std::vector<OutputEvent>& events, size_t from);

  Host& host_;
  OutputStream stream_;
  std::vector<OutputEvent> opening_;
  RequestId id_ = 0;
  int64_t begin_us_ = 0;
  bool draft_usage_ = false, cache_debug_ = false;
  PromptMap map_;
  AskReport report_;
};

// How many tokens the prompt of a conversation has; pictures are measured, not encoded.
Result<int64_t> count_prompt_tokens(const Host& host, const Conversation& conversation);

// "off", "low", "high", "max" as of --think.
Status set_thinking(Conversation& conversation, const std::string& think);

}  // namespace deepinfer
