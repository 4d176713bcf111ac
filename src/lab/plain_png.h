// lab/plain_png.h - PNG files of any size, for tests: one colour, stored without compression.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

std::string plain_png(uint32_t width, uint32_t height, uint8_t level);

}  // namespace deepinfer
