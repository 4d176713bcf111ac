// recipe/output_stream.h - what an engine reports about one answer, to the events a wire can write.
//
// Takes the engine's records (ready, token ids or text, finish), decodes ids as far as they form whole characters, runs
// the output parser, counts tokens and says how the answer ended. Each dialect renders the same events.
// Promise: one kStart, then deltas, then one kFinish; after it nothing is accepted. Ids at the end that form no whole
// character are dropped and not counted.
// Threads: one answer, one thread at a time.
//
//   OutputStream stream(tokenizer, options);
//   stream.push_tokens(ids, logprobs, events);
//   if (stream.finished()) engine.finish(request, stream.tokens_taken());   // a stop string ended it
//   else if (engine is done) stream.push_finish(AnswerEnd::kStop, events);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/types.h"
#include "recipe/parse.h"

namespace deepinfer {

class Tokenizer;

enum class AnswerEnd { kStop, kStopString, kToolCalls, kLength, kContentFilter };

struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  bool has_token_ids = false;  // reasoning_tokens means something
  bool tells_drafts = false;   // the next two mean something
  int64_t accepted_drafts = 0, rejected_drafts = 0;
  Json cache_debug;  // why no more was cached; null = nobody asked
};

// Log-probability of one token and of the alternatives asked for.
struct TokenLogprobs {
  double logprob = 0;
  std::vector<std::pair<TokenId, double>> top;
};

// The same with what the tokens stand for, ready to be written.
struct LoggedToken {
  struct Choice {
    std::string bytes;  // may be part of a character
    double logprob = 0;
  };
  Choice sampled;
  std::vector<Choice> top;
};

struct OutputEvent {
  enum class Kind { kStart, kReasoning, kContent, kToolBegin, kToolArguments, kFinish };
  Kind kind = Kind::kStart;
  std::string text;  // delta; name of a tool with kToolBegin; stop string with kFinish
  int tool_index = 0;
  std::vector<LoggedToken> logged;   // deltas, when the engine delivered log-probabilities
  AnswerEnd end = AnswerEnd::kStop;  // kFinish
};

class OutputStream {
 public:
  // `tokenizer` must outlive the stream.
  OutputStream(const Tokenizer& tokenizer, ParseOptions options);

  // The engine took the request. Ignored once output began.
  void push_ready(int64_t prompt_tokens, int64_t cached_tokens, std::optional<std::string> fingerprint,
                  std::vector<OutputEvent>& out);
  // `logprobs` is empty or has one entry for each id. Each call is one record.
  Status push_tokens(std::span<const TokenId> ids, std::span<const TokenLogprobs> logprobs, std::vector<OutputEvent>& out);
  void push_text(std::string_view text, int64_t num_tokens, std::vector<OutputEvent>& out);
  void push_finish(AnswerEnd end, std::vector<OutputEvent>& out);
  // The source ended. Finishes the answer if nothing else did.
  void end_of_input(std::vector<OutputEvent>& out);

  // Known when the engine started the request; may come after push_ready().
  void note_cached_tokens(int64_t tokens) { usage_.cached_tokens = tokens; }
  // Of the whole answer; before its end.
  void note_drafts(int64_t accepted, int64_t rejected) {
    usage_.tells_drafts = true;
    usage_.accepted_drafts = accepted, usage_.rejected_drafts = rejected;
  }
  void note_cache_debug(Json report) { usage_.cache_debug = std::move(report); }

  bool finished() const { return finished_; }
  // How many ids were pushed up to here: with a stop string, the engine's answer ends after so many tokens.
  int64_t tokens_taken() const { return tokens_taken_; }
  const AnswerUsage& usage() const { return usage_; }
  const std::optional<std::string>& fingerprint() const { return fingerprint_; }

 private:
  void start(std::vector<OutputEvent>& out);
  void take_text(std::string_view text, const std::vector<TokenMark>& marks, std::vector<OutputEvent>& out);
  void emit(std::vector<OutputDelta>& deltas, std::vector<OutputEvent>& out);
  void finish(AnswerEnd end, std::string stop, std::vector<OutputEvent>& out);
  std::string bytes_of(TokenId id) const;
  LoggedToken logged(TokenId id, const TokenLogprobs& logprobs) const;

  const Tokenizer* tokenizer_;
  OutputParser parser_;
  bool started_ = false;
  bool finished_ = false;
  AnswerUsage usage_;
  std::optional<std::string> fingerprint_;
  std::vector<TokenId> waiting_;  // ids that form no whole character yet
  std::string waiting_bytes_;
  std::vector<TokenMark> waiting_marks_;  // offsets in waiting_bytes_
  std::vector<LoggedToken> logged_;       // by token number, only while log-probabilities come
  bool keeps_logprobs_ = false;
  int64_t tokens_taken_ = 0;
};

}  // namespace deepinfer
