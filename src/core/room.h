// core - the nouns all rooms share, as plain data: token ids, requests, events, sampling parameters, the sizes of a model,
// the layout of its cache, and the plan of one step. No behaviour beyond deriving one piece of data from another.
#pragma once

#include "core/kv_layout.h"
#include "core/model_shape.h"
#include "core/step_plan.h"
#include "core/types.h"
