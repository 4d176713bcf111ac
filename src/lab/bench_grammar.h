// lab/bench_grammar.h - what the grammar engine accepts, refuses, gets wrong, and how long it takes.
//
// Data: *.jsonl or *.jsonl.zst in a folder, one row a schema: {schema, tests: [{valid, data}], name?, draft?, optional?, file?}.
// Each schema is compiled (with its first mask); each instance, as compact JSON in the tokens of the tokenizer, is walked
// mask by mask. A valid one must pass to the end, an invalid one must not, neither as it is spelled nor with its numbers written
// as answers write them (1.0 as 1, 1e3 as 1000).
// Rows: schemas, refused, blocked (valid ones stopped), accepted (invalid ones passed), compile and mask in microseconds.
// Formats are asserted only in rows whose file says so (".../format/..."): the data was made without.
// Threads: one.
#pragma once

#include <string>

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchGrammarOptions {
  std::string tokenizer;  // tokenizer.json(.zst); empty = the release's
  std::string data;       // folder or file
  bool list = false;      // print each refusal, each wrong answer and the slowest masks to standard error
};

Status bench_grammar(const BenchGrammarOptions& options, FigureReport& report);

}  // namespace deepinfer
