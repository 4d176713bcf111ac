// host/open_model.h - the model a setting names, behind the LanguageModel door. Inside the room only.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "model/language_model.h"
#include "ops/device.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct OpenModelOptions {
  std::string model;  // folder, scripted:FILE or random:SPEC
  int threads = 0;    // for filling a random checkpoint
  LoadProgress progress;
  bool pictures_only = false;  // an Error for a model without a vision tower
};

// `model` over ranks that share the threads of `device`, on which it lies; it must outlive them.
Result<std::unique_ptr<LanguageModel>> open_ranks(const Device& device, const LanguageModel& model, int32_t ranks);

Result<std::unique_ptr<LanguageModel>> open_model(Device& device, const Tokenizer& tokenizer, const OpenModelOptions& options);

}  // namespace deepinfer
