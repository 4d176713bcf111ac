// tests/shipped_model.h - the model that ships with the program, for tests over the engine's door.
#pragma once

#include "base/file.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/v41_model.h"
#include "model/weights.h"
#include "tests/engine_harness.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace deepinfer {

inline constexpr const char* kModelDir = DEEPINFER_SOURCE_DIR "/models/tiny-v41";
inline constexpr int32_t kTextTokens = 5000;  // ids below are ordinary tokens

inline V41Options shipped_options() {
  const auto checkpoint = value(Checkpoint::open(kModelDir));
  V41Options options;
  options.name = "tiny-v41";
  options.shape = value(parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
  const Tokenizer tokenizer = value(Tokenizer::parse(value(read_file(join_path(kModelDir, "tokenizer.json")))));
  options.token_map = value(make_token_map(tokenizer, options.shape.vocab)).class_of;
  options.weights = value(bind_weights(checkpoint, options.shape));
  return options;
}

}  // namespace deepinfer
