#include "formats/value_scan.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr size_t kBlock = 4096;

template <class T, class Bad>
int64_t scan(std::span<const T> values, Bad bad) {
  size_t at = 0;
  // A constant trip count lets the compiler vectorise without a tail.
  for (; at + kBlock <= values.size(); at += kBlock) {
    T any = 0;
    for (size_t i = 0; i < kBlock; ++i) any = static_cast<T>(any | bad(values[at + i]));
    if (any) break;
  }
  for (; at < values.size(); ++at) {
    if (bad(values[at])) return static_cast<int64_t>(at);
  }
  return -1;
}

}  // namespace

int64_t first_invalid_value(const TensorView& tensor) {
  switch (tensor.type) {
    case TensorType::kF8E4m3:
      return scan(tensor.as<uint8_t>(), [](uint8_t v) { return static_cast<uint8_t>((v & 0x7F) == 0x7F); });
    case TensorType::kF8E8m0: return scan(tensor.as<uint8_t>(), [](uint8_t v) { return static_cast<uint8_t>(v == 0xFF); });
    case TensorType::kBf16:
      return scan(tensor.as<uint16_t>(), [](uint16_t v) { return static_cast<uint16_t>((v & 0x7F80) == 0x7F80); });
    case TensorType::kF16:
      return scan(tensor.as<uint16_t>(), [](uint16_t v) { return static_cast<uint16_t>((v & 0x7C00) == 0x7C00); });
    case TensorType::kF32:
      return scan(tensor.as<uint32_t>(), [](uint32_t v) { return static_cast<uint32_t>((v & 0x7F800000u) == 0x7F800000u); });
    case TensorType::kI8:
    case TensorType::kU8:
    case TensorType::kBool:
    case TensorType::kI32:
    case TensorType::kI64: return -1;
  }
  return -1;
}

}  // namespace deepinfer
