// Rotary tables, window rows, rings, pooling, page entries, index queries.
#include "cuda/launch.cuh"

namespace deepinfer::cuda {

void run_rope_table(const GpuContext& c, const RopeTableParams& p) {
  each_item(c, p.rows, p.half, [p] __device__(int64_t row, int64_t i) { rope_table_at(p, row, static_cast<int>(i)); });
}

void run_rope(const GpuContext& c, const RopeParams& p) {
  const int pairs = p.rope_dim / 2;
  each_item(c, p.rows, int64_t{p.heads} * pairs, [p, pairs] __device__(int64_t row, int64_t i) {
    rope_pair(p, row, static_cast<int>(i / pairs), static_cast<int>(i % pairs));
  });
}

void run_window_kv(const GpuContext& c, const WindowKvParams& p) {
  constexpr int kWindowThreads = 32;
  each_row(c, p.rows, kWindowThreads, [p] __device__(int64_t row) {
    // Both halves of the warp compute the same factor.
    const float factor = rms_factor(p.kv + row * p.head_dim, p.head_dim, p.eps, LanesDot{});
    for (int b = threadIdx.x; b < p.head_dim / kScaleBlock; b += kWindowThreads) window_kv_block(p, row, b, factor);
  });
}

void run_ring_write(const GpuContext& c, const RingWriteParams& p) {
  each_item(c, p.rows, p.head_dim / kScaleBlock,
            [p] __device__(int64_t row, int64_t b) { ring_write_block(p, row, static_cast<int>(b)); });
}

void run_pool_pairs(const GpuContext& c, const PoolPairsParams& p) {
  each_item(c, p.rows, p.head_dim,
            [p] __device__(int64_t row, int64_t d) { pool_pairs_range(p, row, static_cast<int>(d), static_cast<int>(d) + 1); });
  each_item(c, p.rows, p.head_dim, [p] __device__(int64_t row, int64_t d) {
    pool_pairs_tail_range(p, row, live(p.rows), static_cast<int>(d), static_cast<int>(d) + 1);
  });
}

void run_write_entries(const GpuContext& c, const WriteEntriesParams& p) {
  constexpr int kEntryThreads = 64;
  each_row(c, p.rows, kEntryThreads, [p] __device__(int64_t row) {
    __shared__ float table[kMaxRopeDim];
    const int64_t entry = finished_entry(p, row);
    if (entry < 0) return;
    for (int i = threadIdx.x; i < p.rope_dim / 2; i += kEntryThreads) entry_rope_at(p, entry, i, table);
    __syncthreads();
    for (int b = threadIdx.x; b < p.view.head_dim / kMainBlock; b += kEntryThreads) write_main_block(p, row, entry, table, b);
    const float factor = rms_factor(p.key + row * p.view.index_dim, p.view.index_dim, p.eps, LanesDot{});
    for (int b = threadIdx.x; b < p.view.index_dim / kScaleBlock; b += kEntryThreads) {
      write_index_block(p, row, entry, table, factor, b);
    }
  });
}

void run_index_query(const GpuContext& c, const IndexQueryParams& p) {
  const int blocks = p.dim / kScaleBlock;
  each_item(c, p.rows, int64_t{p.heads} * blocks, [p, blocks] __device__(int64_t row, int64_t i) {
    index_query_block(p, row, static_cast<int>(i / blocks), static_cast<int>(i % blocks));
  });
}

}  // namespace deepinfer::cuda
