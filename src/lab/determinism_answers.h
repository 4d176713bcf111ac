// lab/determinism_answers.h - answers of an engine in a world of `verify determinism`, and where two of them differ.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lab/determinism_worlds.h"
#include "lab/traced_model.h"

namespace deepinfer {

struct SeenAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprobs;  // bits
  FinishReason finish = FinishReason::kNone;
  std::string error;
};

// One request whose values are kept.
struct Watch {
  size_t request;
  RowRecorder* recorder;
};

// Answers `requests` with `engine`, as many at once as the world says; others come and go in between if it says so.
Result<std::vector<SeenAnswer>> answer_all(Engine& engine, const std::vector<Request>& requests, const World& world,
                                           const Watch* watch = nullptr);

// Where two answers first differ; empty when they do not.
std::string difference(const SeenAnswer& got, const SeenAnswer& want);

// The beginnings of prompts: `before` tokens of each, or some of most where that is empty.
std::vector<Request> cut(std::vector<Request> requests, const std::vector<int64_t>& before);

}  // namespace deepinfer
