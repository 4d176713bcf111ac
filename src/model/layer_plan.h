// model/layer_plan.h - what each layer reads, derived from the source lists of the config (model.md section 2).
#pragma once

#include <string_view>

#include "base/result.h"
#include "core/model_shape.h"

namespace deepinfer {

// Checks the rules that join several sizes and fills shape.plan. REQUIRES: every size inside its own bounds.
// An Error names `file`, the keys and what does not fit.
Status derive_layer_plan(ModelShape& shape, std::string_view file);

}  // namespace deepinfer
