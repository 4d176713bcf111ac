// host/open_device.h - the device a setting names: "cpu", "cuda" or "cuda:N". Behind "cpu", ":avx2" or its like asks for that set
// of kernels and no other; behind a GPU ":portable" asks for the CPU's numerics class, ":eager" for steps that are not recorded
// (for sanitizers, and to compare with).
//
//   DI_TRY(auto device, open_device("cuda:0", settings.threads));
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "ops/device.h"

namespace deepinfer {

// The set of kernels "cpu:NAME" asks for; "" = the best this machine has, or no CPU device.
std::string cpu_kernels_of(const std::string& name);

// `threads` are a CPU device's, 0 = all processors; `expert_bytes`, too (CpuOptions).
Result<std::unique_ptr<Device>> open_device(const std::string& name, int threads, int64_t expert_bytes = 0);

}  // namespace deepinfer
