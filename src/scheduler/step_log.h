// scheduler/step_log.h - steps as lines of text, to plan them again elsewhere (docs/formats/step_log.md).
//
// A line holds all that plan_step() saw in one step and the plan it made. A log of a running engine becomes a unit test: every
// line must give the same plan again, on any machine and after any change that claims not to touch decisions.
// Promise: any bytes give an answer or an Error; a line holds the ids of the rows that were pending, so it is as private as
// the prompts.
// Threads: pure.
//
//   EngineOptions::step_log = [&](std::string_view line) { file << line << '\n'; };
//   DI_CHECK_OK(replay_step(line));
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

// One line, without its end.
std::string step_log_line(std::span<const RunningSequence> running, const StepBudget& budget, const StepPlan& plan);

// Plans the step of a line again. An Error says what cannot be read, or where the plan differs from the recorded one.
Status replay_step(std::string_view line);

}  // namespace deepinfer
