// Operations that are one portable body per row, and the table of all operations.
#include "cpu/context.h"
#include "ops/portable/bodies.h"

namespace deepinfer::cpu {
namespace {

template <class Params>
using Run = void (*)(Context&, const Params&);

// Adapts Run<Params> to the entry of an OpTable.
template <class Params, Run<Params> kRun>
void call(void* context, const Params& p) {
  kRun(*static_cast<Context*>(context), p);
}

void run_take_draws(Context& c, const TakeDrawsParams& p) {
  each_row(c, p.rows, 2.0, [&](int64_t r) { take_draw(p, r); });
}
void run_embed(Context& c, const EmbedParams& p) {
  each_row(c, p.rows, 0.1 * p.hidden * p.streams, [&](int64_t r) { embed_range(p, r, 0, p.hidden); });
}
void run_gather_rows(Context& c, const GatherRowsParams& p) {
  each_row(c, p.rows, 0.05 * static_cast<double>(p.row_bytes), [&](int64_t r) { gather_range(p, r, 0, p.row_bytes); });
}
void run_rms_norm(Context& c, const RmsNormParams& p) {
  each_row(c, p.rows, 0.4 * p.width, [&](int64_t r) { c.kernels.rows->rms_norm(p, r); });
}
void run_collapse_norm(Context& c, const CollapseNormParams& p) {
  each_row(c, p.rows, 1.0 * p.hidden, [&](int64_t r) { c.kernels.rows->collapse_norm(p, r); });
}
void run_expand(Context& c, const ExpandParams& p) {
  each_piece(c, p.rows, p.hidden, 1.0, [&](int64_t r, int begin, int end) { c.kernels.rows->expand(p, r, begin, end); });
}
void run_tap(Context& c, const TapParams& p) {
  each_row(c, p.rows, 0.5 * p.hidden, [&](int64_t r) { tap_range(p, r, 0, p.hidden); });
}
void run_quantize(Context& c, const QuantizeParams& p) {
  each_row(c, p.rows, 0.6 * p.width, [&](int64_t r) { c.kernels.rows->quantize(p, r); });
}
void run_rope_table(Context& c, const RopeTableParams& p) {
  each_row(c, p.rows, 15.0 * p.half, [&](int64_t r) {
    for (int i = 0; i < p.half; ++i) rope_table_at(p, r, i);
  });
}
void run_rope(Context& c, const RopeParams& p) {
  each_row(c, p.rows, 1.0 * p.heads * p.rope_dim, [&](int64_t r) { rope_row(p, r); });
}
void run_window_kv(Context& c, const WindowKvParams& p) {
  each_row(c, p.rows, 2.0 * p.head_dim, [&](int64_t r) { window_kv_row(p, r); });
}
void run_ring_write(Context& c, const RingWriteParams& p) {
  each_row(c, p.rows, 0.1 * p.head_dim, [&](int64_t r) { ring_write_row(p, r); });
}
void run_pool_pairs(Context& c, const PoolPairsParams& p) {
  const int64_t n = live(p.rows);
  each_row(c, p.rows, 3.0 * p.head_dim, [&](int64_t r) { pool_pairs_range(p, r, 0, p.head_dim); });
  each_row(c, p.rows, 0.2 * p.head_dim, [&](int64_t r) { pool_pairs_tail_range(p, r, n, 0, p.head_dim); });
}
void run_write_entries(Context& c, const WriteEntriesParams& p) {
  each_row(c, p.rows, 3.0 * p.view.head_dim, [&](int64_t r) { write_entries_row(p, r); });
}
void run_index_query(Context& c, const IndexQueryParams& p) {
  each_row(c, p.rows, 2.0 * p.heads * p.dim, [&](int64_t r) { c.kernels.rows->index_query(p, r); });
}
void run_route(Context& c, const RouteParams& p) {
  each_row(c, p.rows, 3.0 * p.experts * p.top_k, [&](int64_t r) { route_row(p, r); });
}
void run_group_pairs(Context&, const GroupPairsParams& p) { group_pairs_all(p, live(p.rows)); }
void run_expert_home(Context& c, const ExpertHomeParams& p) {
  each_row(c, p.rows, 1.0 * p.top_k, [&](int64_t r) { expert_home_row(p, r); });
}
void run_swiglu_quantize(Context& c, const SwigluQuantizeParams& p) {
  each_row(c, p.rows, 3.0 * p.width, [&](int64_t r) { c.kernels.rows->swiglu_quantize(p, r); });
}
void run_combine(Context& c, const CombineParams& p) {
  each_piece(c, p.rows, p.width, 0.2 * p.top_k, [&](int64_t r, int begin, int end) { combine_range(p, r, begin, end); });
}
void run_engram_hash(Context& c, const EngramHashParams& p) {
  each_row(c, p.rows, 200.0 * p.num_layers, [&](int64_t r) { engram_hash_row(p, r); });
  each_row(c, p.rows, 10.0, [&](int64_t r) { engram_history_row(p, r); });
}
void run_engram_gather(Context& c, const EngramGatherParams& p) {
  each_row(c, p.rows, (0.5 * p.dim + 100) * p.columns, [&](int64_t r) { c.kernels.rows->engram_gather(p, r); });
}
void run_engram_mix(Context& c, const EngramMixParams& p) {
  each_row(c, p.rows, 1.5 * p.hidden * p.streams, [&](int64_t r) { engram_mix_row(p, r); });
}
// Piece by piece and not row by row: the head is 66 MB at release sizes, and all rows of a pass use what was read of it.
void run_markov(Context& c, const MarkovParams& p) {
  const int64_t n = live(p.rows), pieces = (p.vocab + 63) / 64;
  c.count_product(int64_t{p.vocab} * p.rank * 2, {.n = p.vocab, .k = p.rank}, n);
  c.pool.run(
      n * pieces,
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i / n * 64;
          markov_range(p, i % n, first, std::min<int64_t>(p.vocab, first + 64));
        }
      },
      grain_for(64 * (5.0 + 0.2 * p.rank)));
}
void run_confidence(Context& c, const ConfidenceParams& p) {
  each_row(c, p.rows, 0.5 * (p.hidden + p.rank), [&](int64_t r) { confidence_row(p, r); });
}
void run_sample(Context& c, const SampleParams& p) {
  c.pool.run(
      live(p.rows),
      [&](int64_t begin, int64_t end, int worker) {
        float* scratch = p.scratch + int64_t{worker} * sample_scratch(p);
        for (int64_t r = begin; r < end; ++r) c.kernels.rows->sample(p, r, scratch);
      },
      grain_for(0.5 * p.vocab));
}
void run_vision_rope(Context& c, const VisionRopeParams& p) {
  each_row(c, p.rows, 60.0 * p.dim + 2.0 * p.heads * p.dim, [&](int64_t r) { vision_rope_row(p, r); });
}
void run_pointwise(Context& c, const PointwiseParams& p) {
  each_row(c, p.rows, 3.0 * p.width, [&](int64_t r) { pointwise_row(p, r); });
}
void run_unfold(Context& c, const UnfoldParams& p) {
  c.pool.run(unfolded_rows(p), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) unfold_row(p, r);
  });
}

}  // namespace

void fill_table(Context& context, OpTable& table) {
  table.context = &context;
#define DI_OP(name, Params) table.name##_fn = call<Params, run_##name>;
#include "ops/op_list.inc"
#undef DI_OP
}

}  // namespace deepinfer::cpu
