#include "cpu/delayed_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

// Addresses are handed out once, so the reservation is large; it costs nothing. The hint keeps it away from other
// mappings and gives its words a look that counts and floats do not have.
// Padding of a struct can hold the stale upper half of such an address beside a live number, so only addresses whose lower
// half would be a large negative number are used: counts, sizes and scales are not.
constexpr size_t kReservedBytes = size_t{1} << 38, kLeastReservedBytes = size_t{1} << 34;
constexpr uintptr_t kUsedBegin = 0x80000000, kUsedEnd = 0xFFFF0000;  // of each 4 GB
constexpr uintptr_t kReservedHint = 0x35B200000000;
constexpr size_t kPage = 4096;

// The window of fake addresses and the real memory behind each allocation.
class Reservation {
 public:
  Reservation() {
    // Some kernels and sanitizers grant less; a test needs a few gigabytes.
    for (size_t bytes = kReservedBytes; !begin_ && bytes >= kLeastReservedBytes; bytes /= 2) {
      void* at =
          ::mmap(reinterpret_cast<void*>(kReservedHint), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at == MAP_FAILED) continue;
      begin_ = reinterpret_cast<uintptr_t>(at);
      end_ = begin_ + bytes;
    }
    next_ = begin_ / kWindow * kWindow + kWindow + kUsedBegin;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (begin_) ::munmap(reinterpret_cast<void*>(begin_), end_ - begin_);
  }

  size_t bytes() const { return end_ - begin_; }

  bool holds(uintptr_t address) const { return address >= begin_ && address < end_ && in_used_part(address); }

  void* add(Buffer real) {
    const std::lock_guard lock(mutex_);
    // One page of nobody's between neighbours.
    const size_t span = (real.bytes() + kPage - 1) / kPage * kPage + kPage;
    if (!begin_ || span > kUsedEnd - kUsedBegin) return nullptr;
    if (next_ % kWindow + span > kUsedEnd) next_ = (next_ / kWindow + 1) * kWindow + kUsedBegin;
    if (next_ + span > end_) return nullptr;
    const uintptr_t at = next_;
    next_ += span;
    live_.emplace(at, std::move(real));
    return reinterpret_cast<void*>(at);
  }

  void remove(void* fake) {
    const std::lock_guard lock(mutex_);
    live_.erase(reinterpret_cast<uintptr_t>(fake));
  }

  // The real address; null for a fake address that is not (or no longer) part of an allocation. Ordinary addresses pass.
  void* real(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    if (!holds(address)) return const_cast<void*>(pointer);
    const std::lock_guard lock(mutex_);
    auto next = live_.upper_bound(address);
    if (next == live_.begin()) return nullptr;
    const auto& [at, buffer] = *--next;
    // One past the end is allowed: an empty span may point there.
    return address - at <= buffer.bytes() ? buffer.as<uint8_t>(address - at) : nullptr;
  }

 private:
  static constexpr uintptr_t kWindow = uintptr_t{1} << 32;
  static bool in_used_part(uintptr_t address) {
    const uintptr_t low = address % kWindow;
    return low >= kUsedBegin && low < kUsedEnd;
  }

  uintptr_t begin_ = 0, end_ = 0, next_ = 0;
  mutable std::mutex mutex_;
  std::map<uintptr_t, Buffer> live_;
};

// What a walk enqueued: each operation with a sum over the device addresses it was given.
struct WalkStep {
  const char* name;
  uint64_t addresses;
  bool operator==(const WalkStep&) const = default;
};
struct RecordedWalk final : Recording {
  std::vector<WalkStep> steps;
};

class DelayedDevice final : public Device {
 public:
  explicit DelayedDevice(std::unique_ptr<Device> cpu) : cpu_(std::move(cpu)) {
    ops_.context = this;
#define DI_OP(name, Params) \
  ops_.name##_fn = [](void* self, const Params& p) { static_cast<DelayedDevice*>(self)->enqueue_op(&OpTable::name, #name, p); };
#include "ops/op_list.inc"
#undef DI_OP
    worker_ = std::thread([this] { work(); });
  }
  ~DelayedDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  std::string name() const override { return "delayed"; }
  std::string isa() const override { return cpu_->isa(); }
  int32_t parallelism() const override { return cpu_->parallelism(); }
  // Weights are where the host sees them, as the mapped checkpoint is.
  Result<Buffer> pack(std::span<Matrix* const> weights, const LetGo& let_go, std::span<const MappedFile* const> files) override {
    return cpu_->pack(weights, let_go, files);
  }

  Result<Buffer> allocate(size_t bytes) override {
    if (bytes == 0) return Buffer();
    DI_TRY(Buffer real, cpu_->allocate(bytes));
    void* fake = reservation_.add(std::move(real));
    if (!fake) {
      return exhausted(
          fmt::format("delayed: no address left for {} bytes: {} GB were reserved, half of them are handed out, each "
                      "address once",
                      bytes, reservation_.bytes() >> 30));
    }
    return Buffer(this, fake, bytes);
  }

