// Attention and selection: few rows are cut by heads or entries, many rows by row.
#include "cpu/context.h"
#include "ops/portable/bodies.h"

namespace deepinfer::cpu {
namespace {

constexpr double kLoadNs = 0.1, kAttendNs = 0.12, kScoreNs = 0.1;

int64_t most_slots(const AttentionParams& p, int64_t rows) {
  int64_t most = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const WindowSpan& span = p.spans[r];
    most = std::max<int64_t>(most, int64_t{span.ring_end} - span.ring_begin + span.batch_end - span.batch_begin);
  }
  return most + (p.selected ? p.top_k : 0);
}

// The rows of a query's slots [begin, end) as FP32, one after another. Selected entries lie all over the cache, where the
// processor finds no pattern, so each is asked for some rows before it is unpacked.
class SlotRows {
 public:
  SlotRows(const Kernels& kernels, const AttentionParams& p, int64_t row, int64_t begin, int64_t end)
      : kernels_(kernels), p_(p), row_(row), next_(begin), asked_(begin), end_(end) {
    for (int64_t i = 0; i < kAhead; ++i) ask();
  }
  void load(float* out) {
    const PackedRow& from = rows_[next_++ % kAhead];
    (from.main ? kernels_.q4e4_row : kernels_.q8_row)(from.codes, from.scales, p_.head_dim, out);
    ask();
  }

 private:
  static constexpr int64_t kAhead = 8, kLine = 64;
  void ask() {
    if (asked_ == end_) return;
    const PackedRow& row = rows_[asked_ % kAhead] = packed_row(p_, row_, asked_);
    ++asked_;
    const int64_t bytes = row.main ? p_.head_dim / 2 : p_.head_dim;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row.codes + at);
    __builtin_prefetch(row.scales);
  }

  const Kernels& kernels_;
  const AttentionParams& p_;
  int64_t row_, next_, asked_, end_;
  PackedRow rows_[kAhead];
};

// scores -> p in place and the factor of each query; `sink` may be null (vision).
void softmax_rows(const Kernels& kernels, float* scores, int64_t queries, int64_t stride, int64_t window, int64_t slots,
                  const float* sink, float* factors) {
  for (int64_t q = 0; q < queries; ++q)
    factors[q] = slots == 0 ? 0.0f : kernels.rows->softmax(scores + q * stride, window, slots, sink ? sink + q : nullptr);
}

// A query of `heads` heads over `slots` rows, and its room: FP32 queries, scores, factors, sums.
struct AttendRoom {
  AttendRoom(float* room, int64_t queries, int64_t width, int64_t slots)
      : q(room), scores(q + queries * width), factors(scores + queries * padded(slots)), sums(factors + padded(queries)) {}
  static int64_t floats(int64_t queries, int64_t width, int64_t slots) {
    return queries * (width + padded(slots)) + padded(queries) + kValueQueries * width;
  }
  float *q, *scores, *factors, *sums;
};

// Slots [begin, end) of a row: unpacked to kv and scored, some at a time, while they are in a near cache.
void load_and_score(const Kernels& kernels, const AttentionParams& p, int64_t row, int64_t begin, int64_t end,
                    const AttendRoom& room, int64_t stride, float* kv) {
  constexpr int64_t kBlockSlots = 8;
  const int64_t width = p.head_dim;
  SlotRows rows(kernels, p, row, begin, end);
  for (int64_t j = begin; j < end; j += kBlockSlots) {
    const int64_t count = std::min(kBlockSlots, end - j);
    for (int64_t i = j; i < j + count; ++i) rows.load(kv + i * width);
    kernels.attend_scores({.q = room.q,
                           .queries = p.heads,
                           .k = kv + j * width,
                           .slots = count,
                           .width = p.head_dim,
                           .scale = attention_scale(p.head_dim),
                           .scores = room.scores + j,
                           .stride = stride});
  }
}

// One row after another: slots are loaded and scored by all threads, then the channels of the answer are spread. What a
// thread loads it scores while it is in its cache, and of the others' rows it reads its own channels only.
void attend_split(Context& context, const AttentionParams& p, int64_t row) {
  const int64_t slots = num_slots(p, row), stride = padded(slots), width = p.head_dim, heads = p.heads;
  float* kv = context.shared.get(slots * width);
  const AttendRoom room(context.shared2.get(AttendRoom::floats(heads, width, slots)), heads, width, slots);
  load_bf16(p.q + row * heads * width, static_cast<int>(heads * width), room.q);
  context.pool.run(
      slots, [&](int64_t begin, int64_t end, int) { load_and_score(context.kernels, p, row, begin, end, room, stride, kv); },
      grain_for((kLoadNs + kAttendNs * static_cast<double>(heads)) * static_cast<double>(width)));
  softmax_rows(context.kernels, room.scores, heads, stride, window_slots(p, row), slots, p.sink, room.factors);
  constexpr int64_t kChannels = 16;
  context.pool.run(
      width / kChannels,
      [&](int64_t begin, int64_t end, int worker) {
        context.kernels.attend_values({.p = room.scores,
                                       .factors = room.factors,
                                       .queries = heads,
                                       .stride = stride,
                                       .v = kv + begin * kChannels,
                                       .v_stride = width,
                                       .slots = slots,
                                       .width = static_cast<int>((end - begin) * kChannels),
                                       .sums = context.worker(worker),
                                       .o = p.o + row * heads * width + begin * kChannels,
                                       .o_stride = width});
      },
      grain_for(kAttendNs * static_cast<double>(slots * heads * kChannels)));
}

