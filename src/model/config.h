// model/config.h - config.json (the nested, authoritative one) to and from ModelShape.
//
// Every size of model.md section 1 is read and bounded, so that no later arithmetic on sizes can overflow or divide by
// zero; the layer plan of section 2 is derived. Keys the arithmetic does not depend on are ignored; choices it does depend
// on (activation, scoring function, quantisation) must be the ones this model implements.
// Promise: a usable shape or a one-line Error naming file, key, value found and what was expected.
//
//   DI_TRY(ModelShape shape, parse_model_config(text, "DIR/config.json"));
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model_shape.h"

namespace deepinfer {

// `file` goes into the messages.
Result<ModelShape> parse_model_config(std::string_view text, std::string_view file);

// Validity rules and layer plan for a shape filled by hand (random checkpoints, tests); parse_model_config() calls it.
Status finish_model_shape(ModelShape& shape, std::string_view file);

// The config.json that parse_model_config() reads back to the same shape.
std::string model_config_text(const ModelShape& shape);

// "window", "full", "reuse", "reindex".
const char* attention_mode_name(AttentionMode mode);

}  // namespace deepinfer
