// lab/golden_recipe.h - runs the recipe's golden cases: requests, errors, limits, streams.
//
// A file holds one JSON object a line with `id`, `kind` and, except for limits, `wire`. Cases of wires that are not built
// are left out and counted with the reason, never as passed.
// Promise: an Error only for a file that cannot be read or holds no JSON lines; what a case shows is in the counts.
// Threads: one.
//
//   DI_TRY(RecipeGolden result, run_recipe_cases("golden/recipe/streams.jsonl", tokenizer));
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "lab/golden_counts.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct RecipeGolden {
  GoldenCounts counts;
  std::map<std::string, int> left_out;  // reason -> cases
};

// Runs every case of a .jsonl file.
Result<RecipeGolden> run_recipe_cases(const std::string& path, const Tokenizer& tokenizer);
// The same from the file's content; `folder` holds the pictures that image cases name.
Result<RecipeGolden> run_recipe_lines(std::string_view lines, const Tokenizer& tokenizer, const std::string& folder = ".");
// One case: empty when it passes, else what differs. REQUIRES: its wire is built.
std::string run_recipe_case(const Json& golden, const Tokenizer& tokenizer, const std::string& folder);

}  // namespace deepinfer
