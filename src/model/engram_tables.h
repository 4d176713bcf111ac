// model/engram_tables.h - the integer tables of the Engram hash: multipliers, primes, offsets (model.md section 10).
//
// multiplier[layer][i] = 2x+1 with x the i-th of four bounded draws from PCG64 seeded with 10007 * layer id; primes are the
// smallest unused ones from engram_vocab_size on, walking layers, n-gram lengths, heads; offsets their exclusive sums per layer.
// Promise: integers only, the same on every machine; the row counts they imply equal shape.engram_rows or it is an Error.
//
//   DI_TRY(EngramTables tables, make_engram_tables(shape));
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/model_shape.h"

namespace deepinfer {

struct EngramTables {
  std::vector<int64_t> multipliers;  // [layers, ngram]
  std::vector<int64_t> primes;       // [layers, columns], column = (n-1) * heads + head
  std::vector<int64_t> offsets;      // [layers, columns]
  std::vector<int64_t> rows;         // [layers] sum of the layer's primes
};

// Tables alone, without comparing row counts: for choosing engram_rows of a new shape.
EngramTables compute_engram_tables(const ModelShape& shape);
Result<EngramTables> make_engram_tables(const ModelShape& shape);

}  // namespace deepinfer
