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

// Best first, classes of their own last. A new instruction set is one file and one line here.
constexpr const cpu::Kernels* kKernelSets[] = {&cpu::kAvx512AmxKernels, &cpu::kAvx512GfniKernels, &cpu::kAvx512VnniKernels,
                                               &cpu::kAvx512Kernels,    &cpu::kAvx2Kernels,       &cpu::kPortableKernels,
                                               &cpu::kAmxKernels};

constexpr int64_t kHugePage = int64_t{2} << 20;
// Of experts, before a product takes them: what six rows choose of the release's experts (100 MB each of three products).
constexpr int64_t kAskedAhead = int64_t{256} << 20;
// Of experts read and not multiplied yet: a layer of one row, at the release's sizes.
constexpr int64_t kMostStaged = int64_t{128} << 20;
int64_t line_rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
size_t page_rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class CpuDevice final : public Device {
 public:
  CpuDevice(CpuOptions options, const cpu::Kernels& kernels)
      : disk_(std::move(options.disk)),
        context_(options.threads, kernels),
        expert_bytes_(options.expert_bytes),
        file_pages_(options.file_pages) {
    cpu::fill_table(context_, ops_);
  }

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
  Result<Buffer> pack(std::span<Matrix* const> weights, const LetGo& let_go, std::span<const MappedFile* const> files) override {
    if (!context_.kernels.pack_panel) return Buffer();
    const Sizes sizes = sizes_of(weights);
    const int64_t available = available_memory();
    const int64_t room_left = available / 4 * 3;  // pages of mapped files count as available: nobody reads them again
    const bool lets_go = sizes.all() > room_left / 2 && let_go;
    const bool fits = (lets_go ? sizes.dense : sizes.all()) <= room_left;
    // Experts of one model at a time have places.
    const bool keeps_some = (expert_bytes_ > 0 || !fits) && sizes.experts > 0 && !context_.experts.room();
    if (sizes.dense > room_left || (!fits && !keeps_some)) return Buffer();
    const int64_t wanted = expert_bytes_ > 0 ? std::min(expert_bytes_, available - sizes.dense) : room_left - sizes.dense;
    const int64_t slots = keeps_some ? std::clamp<int64_t>(wanted / sizes.slot, 1, sizes.experts) : 0;
    DI_TRY(Buffer room, allocate(static_cast<size_t>(keeps_some ? sizes.dense + slots * sizes.slot : sizes.all())));
    if (room.bytes() > kHugePage) ::madvise(room.as<void>(), room.bytes(), MADV_HUGEPAGE);
    int64_t at = 0;
    int32_t places = 0;
    for (Matrix* w : weights) {
      if (keeps_some && w->format == WeightFormat::kFp4) {
        w->place = places++;
        continue;
      }
      auto* panels = room.as<uint8_t>(static_cast<size_t>(at));
      cpu::pack_weight(context_, *w, panels);
      w->panels = panels;
      at += line_rounded(cpu::packed_bytes(*w));
      if (lets_go && w->format == WeightFormat::kFp4) let_go(*w);
    }
    if (keeps_some) {
      context_.experts.open(room.as<uint8_t>(static_cast<size_t>(at)), sizes.slot, slots, places);
      touch(room.as<uint8_t>(static_cast<size_t>(at)), slots * sizes.slot);
      DI_TRY(context_.reader, open_reader(weights, files, (sizes.experts - slots) * sizes.slot, slots * sizes.slot / 8));
    }
    return room;
  }

  // Not more than the system will still have when it is used.
  void will_multiply(std::span<const Matrix> experts, const int32_t* offsets) override {
    if (!context_.experts.room()) return;
    if (context_.reader) {
      for (size_t e = 0; e < experts.size(); ++e) {
        if (offsets[e + 1] == offsets[e] || experts[e].place < 0 || context_.experts.holds(experts[e].place)) continue;
        context_.reader->want(experts[e]);
      }
      return context_.reader->advance();
    }
    int64_t left = kAskedAhead;
    for (size_t e = 0; e < experts.size() && left > 0; ++e) {
      if (offsets[e + 1] == offsets[e] || experts[e].place < 0 || context_.experts.holds(experts[e].place)) continue;
      cpu::ask_for(experts[e]);
      left -= cpu::packed_bytes(experts[e]);
    }
  }

  WorkCounts counts() const override {
    return {.weight_bytes = context_.weight_bytes.get(),
            .multiply_adds = context_.multiply_adds.get(),
            .fp4_multiply_adds = context_.fp4_multiply_adds.get(),
            .product_seconds = 1e-12 * static_cast<double>(context_.product_ps.get()),
            .barriers = context_.pool.shared_calls(),
            .expert_uses = context_.expert_uses.get(),
            .expert_misses = context_.expert_misses.get(),
            .missed_bytes = context_.missed_bytes.get(),
            .expert_places = context_.experts.places(),
            .expert_slots = context_.experts.slots()};
  }
  void set_limits(const ProductLimits& limits) override { context_.limits = limits; }

  const OpTable& ops() const override { return ops_; }
  void host_call(std::function<void()> fn) override { fn(); }
  Ticket record() override { return ++tickets_; }
  Status wait(Ticket) override { return std::exchange(context_.failure, {}); }

 protected:
  void release(void* data, size_t bytes) override {
    const auto* begin = static_cast<const uint8_t*>(data);
    if (context_.experts.room() >= begin && context_.experts.room() < begin + bytes) {
      context_.reader.reset();
      context_.experts = {};
    }
    ::munmap(data, page_rounded(bytes));
  }

 private:
  // Of packed weights: all but routed experts, these in number, and the largest.
  struct Sizes {
    int64_t dense = 0, fp4 = 0, experts = 0, slot = 0;
    int64_t all() const { return dense + fp4; }
  };
  static Sizes sizes_of(std::span<Matrix* const> weights) {
    Sizes out;
    for (const Matrix* w : weights) {
      const int64_t bytes = line_rounded(cpu::packed_bytes(*w));
      if (w->format != WeightFormat::kFp4) {
        out.dense += bytes;
        continue;
      }
      out.fp4 += bytes;
      ++out.experts;
      out.slot = std::max(out.slot, bytes);
    }
    return out;
  }

  // So that no step meets this memory for the first time, and what is left is known.
  void touch(uint8_t* room, int64_t bytes) {
    constexpr int64_t kPage = 4096;
    context_.pool.run((bytes + kPage - 1) / kPage, [&](int64_t begin, int64_t end, int) {
      for (int64_t page = begin; page < end; ++page) room[page * kPage] = 0;
    });
  }
  // The page cache is the quickest place for `rest` bytes if it can hold them, in four fifths of what is left: workspace, pages
  // of KV and snapshots come later and want room, too.
  Result<std::unique_ptr<cpu::ExpertReader>> open_reader(std::span<Matrix* const> weights,
                                                         std::span<const MappedFile* const> files, int64_t rest, int64_t bytes) {
    const int64_t pages = file_pages_ >= 0 ? file_pages_ : available_memory();
    if (!disk_ || rest <= pages / 5 * 4) return std::unique_ptr<cpu::ExpertReader>();
    return cpu::ExpertReader::open(*disk_, weights, files, std::min(bytes, kMostStaged));
  }

  std::unique_ptr<DiskReads> disk_;
  cpu::Context context_;
  int64_t expert_bytes_, file_pages_;
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
  for (const auto* kernels : kKernelSets)
    list.push_back({kernels->isa, kernels->supported(), kernels->needs, kernels->own_class});
  return list;
}

