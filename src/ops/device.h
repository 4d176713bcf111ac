// ops/device.h - where operations run: memory, order, and the table of operations.
//
// A Device owns memory and one in-order Stream. Host code never dereferences device memory; it uploads, downloads and
// enqueues. On `cpu` every call has finished when it returns; on `delayed` (tests) and on CUDA it runs later, in order,
// so host memory handed to upload()/download() must stay untouched until a later wait() returned.
// Promise: calls on one device run in the order they were made. Errors of a kernel surface at the next wait().
// Threads: one thread at a time per device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "ops/ops.h"

namespace deepinfer {

class Device;

// Owned device memory, 128-byte aligned, zeroed when allocated. Freed with the object; the device must outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  template <class T>
  T* as(size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<uint8_t*>(data_) + byte_offset);
  }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// What a device keeps of repeated work (Device::replay).
class Recording {
 public:
  virtual ~Recording() = default;
};

// Rates a second that the time of products is counted against; 0 = it is not.
struct ProductLimits {
  double bytes = 0, flops = 0, fp4_flops = 0;
};

// What a device has done so far, where it counts: zeros elsewhere.
struct WorkCounts {
  int64_t weight_bytes = 0;  // of weights read by products, each once a product; of routed experts those that were chosen
  // Of these products, with FP4 weights apart: units differ.
  int64_t multiply_adds = 0, fp4_multiply_adds = 0;
  // Of each the longer of reading and multiplying at ProductLimits, since they were set.
  double product_seconds = 0;
  int64_t barriers = 0;  // times that threads shared a piece of work and waited for each other
  // Uses of experts that memory is too short to hold all of; of these, experts and bytes that were not there.
  int64_t expert_uses = 0, expert_misses = 0, missed_bytes = 0;
  // The weights of such experts, and how many of them there is room for: state, no counts.
  int64_t expert_places = 0, expert_slots = 0;
};

// Kernels of one class agree bit for bit, and only they share pages and answers: products on a GPU's tensor cores ("sm90") and on
// a processor's tiles ("amx") are classes of their own, all other kernels "portable".
inline std::string numerics_class(const std::string& isa) { return isa.starts_with("sm") || isa == "amx" ? isa : "portable"; }

// A point in the device's order of work; 0 = nothing.
using Ticket = uint64_t;

class Device {
 public:
  virtual ~Device() = default;

  // "cpu", "delayed", "cuda:0".
  virtual std::string name() const = 0;
  // Which kernels run, for tables and the fingerprint: "portable", "avx2", "amx", "sm90".
  virtual std::string isa() const = 0;
  // How many scratch rows an operation with `scratch_rows` needs here (threads of a CPU device).
  virtual int32_t parallelism() const = 0;

  virtual Result<Buffer> allocate(size_t bytes) = 0;
  // Memory of the host that the host fills and operations read: for tables of which a step needs a few rows, larger than a
  // device's own memory. REQUIRES: nobody writes it while an operation that reads it may run.
  virtual Result<Buffer> allocate_on_host(size_t bytes) { return allocate(bytes); }
  virtual void upload(void* device_dst, const void* host_src, size_t bytes) = 0;
  virtual void download(void* host_dst, const void* device_src, size_t bytes) = 0;
  virtual void copy(void* device_dst, const void* device_src, size_t bytes) = 0;
  virtual void fill_zero(void* device_dst, size_t bytes) = 0;

  // Gives each weight its `panels`, the order this device's kernels read fastest; the buffer holds them. Weights without
  // panels work, too (slower). A device that reads weights as stored changes nothing. Where memory is too short for both orders
  // at once, `let_go` is called with each FP4 weight (experts: most of a checkpoint) whose codes nobody reads any more. Where it
  // is too short for one, FP4 weights get a `place` instead: the buffer holds those that are used most, the others are read
  // where they lie in `files` or in their mapping; these outlive the buffer.
  using LetGo = std::function<void(const Matrix&)>;
  virtual Result<Buffer> pack(std::span<Matrix* const> weights, const LetGo& let_go = {},
                              std::span<const MappedFile* const> files = {}) {
    (void)weights, (void)let_go, (void)files;
    return Buffer();
  }

  // The experts that coming products will take, as grouped_matmul has them: what is not in memory is asked for now. Of no effect
  // on any value.
  virtual void will_multiply(std::span<const Matrix> experts, const int32_t* offsets) { (void)experts, (void)offsets; }

  // Any thread.
  virtual WorkCounts counts() const { return {}; }
  // REQUIRES: no operation runs.
  virtual void set_limits(const ProductLimits& limits) { (void)limits; }

  // Whether the host goes on while this device computes; if not, a call that enqueues has computed when it returns.
  virtual bool runs_beside_host() const { return true; }

  // Whether operations may be given host memory, as the mapped checkpoint is. If not, weights are uploaded first.
  virtual bool reads_host_memory() const { return true; }

  // The operations; each call enqueues one.
  virtual const OpTable& ops() const = 0;
  // Calls `fn`, which enqueues operations and copies on this device and nothing else (no upload, download, host_call). A
  // device may keep in `slot` what was enqueued and repeat that the next time instead: so with one slot all parameters are
  // always the same. What changes from time to time lies in device memory, as row counts do. The device outlives the slot.
  virtual void replay(std::unique_ptr<Recording>& slot, FunctionRef<void()> fn) {
    (void)slot;
    fn();
  }
  // Calls `fn`, whose operations may run beside those enqueued after it until meet(), and after those before it. What they write
  // is read behind meet() only. One aside at a time.
  virtual void aside(FunctionRef<void()> fn) { fn(); }
  virtual void meet() {}
  // Runs `fn` on the host in stream order (communicators use it; `fn` may touch memory only through pointers it was
  // given by translate()).
  virtual void host_call(std::function<void()> fn) = 0;
  // The address under which host_call bodies and communicators see device memory.
  virtual void* translate(void* device_pointer) const { return device_pointer; }

  // Marks the current end of the queued work.
  virtual Ticket record() = 0;
  // Blocks until everything up to the ticket has run; reports the first failure since the last wait.
  virtual Status wait(Ticket ticket) = 0;

 protected:
  friend class Buffer;
  virtual void release(void* data, size_t bytes) = 0;
};

inline Buffer::~Buffer() {
  if (device_ && data_) device_->release(data_, bytes_);
}

}  // namespace deepinfer
