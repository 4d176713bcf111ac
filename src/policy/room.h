// policy - pure decisions.
//
// Purpose: replay, preemption, fairness, verification, where prompts and answers are placed; retention later. Engine, router and
// simulator call the same functions. Promise: plain data in, plain data out; no clock, no I/O, no state. Threads: any. Example:
// policy/replay.h.
#pragma once

#include "policy/fairness.h"
#include "policy/preemption.h"
#include "policy/ranks.h"
#include "policy/replay.h"
#include "policy/routing.h"
