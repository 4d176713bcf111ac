// model - DeepSeek-V4.1 and whatever else produces logits.
//
// Purpose: config.json -> ModelShape, checkpoint -> Weights, and the forward pass over row sets; the DSpark draft; the
// vision tower; the scripted model behind the same door.
// Promise: const after load; sizes come from the config; a row's bytes depend on its sequence alone.
// Threads: one forward at a time per workspace.
// Example: see language_model.h (the door) and v41_model.h.
#pragma once

#include "model/config.h"
#include "model/language_model.h"
#include "model/v41_model.h"
#include "model/weights.h"
