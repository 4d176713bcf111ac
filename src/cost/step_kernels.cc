#include "cost/step_kernels.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {
namespace {

using Group = KernelGroup;
// Bytes of a weight: e2m1 with a scale for 32, e4m3 with one for 32 x 32, and without.
constexpr double kFp4Bytes = 0.5 + 1.0 / 32, kFp8Bytes = 1 + 1.0 / 1024, kBf16Bytes = 2, kF32Bytes = 4;

struct Sizes {
  explicit Sizes(const ModelShape& s)
      : d(s.hidden),
        row(double{d} * s.streams),
        mix(2 * (2 * s.streams + s.streams * s.streams) * row),
        q_a(d * s.q_rank),
        q_b(double{1} * s.heads * s.head_dim * s.q_rank),
        kv(d * s.head_dim),
        o_a(double{1} * s.o_rank * s.heads * s.head_dim),
        o_b(d * s.o_groups * s.o_rank),
        expert(3 * d * s.expert_hidden),
        window_row(s.head_dim + s.head_dim / 32.0),
        main_row(s.head_dim / 2.0 + s.head_dim / 16.0),
        index_row(s.index_dim / 2.0 + s.index_dim / 32.0),
        head(d * s.vocab) {}
  double d, row, mix, q_a, q_b, kv, o_a, o_b, expert, window_row, main_row, index_row, head;
};

KernelCost fp8(Group group, const char* name, double weights, double rows) {
  return {.group = group, .name = name, .weights = weights, .weight_bytes = weights * kFp8Bytes, .fp8_flops = 2 * rows * weights};
}
KernelCost wide(Group group, const char* name, double weights, double rows, double bytes_each) {
  return {
      .group = group, .name = name, .weights = weights, .weight_bytes = weights * bytes_each, .wide_flops = 2 * rows * weights};
}

// What a layer and a draft stage have in common. `draft` puts all of it into one group.
struct Block {
  double rows, slots;  // rows of attention that a row takes
  double cache_bytes;  // that all rows read for it
  int32_t experts, per_token, ranks;
  bool draft = false;
};

void add_block(std::vector<KernelCost>& out, const ModelShape& shape, const Sizes& z, const Block& b) {
  const auto group = [&](Group usual) { return b.draft ? Group::kDraft : usual; };
  out.push_back(fp8(group(Group::kDense), "wq_a", z.q_a, b.rows));
  out.push_back(fp8(group(Group::kDense), "wq_b", z.q_b, b.rows));
  out.push_back(fp8(group(Group::kDense), "wkv", z.kv, b.rows));
  // Its inputs are not quantised.
  out.push_back(wide(group(Group::kDense), "wo_a", z.o_a, b.rows, kFp8Bytes));
  out.push_back(fp8(group(Group::kDense), "wo_b", z.o_b, b.rows));
  out.push_back(fp8(group(Group::kDense), "shared expert", z.expert, b.rows));
  // The router reads the row that the mixing of streams has just made. Two sites read and write the streams.
  const double router = z.d * b.experts;
  out.push_back({.group = group(Group::kStreams),
                 .name = "streams, router",
                 .weights = z.mix + router,
                 .weight_bytes = z.mix * kF32Bytes + router * kBf16Bytes,
                 .other_bytes = b.rows * 4 * z.row * kBf16Bytes,
                 .wide_flops = 2 * b.rows * (z.mix + router)});
  const double here = distinct_experts(b.experts, b.per_token, b.rows * b.ranks) / b.ranks * z.expert;
  out.push_back({.group = group(Group::kExperts),
                 .name = "experts",
                 .weights = here,
                 .weight_bytes = here * kFp4Bytes,
                 .fp4_flops = 2 * b.rows * b.per_token * z.expert});
  out.push_back({.group = group(Group::kAttention),
                 .name = "attention",
                 .other_bytes = b.cache_bytes,
                 .wide_flops = 4 * b.rows * shape.heads * shape.head_dim * b.slots});
}

// Query and scores of an index source: a row scores `keys` of the `read` keys.
KernelCost index(const ModelShape& shape, const Sizes& z, double rows, double keys, double read) {
  const double query = double{1} * shape.index_heads * shape.index_dim * shape.q_rank, heads = z.d * shape.index_heads;
  return {.group = Group::kIndex,
          .name = "index",
          .weights = query + heads,
          .weight_bytes = query * kFp8Bytes + heads * kBf16Bytes,
          .other_bytes = read * z.index_row,
          .fp8_flops = 2 * rows * (query + double{1} * shape.index_heads * shape.index_dim * keys),
          .wide_flops = 2 * rows * heads};
}

}  // namespace

const char* kernel_group_name(KernelGroup group) {
  constexpr const char* kNames[kKernelGroups] = {
      "projections", "streams and router", "routed experts", "attention", "index", "compressors", "engram", "head", "draft"};
  return kNames[static_cast<size_t>(group)];
}

double distinct_experts(int32_t experts, int32_t per_token, double rows) {
  return experts > 0 ? experts * (1 - std::pow(1 - double{1} * per_token / experts, rows)) : 0;
}