  void upload(void* to, const void* from, size_t bytes) override { enqueue_copy("upload", to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { enqueue_copy("download", to, from, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { enqueue_copy("copy", to, from, bytes); }
  void fill_zero(void* to, size_t bytes) override {
    enqueue([=, this] {
      if (void* real = find("fill_zero", to)) cpu_->fill_zero(real, bytes);
    });
  }

  const OpTable& ops() const override { return ops_; }
  // Repeats nothing, but holds every walk to what a device that does would run: the first one's operations and addresses.
  void replay(std::unique_ptr<Recording>& slot, FunctionRef<void()> fn) override {
    auto walk = std::make_unique<RecordedWalk>();
    walk_ = &walk->steps;
    fn();
    walk_ = nullptr;
    if (!slot) return void(slot = std::move(walk));
    check_same(static_cast<const RecordedWalk&>(*slot).steps, walk->steps);
  }
  void host_call(std::function<void()> fn) override { enqueue(std::move(fn)); }
  void* translate(void* pointer) const override { return reservation_.real(pointer); }

  Ticket record() override {
    const std::lock_guard lock(mutex_);
    released_ = enqueued_;
    changed_.notify_all();
    return released_;
  }

  Status wait(Ticket ticket) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
    return std::exchange(failure_, {});
  }

 protected:
  // Freed in stream order, as work queued before may still use it.
  void release(void* data, size_t) override {
    enqueue([this, data] { reservation_.remove(data); });
  }

 private:
  void note(const char* name, const void* params, size_t bytes) {
    if (!walk_) return;
    WalkStep step{name, 0};
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, static_cast<const uint8_t*>(params) + at, sizeof word);
      if (reservation_.holds(word)) step.addresses = step.addresses * 31 + word;
    }
    walk_->push_back(step);
  }

  void check_same(const std::vector<WalkStep>& first, const std::vector<WalkStep>& now) {
    size_t i = 0;
    while (i < first.size() && i < now.size() && first[i] == now[i]) ++i;
    if (i == first.size() && i == now.size()) return;
    const auto named = [&](const std::vector<WalkStep>& steps) { return i < steps.size() ? steps[i].name : "nothing"; };
    const std::lock_guard lock(mutex_);
    if (failure_)
      failure_ = internal_error(fmt::format(
          "delayed: a repeated walk differs from the first one at operation {}: {} instead of {}", i, named(now), named(first)));
  }

  void enqueue(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
    ++enqueued_;
  }

  void enqueue_copy(const char* what, void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    const void* const ends[] = {to, from};
    note(what, ends, sizeof ends);
    enqueue([=, this] {
      void* real_to = find(what, to);
      const void* real_from = find(what, from);
      if (real_to && real_from) cpu_->copy(real_to, real_from, bytes);
    });
  }

  template <class Params>
  void enqueue_op(void (OpTable::*op)(const Params&) const, const char* name, const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
    note(name, &params, sizeof params);
    if constexpr (std::is_same_v<Params, GroupedMatmulParams>) {
      // The table of weights is host memory of the caller; its entries may point to device memory.
      std::vector<Matrix> weights(params.weights, params.weights + params.num_experts);
      enqueue([this, op, name, p = params, weights = std::move(weights)]() mutable {
        for (Matrix& w : weights) {
          if (!translate_words(name, w)) return;
        }
        if (!translate_words(name, p)) return;
        p.weights = weights.data();
        (cpu_->ops().*op)(p);
      });
    } else {
      enqueue([this, op, name, p = params]() mutable {
        if (translate_words(name, p)) (cpu_->ops().*op)(p);
      });
    }
  }

  // Replaces every fake address in a struct of pointers and numbers.
  template <class Params>
  bool translate_words(const char* name, Params& params) {
    auto* bytes = reinterpret_cast<uint8_t*>(&params);
    for (size_t at = 0; at + sizeof(uintptr_t) <= sizeof params; at += sizeof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, bytes + at, sizeof word);
      if (!reservation_.holds(word)) continue;
      void* real = find(name, reinterpret_cast<void*>(word));
      if (!real) return false;
      std::memcpy(bytes + at, &real, sizeof real);
    }
    return true;
  }

  // The real address, or null after noting the failure for the next wait().
  void* find(const char* what, const void* pointer) {
    void* real = reservation_.real(pointer);
    if (real) return real;
    const std::lock_guard lock(mutex_);
    if (failure_)
      failure_ = internal_error(
          fmt::format("delayed: {} uses device address {} that is not allocated (freed too early?)", what, pointer));
    return nullptr;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || done_ < released_; });
      if (done_ >= released_) return;
      const auto task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      Status done = cpu_->wait(cpu_->record());
      lock.lock();
      if (failure_) failure_ = std::move(done);
      ++done_;
      changed_.notify_all();
    }
  }

  std::unique_ptr<Device> cpu_;
  OpTable ops_;
  Reservation reservation_;
  std::thread worker_;
  std::vector<WalkStep>* walk_ = nullptr;  // of the walk at hand; the enqueuing thread's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  Ticket enqueued_ = 0, released_ = 0, done_ = 0;
  bool stop_ = false;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_delayed_device(CpuOptions options) {
  DI_TRY(auto cpu, make_cpu_device(std::move(options)));
  return std::unique_ptr<Device>(std::make_unique<DelayedDevice>(std::move(cpu)));
}

}  // namespace deepinfer
