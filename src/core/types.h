// core/types.h - the nouns every room shares.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/prefix_verdict.h"

namespace deepinfer {

// How the next token is drawn from the logits (spec: determinism.md sections 4 and 6). Defaults: greedy off, T = 1.
struct SamplingParams {
  float temperature = 1.0f;  // 0 = argmax
  int32_t top_k = 0;         // 0 = all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  std::optional<uint64_t> seed;  // < 2^63; without one the engine draws its own
  std::vector<std::pair<TokenId, float>> logit_bias;
  int32_t num_logprobs = -1;  // -1 none, 0 the sampled token only, n also the n best (at most 20)
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError, kDeadline };

// The speculation a request asks for; the engine may do less, never more.
struct SpeculationParams {
  int32_t max_draft = std::numeric_limits<int32_t>::max();  // drafts verified in one step
};

enum class ReplayMode { kOff, kDecoder, kFull };
const char* replay_mode_name(ReplayMode mode);

// What is kept of a finished request's pages, and how long (spec: kv_cache.md section 8).
enum class RetentionClass { kSession, kAgent, kChat, kPinned };

class Constraint;  // grammar/constraint.h

// What an answer is held to: nothing while `grammar` is null.
struct AnswerConstraint {
  std::shared_ptr<const Constraint> grammar;
  TokenId begins_after = -1;  // it holds from the token behind this one (the end of thinking); -1 = from the first
  std::string source;         // what another process compiles it from; "" = it cannot be sent
};

// An image already turned into embedding rows by the vision tower: rows of the prompt [begin, begin + rows) take them.
struct ImageSpan {
  Position begin = 0;
  int32_t rows = 0;
  std::vector<uint16_t> embeddings;  // BF16 [rows, hidden]
  std::string content_hash;          // SHA-256 of the preprocessed pixels, grid and version
};

// One request as the engine sees it: ids only, no text.
struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;
  // The answer as far as another engine gave it, which goes on as if it had stayed there: events and usage count from its start.
  // Needs a seed when there is one.
  std::vector<TokenId> answered;
  std::vector<ImageSpan> images;
  SamplingParams sampling;
  SpeculationParams speculation;
  std::vector<TokenId> stop_ids;  // any of these ends the answer and is not part of it
  AnswerConstraint constraint;    // needs a stop id to end the answer with
  int32_t max_tokens = 0;         // of the answer; 0 = up to the context
  std::string tenant;
  int32_t priority = 0;     // larger runs earlier
  int64_t deadline_us = 0;  // of the engine's clock, 0 = none; looked at between steps
  RetentionClass retention = RetentionClass::kChat;
  // Prompt length before anything was generated; set by the engine, kept over preemption and migration because the
  // decoder replay starts at original_prompt_tokens - R whatever has been generated since (kv_cache.md section 5).
  int64_t original_prompt_tokens = 0;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;    // of the prompt, in pages that were there already
  int64_t replayed_tokens = 0;  // of those, run again to rebuild what pages do not hold
  int64_t completion_tokens = 0;
  int64_t drafted_tokens = 0;   // drafts that were verified
  int64_t accepted_tokens = 0;  // of those, the ones that became part of the answer
};

// Where a request's time went, by the engine's clock; waiting, prefill and decode add up to the time inside the engine.
struct RequestTrace {
  int64_t waiting_us = 0;  // without a slot, also after each preemption
  int64_t prefill_us = 0;  // until the first token, and after a preemption until the next one
  int64_t decode_us = 0;
  int32_t prefill_steps = 0, decode_steps = 0;
  int32_t preempted = 0;  // times it gave its pages up
};

struct RequestReport {
  std::optional<PrefixVerdict> prefix;  // of the first start; none when it ended in the queue
  RequestTrace trace;
};

// What the engine tells about a request: one event per token of the answer, then exactly one event without a token and
// with `finish` != kNone. Stop ids end the answer and are neither shown nor counted.
struct Event {
  RequestId request = 0;
  int64_t index = 0;  // of `token` in the answer, from 0; in the final event the number of tokens
  std::optional<TokenId> token;
  std::optional<TokenLogprob> logprob;     // of `token`
  std::vector<TokenLogprob> top_logprobs;  // best first
  FinishReason finish = FinishReason::kNone;
  std::string error;  // with kError: one line for people
  ErrorCode error_code = ErrorCode::kInternal;
  Usage usage;                          // of the final event; earlier ones have cached_tokens only
  std::optional<RequestReport> report;  // of the first event and the final one; the first knows `prefix` only
};

}  // namespace deepinfer
