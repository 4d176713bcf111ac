// engine/limits.h - the engine's default sizes, in two sets.
//
// The `tiny` preset builds with hostile constants, so that every test also runs with a pool, a batch and a queue that are
// nearly always exhausted.
#pragma once

#include <cstdint>

namespace deepinfer {

#if DEEPINFER_TINY
inline constexpr int32_t kDefaultBatch = 3;
inline constexpr int32_t kDefaultQueue = 2;
inline constexpr int32_t kDefaultPages = 3;
inline constexpr int32_t kDefaultStepTokens = 5;
inline constexpr int64_t kDefaultSnapshotBytes = 1;  // as few as there can be
#else
inline constexpr int32_t kDefaultBatch = 32;
inline constexpr int32_t kDefaultQueue = 256;
inline constexpr int32_t kDefaultPages = 0;  // 0 = as many as the batch can fill
inline constexpr int32_t kDefaultStepTokens = 512;
inline constexpr int64_t kDefaultSnapshotBytes = int64_t{256} << 20;
#endif
// Tokens of one sequence when nobody asks for more: every page is reserved up front, so the model's own limit would cost
// memory that a conversation rarely uses.
inline constexpr int64_t kDefaultContext = 8192;

}  // namespace deepinfer
