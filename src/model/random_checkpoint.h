// model/random_checkpoint.h - seeded random checkpoints in the stored formats, for `-m random:SPEC`, tests and benches.
//
// SPEC is `v41`, then `?key=value&key=value...`; sizes are the release's where not overridden.
//   layers hidden heads head_dim rope q_rank o_rank o_groups window context vocab streams
//   experts top_k expert_hidden draft draft_experts draft_top_k draft_block markov_rank
//   index_heads index_dim index_topk candidate_blocks candidate_block
//   engram_rows engram_heads engram_dim (engram_rows=0: no Engram)   vision (layers of the tower, 0 = none) vision_hidden   seed
// Derived: draft experts = experts / 3; Engram tables of about engram_rows rows each (1M: primes decide the exact count).
// Layer plan: the release's for 40 layers. For other L, two window layers (one below 8 layers, none below 3), then half of
// the rest ratio 2 in up to three groups of one Full layer and its Reuse layers, then the candidate layer at ratio 1 with
// Reuse layers and a Reindex layer every four (every two, every layer when there are fewer than 8, 3 left). Engram before
// layer 1 and before the last ratio-2 Full layer; the draft taps the last three layers. Smallest is 1.
// Promise: the same SPEC gives the same bytes on every machine; an unknown key is an Error with the nearest known one; a
// checkpoint larger than the memory available is an Error, not a killed process.
//
//   DI_TRY(auto checkpoint, make_random_checkpoint("v41?layers=4&experts=96", pool));
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "core/model_shape.h"
#include "formats/checkpoint.h"

namespace deepinfer {

struct RandomSpec {
  ModelShape shape;  // complete, plan derived
  uint64_t seed = 0;
};
Result<RandomSpec> parse_random_spec(std::string_view spec);

// The tensors of parse_random_spec(spec).shape. Bind them like a checkpoint from disk; write_checkpoint() stores them.
Result<std::shared_ptr<const Checkpoint>> make_random_checkpoint(std::string_view spec, ThreadPool& pool,
                                                                 const LoadProgress& progress = {});

}  // namespace deepinfer
