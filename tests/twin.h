// tests/twin.h - one operation on two devices with the same inputs: the portable bodies on the host's cores, and a device under
// test. All arrays must be equal afterwards, byte for byte, those the operation only read included; sums of another numerics
// class may differ by rounding (`close`), but are the same bytes each time.
//
//   Twin twin(*device);
//   const auto x = twin.in(random.bf16(n * width));
//   const auto y = twin.out<Bf16>(n * width);
//   twin.check("rms_norm", [&](const OpTable& ops, const Twin::Side& at) { ops.rms_norm({.rows = at.rows(n), .x = at(x), ...});
//   });
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cpu/test_values.h"
#include "ops/device.h"

namespace deepinfer {

class Twin {
 public:
  template <class T>
  struct Slot {
    size_t index;
  };

  // Where the arrays are on one of the two devices.
  class Side {
   public:
    explicit Side(const Twin& twin, bool tested) : twin_(twin), tested_(tested) {}
    template <class T>
    T* operator()(Slot<T> slot) const {
      const Array& array = twin_.arrays_[slot.index];
      return tested_ ? array.device.as<T>() : reinterpret_cast<T*>(const_cast<uint8_t*>(array.host.data()));
    }
    // `n` live rows under a capacity that is larger.
    Rows rows(Slot<int32_t> count, int32_t n) const { return {(*this)(count), n + 2}; }

   private:
    const Twin& twin_;
    bool tested_;
  };

  explicit Twin(Device& tested) : tested_(tested), host_(*make_cpu_device({.threads = 0, .isa = "portable"})) {}

  template <class T>
  Slot<T> in(const std::vector<T>& values) {
    Array array;
    array.host.resize(values.size() * sizeof(T) + sizeof(T));
    if (!values.empty()) std::memcpy(array.host.data(), values.data(), values.size() * sizeof(T));
    array.first = array.host;
    auto buffer = tested_.allocate(array.host.size());
    EXPECT_TRUE(buffer.ok());
    if (buffer) array.device = *std::move(buffer);
    arrays_.push_back(std::move(array));
    return {arrays_.size() - 1};
  }
  template <class T>
  Slot<T> out(int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    std::memset(static_cast<void*>(values.data()), 0x2B, values.size() * sizeof(T));
    return in(values);
  }
  Slot<int32_t> count(int64_t n) { return in(std::vector<int32_t>{static_cast<int32_t>(n)}); }

  int32_t scratch_rows() const { return std::max(tested_.parallelism(), host_->parallelism()); }
  // What it will hold is compared as numbers of this type: each within an ulp of BF16 (F32: none), and within `kClose` of the
  // largest, which is far below what a wrong column, scale or row leaves.
  template <class T>
  void close(Slot<T> slot, OutputType type) {
    arrays_[slot.index].sums = true;
    arrays_[slot.index].type = type;
  }

  // Its contents are nobody's business.
  template <class T>
  Slot<T> scratch(int64_t count) {
    const auto slot = out<T>(count);
    arrays_[slot.index].compared = false;
    return slot;
  }

  // Runs once as it is, then recorded and repeated.
  template <class F>
  void check(const std::string& what, F run) {
    run(host_->ops(), Side(*this, false));
    const Side side(*this, true);
    const auto enqueue = [&] { run(tested_.ops(), side); };
    std::unique_ptr<Recording> recording;
    for (const char* how : {"run", "repeated", "repeated", "repeated"}) {
      for (Array& array : arrays_) tested_.upload(array.device.as<void>(), array.first.data(), array.first.size());
      if (how[0] == 'r' && how[1] == 'u') {
        enqueue();
      } else {
        tested_.replay(recording, enqueue);
      }
      if (!compare(what + ", " + how)) break;
      for (Array& array : arrays_) {
        if (array.sums) array.host = array.back, array.repeats = true;
      }
    }
    for (Array& array : arrays_) array.host = array.first, array.repeats = false;
  }

 private:
  struct Array {
    std::vector<uint8_t> host, first, back;
    Buffer device;
    bool compared = true;
    bool sums = false, repeats = false;  // the first run is close, the others repeat its bytes
    OutputType type = OutputType::kF32;
  };

  static constexpr float kClose = 3e-5f;
  static float number(const Array& array, const std::vector<uint8_t>& bytes, size_t i) {
    if (array.type == OutputType::kBf16) return to_float(reinterpret_cast<const Bf16*>(bytes.data())[i]);
    return reinterpret_cast<const float*>(bytes.data())[i];
  }
  static bool is_close(const Array& array) {
    const size_t count = array.host.size() / (array.type == OutputType::kBf16 ? 2 : 4);
    float largest = 0.0f;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(number(array, array.host, i)));
    for (size_t i = 0; i < count; ++i) {
      const float want = number(array, array.host, i);
      const float ulp = array.type == OutputType::kBf16 ? std::abs(want) * 0x1p-7f : 0.0f;
      if (!(std::abs(number(array, array.back, i) - want) <= ulp + largest * kClose)) return false;
    }
    return true;
  }

  bool compare(const std::string& what) {
    for (Array& array : arrays_) {
      array.back.resize(array.host.size());
      tested_.download(array.back.data(), array.device.as<void>(), array.back.size());
    }
    const auto done = tested_.wait(tested_.record());
    EXPECT_TRUE(done.ok()) << what << ": " << (done.ok() ? "" : done.error().message);
    if (!done.ok()) return false;
    bool equal = true;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Array& array = arrays_[i];
      if (!array.compared || array.back == array.host) continue;
      if (array.sums && !array.repeats && is_close(array)) continue;
      size_t at = 0, wrong = 0;
      for (size_t b = array.host.size(); b-- > 0;) {
        if (array.back[b] != array.host[b]) at = b, ++wrong;
      }
      ADD_FAILURE() << tested_.name() << ": " << what << ": array " << i << ": " << wrong << " of " << array.host.size()
                    << " bytes differ, the first at " << at;
      equal = false;
    }
    return equal;
  }

  Device& tested_;
  std::unique_ptr<Device> host_;
  std::vector<Array> arrays_;
};

}  // namespace deepinfer
