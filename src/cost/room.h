// cost - bytes, operations and time of a step, from a ModelShape and a description of the hardware.
//
// Purpose: one place for the arithmetic behind `plan` and behind what `bench` expects. A step is a list of kernels, each with the
// bytes it reads and the operations it does; its time is the sum over kernels of the longer of the two at the hardware's
// limits. What the memory of a device must hold comes from the same shape.
// Promise: pure functions of plain data; no measurement, no clock. Figures of cards say where they are from.
// Threads: any.
//
//   const auto kernels = step_kernels(shape, {.sequences = 64, .rows = 64, .context = 4096, .expert_ranks = 64});
//   const StepCost cost = cost_of(kernels, *find_card("h200"));     // cost.seconds, cost.by_group
//   CheckpointBytes bytes = checkpoint_bytes(shape);                // bytes.experts, bytes.tables, bytes.total()
//
// What the scheduler learns of its own steps (policy/step_costs.h) is measured, not computed here.
#pragma once

#include "cost/estimate.h"
#include "cost/hardware.h"
#include "cost/step_kernels.h"
#include "cost/storage.h"
