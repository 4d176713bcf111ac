#include "cost/storage.h"

#include <algorithm>

#include "core/kv_layout.h"

namespace deepinfer {
namespace {

// Rows of a forward pass between their kernels: an estimate of the larger buffers (model/v41_workspace.h).
double scratch_bytes(const ModelShape& s, const MemoryWork& work) {
  const double rows = work.step_rows, d = s.hidden;
  const double streams = 2.0 * s.streams * d * 2, attention = 2.0 * s.heads * s.head_dim * 2;
  const double experts = s.experts_per_token * (5.0 * s.expert_hidden + 6 * d), engram = (s.streams + 1) * d * 2;
  const double logits = 4.0 * s.vocab * work.streams * (1 + (s.draft_stages > 0 ? 3.0 * s.draft_block : 0));
  return rows * (streams + attention + experts + engram + 24 * d) + logits + 4.0 * static_cast<double>(work.context);
}

}  // namespace

std::vector<MemoryPart> memory_parts(const ModelShape& shape, const CheckpointBytes& bytes, const MemoryWork& work) {
  const KvLayout layout = make_kv_layout(shape);
  const double pages = static_cast<double>((work.context + layout.page_tokens - 1) / layout.page_tokens);
  const double streams = work.streams, ranks = work.expert_ranks;
  return {{"dense weights", bytes.dense},
          {"routed experts", bytes.experts / ranks},
          {"output head", bytes.head},
          {"draft stages", bytes.draft + bytes.draft_experts / ranks},
          {"vision tower", bytes.vision},
          {"embedding and Engram tables", 0, work.processor ? 0 : bytes.tables},
          {"KV pages", streams * pages * static_cast<double>(layout.page_bytes)},
          {"state of conversations", streams * static_cast<double>(layout.state_bytes)},
          {"scratch (about)", scratch_bytes(shape, work)}};
}

MemoryPart sum_of(const std::vector<MemoryPart>& parts) {
  MemoryPart sum{"all"};
  for (const MemoryPart& part : parts) sum.device += part.device, sum.host += part.host;
  return sum;
}

double resident_experts(double experts, double others, double available, double wanted) {
  // Packing leaves a quarter of what is free to others (cpu/cpu_device.cc).
  constexpr double kTaken = 0.75;
  const double room = wanted > 0 ? std::min(wanted, available - others) : available * kTaken - others;
  return experts > 0 ? std::clamp(room / experts, 0.0, 1.0) : 1;
}

double experts_from_disk(double experts, double resident, double left) {
  return experts * (1 - resident) > left ? 1 - resident : 0;
}

}  // namespace deepinfer
