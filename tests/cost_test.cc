// The cost room at the release's sizes against figures from elsewhere: the cost model of the architecture's description and a
// roofline of one of 64 GPUs that was computed apart from this program.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "cost/room.h"
#include "model/random_checkpoint.h"
#include "model/weights.h"

namespace deepinfer {
namespace {

const ModelShape& release() {
  static const ModelShape shape = parse_random_spec("v41?layers=40&engram_rows=384000000&vision=32&context=1048576")->shape;
  return shape;
}

struct Sum {
  double weights = 0, weight_bytes = 0, other_bytes = 0, flops = 0;
};
// By name of kernel, and of all together.
std::map<std::string, Sum> sums(const std::vector<KernelCost>& kernels) {
  std::map<std::string, Sum> out;
  for (const KernelCost& k : kernels) {
    for (const char* key : {k.name, "all"}) {
      Sum& sum = out[key];
      sum.weights += k.weights, sum.weight_bytes += k.weight_bytes, sum.other_bytes += k.other_bytes;
      sum.flops += k.fp4_flops + k.fp8_flops + k.wide_flops;
    }
  }
  return out;
}

// `value` as printed with so many digits behind the point.
void expect_prints(double value, double printed, int digits) { EXPECT_NEAR(value, printed, 0.51 * std::pow(10, -digits)); }

TEST(CostOfTheRelease, WeightsOfOneToken) {
  auto sum = sums(step_kernels(release(), {}));
  Sum projections;
  for (const char* name : {"wq_a", "wq_b", "wkv", "wo_a", "wo_b"}) {
    projections.weights += sum[name].weights, projections.weight_bytes += sum[name].weight_bytes;
    projections.flops += sum[name].flops;
  }
  const struct {
    Sum sum;
    double giga, megabytes, gflops;
  } rows[] = {{projections, 5.065, 5069.6, 10.129},         {sum["index"], 0.043, 44.6, 0.087},
              {sum["compressor"], 0.019, 37.2, 0.037},      {sum["streams, router"], 0.039 + 0.079, 157.3 + 157.3, 0.079 + 0.157},
              {sum["shared expert"], 1.416, 1417.0, 2.831}, {sum["experts"], 8.493, 4512.2, 16.987},
              {sum["engram"], 0.315, 314.9, 0.629},         {sum["head"], 0.662, 1323.8, 1.324},
              {sum["all"], 16.130, 13033.8, 32.26}};
  for (const auto& row : rows) {
    EXPECT_NEAR(row.sum.weights / 1e9, row.giga, 0.0011);
    EXPECT_NEAR(row.sum.weight_bytes / 1e6, row.megabytes, 0.11);
    EXPECT_NEAR(row.sum.flops / 1e9, row.gflops, row.gflops > 30 ? 0.0051 : 0.0011);
  }
  EXPECT_EQ(sum["engram"].other_bytes, 48 * 264);
}

TEST(CostOfTheRelease, CachesOfOneToken) {
  const struct {
    double context, index_megabytes, index_gflops, stored_megabytes;
  } rows[] = {{8192, 3.62, 0.44, 7.3}, {32768, 10.03, 1.21, 29.2}, {131072, 26.74, 3.22, 116.7}, {1048576, 182.7, 22.01, 933.2}};
  const double projections = sums(step_kernels(release(), {}))["index"].flops;
  for (const auto& row : rows) {
    auto sum = sums(step_kernels(release(), {.context = row.context}));
    EXPECT_NEAR(sum["attention"].other_bytes / 1e6, 2.70 + 5.60, 0.011);
    expect_prints(sum["attention"].flops / 1e9, 3.22, 2);
    expect_prints(sum["index"].other_bytes / 1e6, row.index_megabytes, row.context > 1e6 ? 1 : 2);
    expect_prints((sum["index"].flops - projections) / 1e9, row.index_gflops, 2);
    const auto parts = memory_parts(release(), {}, {.context = static_cast<int64_t>(row.context)});
    expect_prints(parts[6].device / 1e6, row.stored_megabytes, 1);
  }
}

TEST(CostOfTheRelease, BatchesDraftsAndPrompts) {
  const double batches[][3] = {{1, 6, 13.0}, {4, 23.4, 26.2}, {16, 85.5, 72.8}, {64, 243.8, 191.9}, {256, 377.2, 292.2}};
  for (const auto& [rows, experts, gigabytes] : batches) {
    expect_prints(distinct_experts(384, 6, rows), experts, 1);
    expect_prints(sums(step_kernels(release(), {.sequences = rows, .rows = rows}))["all"].weight_bytes / 1e9, gigabytes, 1);
  }
  auto draft = sums(draft_kernels(release(), 1, 1));
  const double rings = 2 * 3 * 5120 * 512;  // told apart there, with the 0.17 GFLOP of a token's context
  expect_prints((draft["all"].flops - draft["attention"].flops - rings) / 1e9, 15.2, 1);
  expect_prints((draft["all"].weight_bytes - 4.0 / 5 * draft["markov head"].weight_bytes) / 1e9, 2.78, 2);
  expect_prints(draft["main_proj"].flops / 1e9, 0.17, 2);
  EXPECT_EQ(draft_kernels(parse_random_spec("v41?layers=2&draft=0")->shape, 1, 1).size(), 0u);
  // Prompts without head, attention and scores, a token: of all layers, and of those below the candidate layer with its
  // compressor.
  const auto layers = [](double decoder_rows) {
    auto sum = sums(step_kernels(release(), {.rows = 1e6, .decoder_rows = decoder_rows, .logit_rows = 0}));
    return (sum["all"].flops - sum["attention"].flops) / 1e15;
  };
  expect_prints(layers(1e6), 30.9, 1);
  expect_prints(layers(0), 15.8, 1);
}

TEST(CostOfTheRelease, Checkpoint) {
  double bytes = 0;
  for (const TensorSpec& tensor : expected_tensors(release())) {
    double elements = static_cast<double>(tensor_type_bytes(tensor.type));
    for (const int64_t n : tensor.shape) elements *= static_cast<double>(n);
    bytes += elements;
  }
  EXPECT_EQ(bytes, 510286023000.0);
}

// One of 64 GPUs that share the experts: milliseconds and tokens a second. That table counts codes without the scales of tiles
// (0.1 %), no compressors, and of a draft pass neither residual streams nor the projection of its context.
struct Slice {
  const char* card;
  double streams, context, rows, accepted;
  double dense, streams_ms, experts, attention, index, engram, head, draft, sum, net;
  double overlapped, per_user;
};
constexpr Slice kSlices[] = {
    {"h200", 64, 4096, 1, 1.0, 1.52, 0.17, 1.06, 0.26, 0.04, 0.07, 0.31, 0.00, 3.44, 4.69, 13637, 213},
    {"h200", 128, 4096, 1, 1.0, 1.64, 0.27, 1.45, 0.52, 0.06, 0.07, 0.31, 0.00, 4.33, 9.39, 13637, 107},
    {"h200", 256, 4096, 1, 1.0, 2.61, 0.47, 2.90, 1.03, 0.12, 0.11, 0.43, 0.00, 7.66, 18.77, 13637, 53},
    {"h200", 64, 4096, 6, 3.51, 3.92, 0.67, 4.34, 1.55, 0.14, 0.16, 0.64, 1.01, 12.43, 28.16, 7977, 125},
    {"h200", 256, 77824, 1, 1.0, 2.61, 0.47, 2.90, 1.03, 1.08, 0.11, 0.43, 0.00, 8.62, 18.77, 13637, 53},
    {"h200", 128, 77824, 6, 3.51, 7.84, 1.26, 8.69, 3.10, 1.65, 0.32, 1.28, 1.95, 26.08, 56.32, 7977, 62},
    {"b200", 128, 77824, 1, 1.0, 0.92, 0.16, 0.64, 0.23, 0.33, 0.04, 0.19, 0.00, 2.50, 9.39, 13637, 107},
    {"b200", 128, 4096, 6, 3.51, 3.45, 0.76, 3.82, 1.36, 0.15, 0.14, 0.56, 0.87, 11.11, 56.32, 7977, 62},
    {"gb200", 256, 77824, 1, 1.0, 1.07, 0.28, 1.15, 0.41, 0.65, 0.04, 0.19, 0.00, 3.78, 1.30, 67703, 264},
    {"gb200", 64, 77824, 6, 3.51, 1.55, 0.40, 1.72, 0.61, 0.41, 0.06, 0.25, 0.42, 5.43, 1.96, 41377, 647},
};

TEST(CostOfTheRelease, OneOf64Gpus) {
  for (const Slice& row : kSlices) {
    SCOPED_TRACE(std::string(row.card) + " " + std::to_string(row.streams) + " " + std::to_string(row.context));
    const Hardware& card = *find_card(row.card);
    const double drafts = row.rows - 1;
    const StepRows rows{.sequences = row.streams, .rows = row.streams * row.rows, .context = row.context, .expert_ranks = 64};
    StepCost cost = cost_of(step_kernels(release(), rows), card);
    double draft = 0;
    for (const KernelCost& k : draft_kernels(release(), row.streams, row.accepted, 64)) {
      if (drafts > 0 && std::string(k.name) != "main_proj" && std::string(k.name) != "streams, router")
        draft += 1e3 * kernel_seconds(k, card);
    }
    const auto ms = [&](KernelGroup group) { return 1e3 * cost.by_group[static_cast<size_t>(group)]; };
    const auto near = [](double value, double printed) { EXPECT_NEAR(value, printed, 0.0051 + 0.001 * printed); };
    near(ms(KernelGroup::kDense), row.dense);
    near(ms(KernelGroup::kStreams), row.streams_ms);
    near(ms(KernelGroup::kExperts), row.experts);
    near(ms(KernelGroup::kAttention), row.attention);
    near(ms(KernelGroup::kIndex), row.index);
    near(ms(KernelGroup::kEngram), row.engram);
    near(ms(KernelGroup::kHead), row.head);
    near(draft, row.draft);
    near(1e3 * cost.seconds - ms(KernelGroup::kCompress) + draft, row.sum);
    const DecodeEstimate all = estimate_decode(
        release(), card,
        {.streams = row.streams, .context = row.context, .drafts = drafts, .accepted = row.accepted, .ranks = 64});
    near(1e3 * all.exchange, row.net);
    // Where the exchange is the longer part, exactly; else what the table leaves out shows.
    EXPECT_NEAR(all.per_device, row.overlapped, row.net > row.sum ? 1 : 0.03 * row.overlapped);
    EXPECT_NEAR(all.per_user, row.per_user, row.net > row.sum ? 0.51 : 0.03 * row.per_user);
  }
}

}  // namespace
}  // namespace deepinfer
