// tests/ranks_harness.h - a model over ranks of one thread each.
#pragma once

#include "model/ranked_model.h"
#include "tests/engine_harness.h"

namespace deepinfer {

inline std::unique_ptr<RankedModel> over_ranks(const V41Model& model, int32_t ranks) {
  std::vector<std::unique_ptr<Device>> devices(static_cast<size_t>(ranks));
  for (auto& device : devices) device = device_named("cpu", 1);
  return value(RankedModel::create(model, std::move(devices)));
}

}  // namespace deepinfer