// Scored queries over rows of FP32 values, all by one thread.
struct WholeRows {
  const float* v;
  int64_t window, slots;
  int width;
  const float* sink;
};
void mix_whole(const Kernels& kernels, const WholeRows& rows, const AttendRoom& room, int64_t queries, Bf16* o,
               int64_t o_stride) {
  const int64_t stride = padded(rows.slots);
  softmax_rows(kernels, room.scores, queries, stride, rows.window, rows.slots, rows.sink, room.factors);
  kernels.attend_values({.p = room.scores,
                         .factors = room.factors,
                         .queries = queries,
                         .stride = stride,
                         .v = rows.v,
                         .v_stride = rows.width,
                         .slots = rows.slots,
                         .width = rows.width,
                         .sums = room.sums,
                         .o = o,
                         .o_stride = o_stride});
}

void load_query(const SelectParams& p, int64_t row, float* out) {
  const int width = p.heads * p.view.index_dim;
  load_bf16(p.q + row * width, width, out);
}

}  // namespace

void run_attention(Context& context, const AttentionParams& p) {
  const int64_t n = live(p.rows), most = most_slots(p, n), width = p.head_dim, heads = p.heads;
  const int64_t per_heads = AttendRoom::floats(heads, width, most);
  context.reserve_workers(per_heads + most * width);
  if (n < 2 * context.threads) {
    for (int64_t row = 0; row < n; ++row) attend_split(context, p, row);
    return;
  }
  context.pool.run(n, [&](int64_t begin, int64_t end, int worker) {
    float* kv = context.worker(worker) + per_heads;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t slots = num_slots(p, row);
      const AttendRoom room(context.worker(worker), heads, width, slots);
      load_bf16(p.q + row * heads * width, static_cast<int>(heads * width), room.q);
      load_and_score(context.kernels, p, row, 0, slots, room, padded(slots), kv);
      mix_whole(context.kernels, {kv, window_slots(p, row), slots, p.head_dim, p.sink}, room, heads, p.o + row * heads * width,
                width);
    }
  });
}

void run_select(Context& context, const SelectParams& p) {
  const int64_t n = live(p.rows), query = int64_t{p.heads} * p.view.index_dim;
  context.reserve_workers(query + score_scratch(p.heads, p.view.index_dim));
  const auto score = [&](int64_t row, int64_t begin, int64_t end, float* scores, float* scratch) {
    load_query(p, row, scratch);
    context.kernels.score({&p, row, begin, end, scratch, scores, scratch + query});
  };
  if (n < 2 * context.threads) {
    for (int64_t row = 0; row < n; ++row) {
      const int64_t listed = num_listed(p, row);
      context.pool.run(
          listed,
          [&](int64_t begin, int64_t end, int worker) {
            score(row, begin, end, p.score_scratch + begin, context.worker(worker));
          },
          grain_for(kScoreNs * static_cast<double>(query)));
      select_finish(p, row, p.score_scratch, listed);
    }
    return;
  }
  context.pool.run(n, [&](int64_t begin, int64_t end, int worker) {
    float* scores = p.score_scratch + worker * p.max_entries;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t listed = num_listed(p, row);
      score(row, 0, listed, scores, context.worker(worker));
      select_finish(p, row, scores, listed);
    }
  });
}

// Head by head: keys and values become FP32 once, query rows are spread over threads in small groups.
void run_vision_attention(Context& context, const VisionAttentionParams& p) {
  constexpr int64_t kGroup = 12;
  const int64_t n = live(p.rows), dim = p.dim;
  float* k = context.shared.get(2 * n * dim);
  float* v = k + n * dim;
  context.reserve_workers(AttendRoom::floats(kGroup, dim, n));
  for (int h = 0; h < p.heads; ++h) {
    each_row(context, p.rows, static_cast<double>(dim), [&](int64_t row) {
      load_bf16(vision_part(p, row, 1, h), p.dim, k + row * dim);
      load_bf16(vision_part(p, row, 2, h), p.dim, v + row * dim);
    });
    context.pool.run(
        n,
        [&](int64_t begin, int64_t end, int worker) {
          for (int64_t row = begin; row < end; row += kGroup) {
            const int64_t queries = std::min(kGroup, end - row);
            const AttendRoom room(context.worker(worker), queries, dim, n);
            for (int64_t i = 0; i < queries; ++i) load_bf16(vision_part(p, row + i, 0, h), p.dim, room.q + i * dim);
            context.kernels.attend_scores({.q = room.q,
                                           .queries = queries,
                                           .k = k,
                                           .slots = n,
                                           .width = p.dim,
                                           .scale = attention_scale(p.dim),
                                           .scores = room.scores,
                                           .stride = padded(n)});
            mix_whole(context.kernels, {v, n, n, p.dim, nullptr}, room, queries, p.o + (row * p.heads + h) * dim, p.heads * dim);
          }
        },
        grain_for(kAttendNs * static_cast<double>(n * dim)));
  }
}

}  // namespace deepinfer::cpu
