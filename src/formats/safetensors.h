// formats/safetensors.h - one safetensors file, mapped read-only, and a small writer.
//
// File: u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}}, then the data area. open() checks
// everything before anybody may look at a tensor: header length against the file, JSON, known dtypes, shape times element
// size equal to the span of bytes, offsets inside the data area, no overlap, no gap, no byte left over, no name twice.
// Promise: any bytes give a file that is safe to read or a one-line Error that names the file, the tensor (where one is
// concerned) and the fault; nothing is copied, a page is read from disk when first touched.
// Threads: const access from anywhere. Views live as long as the file object.
//
//   DI_TRY(auto file, SafetensorsFile::open(path));
//   const TensorView* logits = file.find("logits");           // nullptr when absent
//   DI_TRY(auto values, file.typed<float>("logits", {4, vocab}));   // checks dtype and shape
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "formats/codecs.h"

namespace deepinfer {

enum class TensorType : uint8_t { kF8E4m3, kF8E8m0, kI8, kU8, kBool, kF16, kBf16, kI32, kF32, kI64 };

// As spelled in a header: "F8_E4M3", "BF16", ...
const char* tensor_type_name(TensorType type);
size_t tensor_type_bytes(TensorType type);

// A tensor in somebody else's memory.
struct TensorView {
  std::string name;
  TensorType type = TensorType::kU8;
  std::vector<int64_t> shape;  // at most 8 dimensions; a scalar has none
  std::span<const uint8_t> data;
  const std::string* file = nullptr;  // where it came from, for messages

  int64_t elements() const;
  // The data starts at a multiple of its element size, so a typed pointer to it may be used.
  bool aligned() const { return reinterpret_cast<uintptr_t>(data.data()) % tensor_type_bytes(type) == 0; }
  // REQUIRES: T has the element size, aligned().
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
};

// "[4, 128]"
std::string shape_text(std::span<const int64_t> shape);

template <class T>
struct TensorTypeOf;
template <>
struct TensorTypeOf<float> {
  static constexpr TensorType value = TensorType::kF32;
};
template <>
struct TensorTypeOf<Bf16> {
  static constexpr TensorType value = TensorType::kBf16;
};
template <>
struct TensorTypeOf<int32_t> {
  static constexpr TensorType value = TensorType::kI32;
};
template <>
struct TensorTypeOf<int64_t> {
  static constexpr TensorType value = TensorType::kI64;
};
template <>
struct TensorTypeOf<int8_t> {
  static constexpr TensorType value = TensorType::kI8;
};
template <>
struct TensorTypeOf<uint8_t> {
  static constexpr TensorType value = TensorType::kU8;
};

// Dtype, alignment and, unless `shape` is empty, shape as expected, or an Error naming file, tensor and fault.
Status check_tensor(const TensorView& tensor, TensorType type, std::span<const int64_t> shape);
// The tensor of that name among tensors sorted by name, or nullptr.
const TensorView* find_tensor(std::span<const TensorView> sorted, std::string_view name);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& path() const { return *path_; }
  // Sorted by name.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;
  // Like find, but absence, another dtype or, when `shape` is given, another shape is an Error.
  Result<const TensorView*> get(std::string_view name, TensorType type, std::span<const int64_t> shape = {}) const;
  // get() as a typed span; T = float, Bf16, int32_t, int64_t, int8_t, uint8_t.
  template <class T>
  Result<std::span<const T>> typed(std::string_view name, std::vector<int64_t> shape = {}) const {
    DI_TRY(const TensorView* tensor, get(name, TensorTypeOf<T>::value, shape));
    return tensor->as<T>();
  }
  const MappedFile& mapping() const { return file_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  Status parse();

  MappedFile file_;
  std::unique_ptr<const std::string> path_;  // stays put when the object moves: views point to it
  std::vector<TensorView> tensors_;
};

// Writes the tensors in the given order, the data area starting at a multiple of 64 bytes and tensors lying without gaps
// (the format knows no padding), widest elements first so that all are aligned. Streams: needs no memory for the data.
// REQUIRES: unique names. An existing file is replaced once the new one is complete and synced.
Status write_safetensors(const std::string& path, std::span<const TensorView> tensors);

}  // namespace deepinfer
