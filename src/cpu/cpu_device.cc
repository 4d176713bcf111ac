#include "cpu/cpu_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/machine.h"
#include "cpu/context.h"

namespace deepinfer {
namespace {

// Best first. A new instruction set is one file and one line here.
constexpr const cpu::Kernels* kKernelSets[] = {&cpu::kAvx512VnniKernels, &cpu::kAvx512Kernels, &cpu::kAvx2Kernels,
                                               &cpu::kPortableKernels};

constexpr int64_t kHugePage = int64_t{2} << 20;
int64_t line_rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
size_t page_rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, const cpu::Kernels& kernels) : context_(threads, kernels) { cpu::fill_table(context_, ops_); }

  std::string name() const override { return "cpu"; }
  std::string isa() const override { return context_.kernels.isa; }

  int32_t parallelism() const override { return context_.threads; }
  bool runs_beside_host() const override { return false; }

  // Pages come zeroed and are touched first by whoever uses them, so a large pool costs nothing until it is used.
  Result<Buffer> allocate(size_t bytes) override {
    if (bytes == 0) return Buffer();
    void* data = ::mmap(nullptr, page_rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return exhausted(fmt::format("cpu: no memory for {} bytes; use a smaller cache or model", bytes));
    return Buffer(this, data, bytes);
  }
  void upload(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void fill_zero(void* to, size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }

  // One allocation for all; each panel is packed by one thread.
  Result<Buffer> pack(std::span<Matrix* const> weights, const LetGo& let_go) override {
    if (!context_.kernels.pack_panel) return Buffer();
    int64_t bytes = 0, experts = 0;
    for (const Matrix* w : weights) {
      bytes += line_rounded(cpu::packed_bytes(*w));
      if (w->format == WeightFormat::kFp4) experts += cpu::packed_bytes(*w);
    }
    const int64_t room_left = available_memory() / 4 * 3;  // pages of mapped files count as available: nobody reads them again
    const bool lets_go = bytes > room_left / 2 && let_go;
    if ((lets_go ? bytes - experts : bytes) > room_left) return Buffer();
    DI_TRY(Buffer room, allocate(static_cast<size_t>(bytes)));
    if (bytes > kHugePage) ::madvise(room.as<void>(), room.bytes(), MADV_HUGEPAGE);
    int64_t at = 0;
    for (Matrix* w : weights) {
      auto* panels = room.as<uint8_t>(static_cast<size_t>(at));
      const int64_t step = cpu::panel_bytes(*w);
      context_.pool.run((w->n + cpu::kPanel - 1) / cpu::kPanel,
                        [&](int64_t begin, int64_t end, int) {
                          for (int64_t i = begin; i < end; ++i)
                            context_.kernels.pack_panel(*w, i * cpu::kPanel, panels + i * step);
                        },
                        1 + 16384 / step);
      w->panels = panels;
      at += line_rounded(cpu::packed_bytes(*w));
      if (lets_go && w->format == WeightFormat::kFp4) let_go(*w);
    }
    return room;
  }

  const OpTable& ops() const override { return ops_; }
  void host_call(std::function<void()> fn) override { fn(); }
  Ticket record() override { return ++tickets_; }
  Status wait(Ticket) override { return {}; }

 protected:
  void release(void* data, size_t bytes) override { ::munmap(data, page_rounded(bytes)); }

 private:
  cpu::Context context_;
  OpTable ops_;
  Ticket tickets_ = 0;
};

std::string known_names() {
  std::string names;
  for (const auto* kernels : kKernelSets) names += (names.empty() ? "" : ", ") + std::string(kernels->isa);
  return names;
}

}  // namespace

std::vector<CpuKernelsInfo> list_cpu_kernels() {
  std::vector<CpuKernelsInfo> list;
  for (const auto* kernels : kKernelSets) list.push_back({kernels->isa, kernels->supported(), kernels->needs});
  return list;
}

double measure_multiply_adds(const std::string& isa, int threads, WeightFormat format) {
  constexpr int64_t kWork = 4000000000;  // long enough that waking the threads does not count
  for (const auto* kernels : kKernelSets) {
    if (isa != kernels->isa || !kernels->supported()) continue;
    ThreadPool pool(threads);
    double best = 0;
    for (const auto unit : {kernels->multiply_adds, format == WeightFormat::kFp4 ? kernels->multiply_digits : nullptr}) {
      if (!unit) continue;
      const int64_t steps = kWork / unit(1);
      for (int repeat = 0; repeat < 5; ++repeat) {
        std::atomic<int64_t> done = 0;
        const auto begin = std::chrono::steady_clock::now();
        pool.run(pool.size(), [&](int64_t, int64_t, int) { done += unit(steps); });
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        best = std::max(best, static_cast<double>(done.load()) / took.count());
      }
    }
    return best;
  }
  return 0;
}

Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options) {
  for (const auto* kernels : kKernelSets) {
    if (!options.isa.empty() && options.isa != kernels->isa) continue;
    if (kernels->supported()) return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options.threads, *kernels));
    if (!options.isa.empty()) {
      return unsupported(fmt::format("cpu: this machine cannot run the kernels '{}', they need {}", options.isa, kernels->needs));
    }
  }
  return invalid_argument(fmt::format("cpu: unknown kernels '{}'; known are {}", options.isa, known_names()));
}

}  // namespace deepinfer
