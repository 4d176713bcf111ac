// model/ranked_model.h - a V4.1 model over ranks that are threads of this process, behind the door of one model.
//
// A rank runs the sequences that the plan gives it, on a device and in a workspace of its own; one without any runs an empty
// batch, because the experts lie spread over all ranks. Logits and drafts come back in the order of the plan. Pages and state
// blocks are memory of this process, which all ranks share (decision 0030): a rank touches those of its own sequences.
// Promise: the bytes of the model alone, whatever the number of ranks and who owns what. A warm pass allocates nothing.
// Threads: one forward() or draft pass at a time; it returns when all ranks are done.
//
//   DI_TRY(const auto ranked, RankedModel::create(model, std::move(devices)));   // one device for each rank
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "model/v41_model.h"
#include "parallel/thread_group.h"

namespace deepinfer {

class RankedModel final : public LanguageModel {
 public:
  // REQUIRES: `model` and the devices as V41Model::of_rank() says, devices that compute before a call returns; the model must
  // outlive this one.
  static Result<std::unique_ptr<RankedModel>> create(const V41Model& model, std::vector<std::unique_ptr<Device>> devices);

  std::string name() const override { return model_.name(); }
  std::string fingerprint() const override { return model_.fingerprint(); }
  const ModelShape& shape() const override { return model_.shape(); }
  const KvLayout& layout() const override { return model_.layout(); }
  int32_t ranks() const override { return static_cast<int32_t>(ranks_.size()); }
  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override;
  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override;
  const Drafter* drafter() const override { return model_.drafter() ? &drafter_ : nullptr; }

 private:
  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<V41Model> model;
  };
  struct Scratch;
  // Drafts of a rank's sequences by that rank. The logits they were drawn from stay with the ranks, so nothing can be verified by
  // rejection.
  class Drafts final : public Drafter {
   public:
    explicit Drafts(const RankedModel& model) : model_(model) {}
    int32_t width() const override { return model_.model_.drafter()->width(); }
    Status note_rows(const StateView& state, Workspace& workspace) const override;
    Status draft(const DraftBatch& batch, const StateView& state, Workspace& workspace, const DraftOutput& out) const override;

   private:
    const RankedModel& model_;
  };

  RankedModel(const V41Model& model, int32_t ranks) : model_(model), group_(ranks), team_(ranks), drafter_(*this) {}
  // Calls `fn` for every rank on its own thread; the first failure counts.
  Status on_all(Scratch& scratch, FunctionRef<Status(size_t rank)> fn) const;

  const V41Model& model_;
  ThreadGroup group_;
  std::vector<Rank> ranks_;
  mutable ThreadPool team_;  // a part of a call for each rank: no thread can take two, as ranks wait for each other
  Drafts drafter_;
};

}  // namespace deepinfer
