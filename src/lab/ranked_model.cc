#include "lab/ranked_model.h"

#include <algorithm>
#include <thread>

#include "cpu/cpu_device.h"

namespace deepinfer {
namespace {

// What one rank has of a step.
struct Part {
  StepPlan plan;
  std::vector<int32_t> logits;  // of its logit rows: their place in the whole step
  Status status;
};

struct RankedWorkspace final : Workspace {
  const float* logits() const override { return all_logits.data(); }
  std::vector<std::unique_ptr<Workspace>> of_rank;
  std::vector<float> all_logits;
};

std::vector<Part> deal_out(const StepPlan& plan, size_t ranks) {
  std::vector<Part> parts(ranks);
  int32_t logits = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    Part& part = parts[i % ranks];
    SequenceRows rows = plan.sequences[i];
    const auto begin = plan.tokens.begin() + rows.first_token;
    rows.first_token = part.plan.num_rows();
    part.plan.tokens.insert(part.plan.tokens.end(), begin, begin + rows.count);
    part.plan.sequences.push_back(rows);
    for (int32_t k = 0; k < rows.num_logits; ++k) part.logits.push_back(logits++);
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<RankedModel>> RankedModel::create(const V41Model& model, int32_t ranks, const std::string& isa) {
  std::unique_ptr<RankedModel> ranked(new RankedModel(model, ranks));
  for (int32_t r = 0; r < ranks; ++r) {
    Rank rank;
    DI_TRY(rank.device, make_cpu_device({.threads = 1, .isa = isa}));
    rank.communicator = ranked->group_.join(r);
    V41Options options = model.options();
    options.communicator = rank.communicator.get();
    DI_TRY(rank.model, V41Model::create(*rank.device, std::move(options)));
    ranked->ranks_.push_back(std::move(rank));
  }
  return ranked;
}

Result<std::unique_ptr<Workspace>> RankedModel::make_workspace(Device&, const WorkspaceLimits& limits) const {
  auto workspace = std::make_unique<RankedWorkspace>();
  for (const Rank& rank : ranks_) {
    DI_TRY(auto scratch, rank.model->make_workspace(*rank.device, limits));
    workspace->of_rank.push_back(std::move(scratch));
  }
  workspace->all_logits.resize(static_cast<size_t>(limits.max_logits) * static_cast<size_t>(shape().vocab));
  return std::unique_ptr<Workspace>(std::move(workspace));
}

Status RankedModel::forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const {
  if (!plan.images.empty()) return unsupported("ranks take no pictures");
  auto& scratch = static_cast<RankedWorkspace&>(workspace);
  std::vector<Part> parts = deal_out(plan, ranks_.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    threads.emplace_back([&, r] { parts[r].status = ranks_[r].model->forward(parts[r].plan, state, *scratch.of_rank[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  const auto width = static_cast<std::ptrdiff_t>(shape().vocab);
  for (size_t r = 0; r < parts.size(); ++r) {
    DI_CHECK_OK(parts[r].status);
    const float* from = scratch.of_rank[r]->logits();
    for (size_t i = 0; i < parts[r].logits.size(); ++i, from += width)
      std::copy(from, from + width, scratch.all_logits.begin() + parts[r].logits[i] * width);
  }
  return {};
}

}  // namespace deepinfer
