// engine - the loop that turns requests into tokens.
//
// Purpose: take requests from any thread, run them together in steps of one flat batch, draw tokens, tell the handlers.
// Promise: exactly one final event per accepted request; the same bytes alone or in company; free + leased pages = all.
// Threads: one thread drives the engine, any thread talks to it.
// Example: engine/engine.h.
#pragma once

#include "engine/engine.h"
#include "engine/limits.h"
