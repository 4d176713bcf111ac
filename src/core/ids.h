// core/ids.h - the numbers everything is named by.
#pragma once

#include <cstdint>

namespace deepinfer {

using TokenId = int32_t;
using Position = int64_t;  // absolute index in a sequence, prompt included
using RequestId = uint64_t;
using SlotId = int32_t;  // which sequence slot of the engine's state

}  // namespace deepinfer
