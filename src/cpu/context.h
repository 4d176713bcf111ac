// cpu/context.h - what the operations of one CPU device share: threads, kernels, scratch, experts in memory, counts.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/cpu_device.h"
#include "cpu/expert_memory.h"
#include "cpu/expert_reader.h"
#include "cpu/kernels.h"
#include "ops/device.h"

namespace deepinfer::cpu {

struct AlignedFree {
  std::align_val_t alignment{128};
  void operator()(float* data) const { ::operator delete(data, alignment); }
};

// Aligned floats that grow and never shrink, on huge pages when there are many; contents are lost on growth.
class Scratch {
 public:
  float* get(int64_t floats) {
    if (floats > size_) {
      size_ = padded(floats + floats / 4);
      const size_t bytes = static_cast<size_t>(size_) * sizeof(float);
      const bool big = bytes >= kHugePage / 2;
      const AlignedFree free{std::align_val_t{big ? kHugePage : 128}};
      data_ = {static_cast<float*>(::operator new(bytes, free.alignment)), free};
      if (big) ::madvise(data_.get(), bytes, MADV_HUGEPAGE);
    }
    return data_.get();
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  std::unique_ptr<float, AlignedFree> data_;
  int64_t size_ = 0;
};

// One thread adds, any reads.
class Count {
 public:
  void add(int64_t more) { value_.store(get() + more, std::memory_order_relaxed); }
  int64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// An expert that a product takes. `fill`: the slot that its panels go to while they are multiplied, or null.
struct ChosenExpert {
  int32_t expert = 0;
  Matrix w;
  uint8_t* fill = nullptr;
};

struct Context {
  Context(int threads, const Kernels& chosen)
      : pool(threads), kernels(chosen), workers(static_cast<size_t>(pool.size())), threads(pool.size()) {
    begin_threads();
  }

  ThreadPool pool;
  const Kernels& kernels;
  Scratch shared, shared2, digits, lines;
  std::vector<Scratch> workers;
  int threads;
  ExpertMemory experts;
  std::unique_ptr<ExpertReader> reader;                     // null: what is not in memory is multiplied where it is mapped
  Status failure;                                           // of the first read that failed since somebody waited
  std::vector<ChosenExpert> ready_experts, coming_experts;  // of one product
  Count weight_bytes, multiply_adds, fp4_multiply_adds, expert_uses, expert_misses, missed_bytes;
  ProductLimits limits;
  std::thread::id caller = std::this_thread::get_id();
  Count product_ps;  // picoseconds: the shortest products take less than a nanosecond of the limits

  // Lets each thread of the pool begin: nobody leaves his part before all have one.
  void begin_threads() {
    if (!kernels.begin_thread) return;
    std::atomic<int> begun{0};
    pool.run(threads, [&](int64_t, int64_t, int) {
      kernels.begin_thread();
      begun.fetch_add(1);
      while (begun.load() < threads) std::this_thread::yield();
    });
  }
  // The same for who calls, if it is not who called last.
  void begin_caller() {
    if (!kernels.begin_thread || caller == std::this_thread::get_id()) return;
    caller = std::this_thread::get_id();
    kernels.begin_thread();
  }

  void count_product(int64_t bytes, const Matrix& w, int64_t rows) {
    const bool fp4 = w.format == WeightFormat::kFp4;
    weight_bytes.add(bytes);
    (fp4 ? fp4_multiply_adds : multiply_adds).add(rows * w.n * w.k);
    if (limits.bytes <= 0) return;
    const double flops = 2 * static_cast<double>(rows * w.n) * w.k;
    product_ps.add(static_cast<int64_t>(
        1e12 * std::max(static_cast<double>(bytes) / limits.bytes, flops / (fp4 ? limits.fp4_flops : limits.flops))));
  }

  // Every worker's scratch, big enough; call before pool.run().
  void reserve_workers(int64_t floats) {
    for (auto& scratch : workers) scratch.get(floats);
  }
  float* worker(int index) { return workers[static_cast<size_t>(index)].get(0); }
};

inline int64_t live(const Rows& rows) { return std::min<int64_t>(*rows.count, rows.capacity); }

// A thread must have about two microseconds of work to be worth waking (a hand-over costs one to two).
inline constexpr int64_t kGrainNs = 2500;

inline int64_t grain_for(double ns_per_item) {
  return std::max<int64_t>(1, static_cast<int64_t>(kGrainNs / std::max(ns_per_item, 0.01)));
}

// f(row) over the live rows.
template <class F>
void each_row(Context& context, const Rows& rows, double ns_per_row, F f) {
  context.pool.run(
      live(rows),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) f(row);
      },
      grain_for(ns_per_row));
}

// f(row, begin, end) over pieces of `width` channels of the live rows; pieces are multiples of 16.
template <class F>
void each_piece(Context& context, const Rows& rows, int width, double ns_per_channel, F f) {
  const int64_t pieces = (width + 63) / 64;
  context.pool.run(
      live(rows) * pieces,
      [&](int64_t begin, int64_t end, int) {
        while (begin < end) {
          const int64_t row = begin / pieces, first = begin % pieces, last = std::min(pieces, first + end - begin);
          f(row, static_cast<int>(first * 64), static_cast<int>(std::min<int64_t>(width, last * 64)));
          begin += last - first;
        }
      },
      grain_for(ns_per_channel * 64));
}

// One function per operation that needs more than rows: matmul_ops.cc, attention_ops.cc.
void run_matmul(Context& context, const MatmulParams& p);
void run_grouped_matmul(Context& context, const GroupedMatmulParams& p);
void pack_weight(Context& context, const Matrix& w, uint8_t* panels);
void run_mix(Context& context, const MixParams& p);
void run_attention(Context& context, const AttentionParams& p);
void run_select(Context& context, const SelectParams& p);
void run_vision_attention(Context& context, const VisionAttentionParams& p);

// Points every entry of `table` at this context.
void fill_table(Context& context, OpTable& table);

// A device on kernels that need not be in the list, for tests.
std::unique_ptr<Device> make_device_of(CpuOptions options, const Kernels& kernels);

}  // namespace deepinfer::cpu
