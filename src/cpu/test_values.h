// cpu/test_values.h - random inputs and the list of devices for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cpu/context.h"
#include "cpu/room.h"
#include "ops/portable/bodies.h"

namespace deepinfer {

// A stream of reproducible numbers.
class Random {
 public:
  explicit Random(uint32_t seed) : seed_(seed) {}
  uint32_t word() { return philox({{count_++, 0, 0, 7}}, {seed_, 1}).word[0]; }
  int below(int n) { return static_cast<int>(word() % static_cast<uint32_t>(n)); }
  int between(int a, int b) { return a + below(b - a + 1); }
  float value() { return (uniform_of(word()) - 0.5f) * 4.0f * std::exp2(static_cast<float>(below(9) - 4)); }
  std::vector<Bf16> bf16(int64_t n) {
    std::vector<Bf16> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(to_bf16(value()));
    return out;
  }
  std::vector<float> f32(int64_t n) {
    std::vector<float> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(value());
    return out;
  }
  // e4m3 codes without NaN.
  std::vector<uint8_t> e4m3(int64_t n) {
    std::vector<uint8_t> out;
    for (int64_t i = 0; i < n; ++i) {
      const auto code = static_cast<uint8_t>(word());
      out.push_back((code & 0x7F) == 0x7F ? uint8_t{0} : code);
    }
    return out;
  }
  std::vector<uint8_t> bytes(int64_t n) {
    std::vector<uint8_t> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<uint8_t>(word()));
    return out;
  }
  std::vector<uint8_t> e8m0(int64_t n) {
    std::vector<uint8_t> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<uint8_t>(117 + below(20)));
    return out;
  }

 private:
  uint32_t seed_, count_ = 0;
};

struct Weight {
  std::vector<uint8_t> data, scales;
  Matrix matrix{};
};

inline Weight random_weight(Random& random, WeightFormat format, int n, int k) {
  Weight w;
  if (format == WeightFormat::kBf16) {
    const auto values = random.bf16(int64_t{n} * k);
    w.data.resize(values.size() * 2);
    std::memcpy(w.data.data(), values.data(), w.data.size());
  } else if (format == WeightFormat::kF8Tile) {
    w.data = random.e4m3(int64_t{n} * k);
    w.scales = random.e8m0(int64_t{(n + 31) / 32} * (k / 32));
  } else {
    w.data = random.bytes(int64_t{n} * k / 2);
    w.scales = random.e8m0(int64_t{n} * (k / 32));
  }
  w.matrix = {format, w.data.data(), w.scales.data(), n, k};
  return w;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

namespace cpu {
extern const Kernels kEmulatedTileKernels, kEmulatedAmxKernels;  // emulated_tiles_test.cc
extern int64_t emulated_products;                                // instructions, of all threads
}  // namespace cpu

// Every supported kernel set of class portable with 1, 2 and 4 threads, and the one with tiles where they must be emulated.
inline std::vector<std::unique_ptr<Device>> all_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  for (const auto& kernels : list_cpu_kernels()) {
    for (const int threads : {1, 2, 4}) {
      if (!kernels.supported || kernels.own_class) continue;
      CpuOptions options;
      options.threads = threads, options.isa = kernels.isa;
      auto device = make_cpu_device(std::move(options));
      EXPECT_TRUE(device.ok());
      if (device) devices.push_back(*std::move(device));
    }
  }
  if (cpu::kEmulatedTileKernels.supported() && !cpu::kAvx512AmxKernels.supported()) {
    CpuOptions options;
    options.threads = 2;
    devices.push_back(cpu::make_device_of(std::move(options), cpu::kEmulatedTileKernels));
  }
  return devices;
}

inline std::string describe(const Device& device) {
  return device.isa() + " with " + std::to_string(device.parallelism()) + " threads";
}

}  // namespace deepinfer
