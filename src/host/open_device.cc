#include "host/open_device.h"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "cpu/cpu_device.h"
#include "cuda/cuda_device.h"
#include "host/ring_reads.h"

namespace deepinfer {

std::string cpu_kernels_of(const std::string& name) { return name.starts_with("cpu:") ? name.substr(4) : ""; }

Result<std::unique_ptr<Device>> open_device(const std::string& name, int threads, int64_t expert_bytes) {
  constexpr std::string_view kCuda = "cuda";
  if (name == "cpu" || name.starts_with("cpu:"))
    return make_cpu_device(
        {.threads = threads, .isa = cpu_kernels_of(name), .expert_bytes = expert_bytes, .disk = open_ring_reads()});
  if (name == kCuda) return make_cuda_device({.index = 0});
  std::string_view number = name.starts_with("cuda:") ? std::string_view(name).substr(kCuda.size() + 1) : std::string_view();
  const auto takes = [&number](std::string_view word) {
    const bool there = number.ends_with(word);
    if (there) number.remove_suffix(word.size());
    return there;
  };
  const bool eager = takes(":eager"), portable = takes(":portable");
  int index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (number.empty() || error != std::errc() || end != number.data() + number.size() || index < 0) {
    return invalid_argument(
        fmt::format("--device is cpu, cpu:KERNELS, cuda:N or cuda:N:portable (the first GPU is cuda:0), not '{}'", name));
  }
  return make_cuda_device({.index = index, .graphs = !eager, .portable = portable});
}

}  // namespace deepinfer
