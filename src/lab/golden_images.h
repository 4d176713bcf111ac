// lab/golden_images.h - runs the recipe's image cases: token counts, sizes, limits, pixels, resolving.
//
// Threads: pure functions; reads the pictures beside the case file.
#pragma once

#include <string>

#include "base/json.h"

namespace deepinfer {

// Empty when the case passes, else what differs. `folder` holds the files the case names.
std::string run_image_case(const Json& golden, const std::string& folder);

}  // namespace deepinfer