std::vector<KernelCost> step_kernels(const ModelShape& shape, const StepRows& step) {
  const Sizes z(shape);
  std::vector<KernelCost> out;
  const double decoder_rows = step.decoder_rows < 0 ? step.rows : step.decoder_rows;
  for (int32_t l = 0; l < shape.layers; ++l) {
    const LayerPlan& plan = shape.plan[static_cast<size_t>(l)];
    const bool decoder = shape.candidate_source >= 0 && l >= shape.candidate_source;
    const double rows = decoder ? decoder_rows : step.rows;
    const double visible = plan.ratio > 0 ? step.context / plan.ratio : 0;
    const double window = std::min<double>(shape.window, step.context), chosen = std::min<double>(shape.index_topk, visible);
    if (plan.engram >= 0) {
      const double columns = shape.engram_columns();
      out.push_back(fp8(Group::kEngram, "engram", (shape.streams + 1) * z.d * columns * shape.engram_dim, rows));
      out.back().other_bytes = rows * columns * (shape.engram_dim + shape.engram_dim / 32.0);
    }
    add_block(out, shape, z,
              {.rows = rows,
               .slots = window + chosen,
               .cache_bytes = rows * (window * z.window_row + chosen * z.main_row),
               .experts = shape.experts,
               .per_token = shape.experts_per_token,
               .ranks = step.expert_ranks});
    if (plan.mode == AttentionMode::kFull) {
      const double wkv = z.d * shape.head_dim * (plan.ratio > 1 ? 2 : 1), wk = double{1} * shape.head_dim * shape.index_dim;
      out.push_back(wide(Group::kCompress, "compressor", wkv + wk, step.rows, kBf16Bytes));
      out.push_back(index(shape, z, rows, visible, step.sequences * visible));
    } else if (plan.mode == AttentionMode::kReindex) {
      const double keys = std::min<double>(visible, double{1} * shape.candidate_blocks * shape.candidate_block);
      out.push_back(index(shape, z, rows, keys, rows * keys));
    }
  }
  out.push_back(wide(Group::kHead, "head", z.head, step.logit_rows < 0 ? step.rows : step.logit_rows, kBf16Bytes));
  return out;
}

std::vector<KernelCost> draft_kernels(const ModelShape& shape, double sequences, double committed, int32_t expert_ranks) {
  const Sizes z(shape);
  std::vector<KernelCost> out;
  const double rows = sequences * shape.draft_block, slots = shape.window + shape.draft_block;
  for (int32_t stage = 0; stage < shape.draft_stages; ++stage) {
    add_block(out, shape, z,
              {.rows = rows,
               .slots = slots,
               .cache_bytes = sequences * slots * z.window_row,
               .experts = shape.draft_experts,
               .per_token = shape.draft_experts_per_token,
               .ranks = expert_ranks,
               .draft = true});
  }
  if (shape.draft_stages == 0) return out;
  const double taps = static_cast<double>(shape.draft_targets.size());
  out.push_back(fp8(Group::kDraft, "main_proj", taps * z.d * z.d, sequences * committed));
  out.back().fp8_flops += 2 * sequences * committed * shape.draft_stages * z.kv;  // the stages' rings
  out.push_back(wide(Group::kDraft, "draft head", z.head, rows, kBf16Bytes));
  // One draft after the other.
  for (int32_t i = 0; i < shape.draft_block; ++i)
    out.push_back(wide(Group::kDraft, "markov head", double{1} * shape.vocab * shape.markov_rank, sequences, kBf16Bytes));
  return out;
}

void StepCost::add(const StepCost& more, double times) {
  seconds += times * more.seconds;
  for (size_t i = 0; i < by_group.size(); ++i) by_group[i] += times * more.by_group[i];
  read_seconds += times * more.read_seconds;
  bytes += times * more.bytes;
  flops += times * more.flops;
}

namespace {

double read_seconds(const KernelCost& k, const Hardware& hardware) {
  return hardware.read > 0 ? (k.weight_bytes + k.other_bytes) / hardware.read : 0;
}
double product_seconds(const KernelCost& k, const Hardware& hardware) {
  const auto at = [](double flops, double rate) { return rate > 0 ? flops / rate : 0; };
  return at(k.fp4_flops, hardware.fp4) + at(k.fp8_flops, hardware.fp8) + at(k.wide_flops, hardware.wide);
}

}  // namespace

double kernel_seconds(const KernelCost& kernel, const Hardware& hardware) {
  return std::max(read_seconds(kernel, hardware), product_seconds(kernel, hardware));
}

StepCost cost_of(const std::vector<KernelCost>& kernels, const Hardware& hardware) {
  StepCost out;
  for (const KernelCost& k : kernels) {
    const double seconds = kernel_seconds(k, hardware);
    out.seconds += seconds;
    out.by_group[static_cast<size_t>(k.group)] += seconds;
    if (read_seconds(k, hardware) >= product_seconds(k, hardware)) out.read_seconds += seconds;
    out.bytes += k.weight_bytes + k.other_bytes;
    out.flops += k.fp4_flops + k.fp8_flops + k.wide_flops;
  }
  return out;
}

}  // namespace deepinfer
