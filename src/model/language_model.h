// model/language_model.h - the door between the engine and whatever produces logits.
//
// Three implementations stand behind it: the DeepSeek-V4.1 model (v41_model.h), the same with seeded random weights, and
// the scripted model (scripted_model.h) whose replies come from a file.
// Promise: a LanguageModel is const after creation; all that changes is in the StateView (pages, state blocks) and the
// Workspace handed in. forward() allocates nothing. A row's logits depend only on its sequence's tokens and state.
// Threads: one forward() at a time per Workspace; any number of workspaces.
//
//   auto workspace = model.make_workspace(device, limits);
//   DI_CHECK_OK(model.forward(plan, state, **workspace));         // enqueues on the workspace's device
//   device.ops().sample({.logits = (*workspace)->logits(), ...}); // [plan.num_logits(), vocab]
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "core/kv_layout.h"
#include "core/model_shape.h"
#include "core/step_plan.h"
#include "ops/device.h"

namespace deepinfer {

// Device memory that belongs to the running sequences. Owned by the engine (kvcache); the model only reads and writes it.
struct StateView {
  uint8_t* states = nullptr;            // [slots, layout.state_bytes]
  uint8_t* pages = nullptr;             // [pages, layout.page_bytes]
  const int32_t* page_table = nullptr;  // [slots, table_stride] page numbers, device memory
  int64_t table_stride = 0;             // pages per slot, = ceil(context / page_tokens)
  // Results of the step before, where a plan may name tokens by their draw (token_of_draw); null = no plan does.
  const SampleResult* draws = nullptr;
};

struct WorkspaceLimits {
  int32_t max_rows = 0;     // rows of one step
  int32_t max_logits = 0;   // logit rows of one step
  int64_t max_context = 0;  // tokens of one sequence
  int32_t max_drafts = 0;   // sequences of one draft pass
};

// Scratch memory of one stream of steps.
class Workspace {
 public:
  virtual ~Workspace() = default;
  // F32 [num_logits, vocab] of the last forward(), device memory, in the order of the plan's logit rows.
  virtual const float* logits() const = 0;
};

class Drafter;

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  // For people: "tiny-v41", "scripted:FILE".
  virtual std::string name() const = 0;
  // Everything the logits depend on besides the ids: weights, formats, numerics; part of the system fingerprint.
  virtual std::string fingerprint() const = 0;
  virtual const ModelShape& shape() const = 0;
  virtual const KvLayout& layout() const = 0;

  virtual Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const = 0;
  // Enqueues one step. REQUIRES: plan within the workspace's limits, slots and pages set up in `state`.
  virtual Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const = 0;
  // Among so many ranks a step's sequences are dealt out, as SequenceRows::rank says.
  virtual int32_t ranks() const { return 1; }
  // What proposes tokens for this model (model/drafter.h); null = nothing does. Lives as long as the model.
  virtual const Drafter* drafter() const { return nullptr; }
};

}  // namespace deepinfer
