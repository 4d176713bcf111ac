// tests/conformance.h - the devices that conformance tests run on: `delayed` always, beside a GPU `cuda`, `portable` (its class
// of the CPU's bits) and `eager`, which records nothing (a race checker does not follow recorded work).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu/delayed_device.h"
#include "cuda/cuda_device.h"
#include "tests/twin.h"

namespace deepinfer {

class Conformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    auto device = name == "delayed" ? make_delayed_device({.threads = 2})
                                    : make_cuda_device({.graphs = name != "eager", .portable = name == "portable"});
    // A machine without a GPU leaves these out; a GPU that does not open is a failure.
    if (!device.ok() && name != "delayed" && !describe_cuda_device(0).ok()) GTEST_SKIP() << device.error().message;
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = *std::move(device);
  }
  Device& device() { return *device_; }
  // Whether products add in an order of their own.
  bool tensor_cores() const { return device_->isa().starts_with("sm"); }

  Random random{11};

 private:
  std::unique_ptr<Device> device_;
};

inline std::vector<int32_t> below(Random& random, int64_t count, int limit) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(random.below(limit));
  return out;
}

// Rows of a decode step, a step that fills no tile, one that fills several.
inline constexpr int kRowCounts[] = {1, 3, 8, 37};

}  // namespace deepinfer
