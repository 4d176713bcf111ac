// lab/bench_recipe.h - what the recipe costs on one core: prompts of a long conversation, the parser, the wires.
//
// Rows: recipe/prompt/cold (ms: a history of about 100,000 tokens rendered and encoded), recipe/prompt/next_turn (ms: the
// same conversation one exchange later, with the cache of earlier prompts), recipe/parse/KIND (us for each token: text,
// reasoning, calls), recipe/wire/WIRE (us for each token: ids to the bytes of a stream). `limit` is the target; each figure
// is the best of `repeats` in processor time of the one thread.
// Threads: one.
//
//   FigureReport report("bench recipe");
//   DI_CHECK_OK(bench_recipe({}, report));
#pragma once

#include <string>

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchRecipeOptions {
  std::string tokenizer;  // tokenizer.json(.zst); empty = the release's
  size_t history_tokens = 100'000;
  int repeats = 7;
};

Status bench_recipe(const BenchRecipeOptions& options, FigureReport& report);

}  // namespace deepinfer
