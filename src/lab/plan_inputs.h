// lab/plan_inputs.h - what a plan is made of: the sizes of a model and a description of hardware.
#pragma once

#include <memory>
#include <string>

#include "cost/room.h"
#include "formats/checkpoint.h"
#include "lab/plan.h"

namespace deepinfer {

struct PlanModel {
  std::string name;
  ModelShape shape;
  CheckpointBytes bytes;
  std::shared_ptr<const Checkpoint> files;  // null = not here (yet)
  bool in_memory = false;                   // made at start, never on a disk
};

// A folder without weights has a config.json all the same: a plan before a download.
Result<PlanModel> open_plan_model(const std::string& name);

// A known card, a file that describes one, or this machine, measured now if that is asked for.
Result<Hardware> open_plan_hardware(const PlanOptions& options);

}  // namespace deepinfer
