// model/scripted_model.h - a model whose answers come from a file, behind the same door as a real one.
//
// It keeps its tokens in the pages and its progress in the state block of the slot, as a real model keeps KV there: the
// prompt is read back through the page table when the reply is chosen. So scheduler, cache and sampler really run, a
// mixed-up page or slot gives another answer, and a moved sequence goes on where it was.
// Promise: logits of a row depend on its sequence alone. A step sleeps as the script says; faults come at their step.
// forward() copies the plan (the one exception to "allocates nothing"), because its work runs later, in stream order.
// REQUIRES: a device whose host calls can touch its memory (cpu, delayed).
// Threads: as LanguageModel.
//
//   DI_TRY(Script script, parse_script(text, path));
//   ScriptedModel model(std::move(script));
#pragma once

#include <memory>
#include <string>

#include "model/language_model.h"
#include "model/script.h"

namespace deepinfer {

class ScriptedModel final : public LanguageModel {
 public:
  explicit ScriptedModel(Script script);

  std::string name() const override { return script_.name; }
  std::string fingerprint() const override { return script_.name; }
  const ModelShape& shape() const override { return shape_; }
  const KvLayout& layout() const override { return layout_; }

  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override;
  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override;

 private:
  Script script_;
  ModelShape shape_;
  KvLayout layout_;
};

}  // namespace deepinfer
