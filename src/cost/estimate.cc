#include "cost/estimate.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Times that the threads of a processor meet for each kernel of the list: inputs are made first, small operations lie between
// (98 a step for 43 kernels of four layers of the release's sizes).
constexpr double kMeetings = 2.3;

double meetings(const std::vector<KernelCost>& kernels, const Hardware& hardware) {
  return hardware.barrier * kMeetings * static_cast<double>(kernels.size());
}

// `ranks` - 1 of as many devices are elsewhere: in the same machine if all fit one, else all count as far.
double exchange_seconds(const ModelShape& shape, const Hardware& hardware, double rows, int32_t ranks) {
  const double rate = ranks <= hardware.node ? hardware.node_send : hardware.send;
  return ranks > 1 && rate > 0 ? exchange_bytes(shape, rows) * (ranks - 1) / ranks / rate : 0;
}

double disk_seconds(const std::vector<KernelCost>& kernels, const Hardware& hardware, double from_disk) {
  double bytes = 0;
  for (const KernelCost& k : kernels) bytes += k.fp4_flops > 0 ? k.weight_bytes : 0;
  return hardware.disk > 0 ? bytes * from_disk / hardware.disk : 0;
}

// What a layer misses is known behind its router only, so that reading adds to all but the products of experts themselves.
double disk_adds(const StepCost& step, double disk) {
  return std::max(0.0, disk - step.by_group[static_cast<size_t>(KernelGroup::kExperts)]);
}

Bound bound_of(const StepCost& step, double exchange, double disk) {
  if (disk > step.seconds) return Bound::kDisk;
  if (exchange > step.seconds) return Bound::kNetwork;
  return step.read_seconds > step.seconds / 2 ? Bound::kMemory : Bound::kProducts;
}

}  // namespace

const char* bound_name(Bound bound) {
  constexpr const char* kNames[] = {"reading memory", "multiplying", "the exchange of rows", "reading the disk"};
  return kNames[static_cast<size_t>(bound)];
}

double exchange_bytes(const ModelShape& shape, double rows) {
  const double out = shape.hidden + shape.hidden / 32.0, back = 2.0 * shape.hidden;
  return rows * shape.layers * shape.experts_per_token * (out + back);
}

DecodeEstimate estimate_decode(const ModelShape& shape, const Hardware& hardware, const DecodeWork& work) {
  DecodeEstimate out;
  const double rows = work.streams * (1 + work.drafts);
  std::vector<KernelCost> kernels =
      step_kernels(shape, {.sequences = work.streams, .rows = rows, .context = work.context, .expert_ranks = work.ranks});
  if (work.drafts > 0) {
    const auto draft = draft_kernels(shape, work.streams, work.accepted, work.ranks);
    kernels.insert(kernels.end(), draft.begin(), draft.end());
  }
  out.step = cost_of(kernels, hardware);
  out.exchange = exchange_seconds(shape, hardware, rows, work.ranks);
  out.disk = disk_seconds(kernels, hardware, work.from_disk);
  out.barriers = meetings(kernels, hardware);
  out.seconds = std::max(out.step.seconds, out.exchange) + disk_adds(out.step, out.disk) + out.barriers;
  out.per_user = out.seconds > 0 ? work.accepted / out.seconds : 0;
  out.per_device = out.per_user * work.streams;
  out.bound = bound_of(out.step, out.exchange, out.disk);
  return out;
}

PromptEstimate estimate_prompt(const ModelShape& shape, const Hardware& hardware, const PromptWork& work) {
  PromptEstimate out;
  const double decoder_from = work.keep > 0 ? std::max(work.cached, work.tokens - work.keep) : work.cached;
  for (double from = work.cached; from < work.tokens; from += work.chunk) {
    const double to = std::min(work.tokens, from + work.chunk);
    const StepRows step{.rows = to - from,
                        .decoder_rows = std::max(0.0, to - std::max(from, decoder_from)),
                        .logit_rows = to == work.tokens ? 1.0 : 0.0,
                        .context = (from + to) / 2,
                        .expert_ranks = work.ranks};
    std::vector<KernelCost> kernels = step_kernels(shape, step);
    std::erase_if(kernels, [](const KernelCost& k) { return k.fp4_flops + k.fp8_flops + k.wide_flops == 0; });  // without rows
    out.steps.add(cost_of(kernels, hardware));
    out.exchange +=
        exchange_seconds(shape, hardware, step.rows, work.ranks) *
        (step.decoder_rows < step.rows && shape.candidate_source >= 0
             ? (shape.candidate_source + (shape.layers - shape.candidate_source) * step.decoder_rows / step.rows) / shape.layers
             : 1.0);
    out.disk += disk_seconds(kernels, hardware, work.from_disk);
    out.barriers += meetings(kernels, hardware);
  }
  out.seconds = std::max(out.steps.seconds, out.exchange) + disk_adds(out.steps, out.disk) + out.barriers;
  out.bound = bound_of(out.steps, out.exchange, out.disk);
  return out;
}

double picture_flops(const ModelShape& shape, double tokens) {
  if (!shape.vision) return 0;
  const VisionShape& v = *shape.vision;
  const double cells = double{1} * v.downsample * v.downsample, patches = tokens * cells, d = v.hidden;
  const double block = 4 * d * d + 3 * d * v.intermediate + 2 * patches * d;  // the last: scores and their sum
  return 2 * patches * (v.layers * block + 3.0 * v.patch * v.patch * d) + 2 * tokens * shape.hidden * (cells * d + shape.hidden);
}

int32_t most_streams(int32_t most, const std::function<bool(int32_t)>& good) {
  int32_t low = 0, high = most + 1;  // low is enough, high too many
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace deepinfer
