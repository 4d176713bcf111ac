// formats/value_scan.h - finds values that are no numbers.
//
// Runs at memory speed: a block of some thousand elements is tested without branches, only a block that holds a fault is
// looked at again.
#pragma once

#include <cstdint>

#include "formats/safetensors.h"

namespace deepinfer {

// Index of the first element that is NaN (e4m3 0x7F/0xFF, e8m0 255) or, in BF16, F16 and F32, NaN or infinite; -1 if there
// is none. Integer types have none. REQUIRES: tensor.aligned().
int64_t first_invalid_value(const TensorView& tensor);

}  // namespace deepinfer