namespace {

// The best of units; null ones are left out.
double multiply_adds_of(int threads, int repeats, std::initializer_list<int64_t (*)(int64_t)> units) {
  constexpr int64_t kWork = 4000000000;  // long enough that waking the threads does not count
  ThreadPool pool(threads);
  double best = 0;
  for (const auto unit : units) {
    if (!unit) continue;
    const int64_t steps = kWork / unit(1);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      std::atomic<int64_t> done = 0;
      const auto begin = std::chrono::steady_clock::now();
      pool.run(pool.size(), [&](int64_t, int64_t, int) { done += unit(steps); });
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::max(best, static_cast<double>(done.load()) / took.count());
    }
  }
  return best;
}

const cpu::Kernels* supported_kernels(const std::string& isa) {
  for (const auto* kernels : kKernelSets) {
    if (isa == kernels->isa && kernels->supported()) return kernels;
  }
  return nullptr;
}

}  // namespace

double measure_multiply_adds(const std::string& isa, int threads, WeightFormat format, int repeats) {
  const cpu::Kernels* kernels = supported_kernels(isa);
  if (!kernels) return 0;
  const bool special = format == WeightFormat::kFp4 || kernels->own_class;
  return multiply_adds_of(threads, repeats, {kernels->multiply_adds, special ? kernels->multiply_fp4 : nullptr});
}

double measure_multiply_scores(const std::string& isa, int threads) {
  const cpu::Kernels* kernels = supported_kernels(isa);
  return kernels ? multiply_adds_of(threads, 5, {kernels->multiply_adds, kernels->multiply_bytes}) : 0;
}

std::unique_ptr<Device> cpu::make_device_of(CpuOptions options, const Kernels& kernels) {
  return std::make_unique<CpuDevice>(std::move(options), kernels);
}

Result<std::unique_ptr<Device>> make_cpu_device(CpuOptions options) {
  for (const auto* kernels : kKernelSets) {
    if (options.isa.empty() ? kernels->own_class : options.isa != kernels->isa) continue;
    if (kernels->supported()) return cpu::make_device_of(std::move(options), *kernels);
    if (!options.isa.empty()) {
      return unsupported(fmt::format("cpu: this machine cannot run the kernels '{}', they need {}", options.isa, kernels->needs));
    }
  }
  return invalid_argument(fmt::format("cpu: unknown kernels '{}'; known are {}", options.isa, known_names()));
}

}  // namespace deepinfer
