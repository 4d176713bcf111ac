// scheduler - which rows run in the next step.
//
// Purpose: turn the running sequences into a StepPlan under a token budget; preemption and the verification budget of
// speculation come here later.
// Promise: pure functions of plain data; a plan changes when a token is computed, never what it is.
// Threads: any.
// Example: StepPlan plan; PromptShares shares; plan_step(running, {.step_tokens = 512}, shares, plan);
#pragma once

#include "scheduler/scheduler.h"
#include "scheduler/step_ahead.h"
#include "scheduler/step_log.h"
