// cost/hardware.h - what a machine or a card gives at most, and how much of that kernels reach.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

// Rates are a second; 0 = not known, and then no limit.
struct Hardware {
  std::string name;
  std::string source;                 // where the limits are from
  std::string reached_source;         // and the two shares below
  bool processor = false;             // weights, tables and caches lie in one memory, and experts may stay on the disk
  double memory_bytes = 0;            // of one device; of a processor what can still be given
  double read = 0;                    // bytes from its memory
  double fp4 = 0, fp8 = 0, wide = 0;  // FLOPs of products: FP4 weights; e4m3 weights, FP4 keys; BF16 and FP32
  int32_t node = 1;                   // devices of one machine
  double node_send = 0, send = 0;     // bytes out of one device to another: of its machine, of another
  double disk = 0;                    // bytes from the disk the checkpoint lies on
  double barrier = 0;                 // seconds in which all threads meet
  // Of the limits of reading and of products what kernels reach; 1 = the limit itself.
  double reached_read = 1, reached_products = 1;
};

// The same with what kernels reach as limits.
Hardware as_reached(Hardware hardware);

// Cards that are described here: h200, b200, gb200.
const std::vector<Hardware>& known_cards();
const Hardware* find_card(std::string_view name);

// A description as JSON, in the units of data sheets: {"name": "x", "memory_gb": 80, "read_gb_s": 3350, "fp8_tflops": 1900,
// "wide_tflops": 950, ...}; fp4_tflops is fp8's if not given. An unknown or missing key is an Error that names it.
Result<Hardware> parse_hardware(std::string_view text, std::string_view file);

}  // namespace deepinfer
