// lab/ranked_model.h - a V4.1 model over ranks that are threads of this process, behind the door of one model.
//
// The sequences of a step are dealt out among the ranks, the experts lie on all of them, and the logits come back in the order
// of the plan. Ranks share the state of the sequences, which is memory of this process; each has its own device and scratch.
// Threads: one; forward() returns when all ranks are done.
//
//   DI_TRY(const auto ranked, RankedModel::create(model, 4, device.isa()));
#pragma once

#include <memory>
#include <vector>

#include "model/v41_model.h"
#include "parallel/thread_group.h"

namespace deepinfer {

class RankedModel final : public LanguageModel {
 public:
  // REQUIRES: `model` on a device that reads host memory, with the kernels `isa`; it must outlive this one.
  static Result<std::unique_ptr<RankedModel>> create(const V41Model& model, int32_t ranks, const std::string& isa);

  std::string name() const override { return model_.name(); }
  std::string fingerprint() const override { return model_.fingerprint(); }
  const ModelShape& shape() const override { return model_.shape(); }
  const KvLayout& layout() const override { return model_.layout(); }
  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override;
  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override;

 private:
  RankedModel(const V41Model& model, int32_t ranks) : model_(model), group_(ranks) {}

  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<V41Model> model;
  };
  const V41Model& model_;
  ThreadGroup group_;
  std::vector<Rank> ranks_;
};

}  // namespace deepinfer
