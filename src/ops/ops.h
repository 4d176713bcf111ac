// ops/ops.h - the contract of every operation: one plain parameter struct each, and the table that runs them.
//
// All pointers are device memory unless marked [host-table]. Shapes stand beside the pointers; n is the number of live
// rows. Row counts reach a kernel as a device value under a padded capacity (Rows), so graphs can be replayed and
// verification lengths decided late; rows at or beyond *count are neither read nor written.
// Promise (spec: determinism.md section 3): a row's result depends on that row's inputs only - never on n, on other rows, on
// threads. Two orders of additions serve every sum. Products with a weight go block by block (PRODUCT): over each 32
// columns t = fma(x, code, t) from zero, columns ascending, then y = fma(t, scale, y) over the blocks ascending; codes and
// scale as weight_code() and block_scale() give them. Everything else is DOT: lane l of 16 accumulates k = l, l+16, l+32, ...
// with fused multiply-add from zero, then lanes are added as a fixed tree
//     for (s = 8; s >= 1; s /= 2) lane[i] += lane[i + s], i < s.
// K tails shorter than 16 leave the missing lanes untouched. All bodies of one class agree bit for bit (numerics_class() in
// device.h). The class `amx` adds products with e4m3 and BF16 weights as a processor's tiles do: over each 32 columns the even
// and the odd ones apart, t = fma(x, w, t) from zero with w = code * scale, then y = y + (t_even + t_odd) over the blocks
// ascending; numbers below 2^-126 are zeros on their way in and out. All else in it is as above, products in groups that do not
// begin at multiples of 16 outputs included. Precision, rounding points and
// quantiser rules: model.md sections 4 to 16.
//
// Structs are trivially copyable: a device may copy and run them later.
#pragma once

#include <cstdint>

#include "core/kv_layout.h"
#include "formats/codecs.h"

namespace deepinfer {

// Live rows of an operation: *count (device memory) <= capacity.
struct Rows {
  const int32_t* count;
  int32_t capacity;
};

enum class WeightFormat : int32_t {
  kBf16,    // BF16 [N, K]
  kF8Tile,  // e4m3 [N, K], scales e8m0 [ceil(N/32), K/32]
  kFp4,     // e2m1, two per byte, low nibble = even column [N, K/2], scales e8m0 [N, K/32]
};

// A weight as stored in the checkpoint (never dequantised as a whole). REQUIRES: no NaN codes, scale codes below 247
// (values below 2^120), so that every kernel may decode through FP16, and of e4m3 below 215 (2^88), for PRODUCT takes them times
// 2^40; K a multiple of 32 for quantised formats.
struct Matrix {
  WeightFormat format;
  const void* data;
  const uint8_t* scales;
  int32_t n, k;
  const uint8_t* panels = nullptr;  // the same weight in the order of the device's kernels (Device::pack), or null
  int32_t place = -1;               // >= 0: its number among those of which the device keeps what is used most (Device::pack)
};

// ---- rows in and out -------------------------------------------------------------------------------------------

struct SampleResult;

// tokens[r] = draws[-1 - tokens[r]].token where tokens[r] < 0: rows of a step that was planned before its tokens were known.
struct TakeDrawsParams {
  Rows rows;
  const SampleResult* draws;
  int32_t* tokens;  // [n]
};

// x[r, s, :] = embed[token[r]] for each stream s, or image_rows[image_row[r]] where image_row[r] >= 0;
// pre[r] = (1, 0, 0, 0).
struct EmbedParams {
  Rows rows;
  const int32_t* tokens;     // [n]
  const int32_t* image_row;  // [n] or null
  const Bf16* table;         // [V, D]
  const Bf16* image_rows;    // [*, D] or null
  Bf16* x;                   // [n, S, D]
  float* pre;                // [n, S]
  int32_t hidden, streams;
};

// dst[i] = src[index[i]], rows of row_bytes; index -1 gives a row of zeros.
struct GatherRowsParams {
  Rows rows;             // of dst
  const int32_t* index;  // [n]
  const void* src;
  void* dst;
  int64_t row_bytes;
};

// ---- norms, streams --------------------------------------------------------------------------------------------

// y = bf16(w * (x * rsqrt(mean(x^2) + eps))), FP32 inside (model.md section 4).
struct RmsNormParams {
  Rows rows;
  const Bf16* x;       // [n, stride_x]
  const Bf16* weight;  // [width]
  Bf16* y;             // [n, width]
  int32_t width;
  int64_t stride_x;
  float eps;
};

// Collapse/expand weights of one site from the residual streams (model.md section 5, mix). All FP32.
struct MixParams {
  Rows rows;
  const Bf16* x;       // [n, S, D]
  const float* fn;     // [2S + S*S, S*D]
  const float* base;   // [2S + S*S]
  const float* scale;  // [3]
  float* pre;          // [n, S]
  float* post;         // [n, S]
  float* comb;         // [n, S, S]: [input stream][output stream]
  int32_t hidden, streams, iterations;
  float eps, hc_eps;
};

// u = RMSNorm(collapse(x, pre); weight); `collapsed` (or null) receives collapse(x, pre) itself.
struct CollapseNormParams {
  Rows rows;
  const Bf16* x;       // [n, S, D]
  const float* pre;    // [n, S]
  const Bf16* weight;  // [D]
  Bf16* u;             // [n, D]
  Bf16* collapsed;     // [n, D] or null
  int32_t hidden, streams;
  float eps;
};

// x[k] = bf16(post[k] * y + sum_j comb[j][k] * x[j]), j ascending, in place.
struct ExpandParams {
  Rows rows;
  const Bf16* y;      // [n, D]
  const float* post;  // [n, S]
  const float* comb;  // [n, S, S]
  Bf16* x;            // [n, S, D]
  int32_t hidden, streams;
};

// tap[r, offset ..] = bf16(mean of the streams): sum ascending, then times 1/S.
struct TapParams {
  Rows rows;
  const Bf16* x;  // [n, S, D]
  Bf16* tap;      // [n, stride]
  int64_t stride, offset;
  int32_t hidden, streams;
};

// ---- matrix products -------------------------------------------------------------------------------------------

// q8 of each row: per 32 channels one e8m0 scale and 32 e4m3 codes (model.md section 4).
struct QuantizeParams {
  Rows rows;
  const Bf16* x;    // [n, width]
  uint8_t* codes;   // [n, width]
  uint8_t* scales;  // [n, width/32]
  int32_t width;
};

enum class OutputType : int32_t { kBf16, kF32 };

// y = x @ w^T in PRODUCT order, one rounding at the end (after bias, if any).
// The input is either BF16 `x` or quantised `codes` + `scales`. Groups: w is [groups * n_per_group, k]; group g reads
// input columns [g*k, (g+1)*k) and writes output columns [g*n_per_group, (g+1)*n_per_group); w.n is the total.
// REQUIRES: inputs of e4m3 weights below 2^47 in magnitude, for PRODUCT takes them times 2^80 (input_factor()).
struct MatmulParams {
  Rows rows;
  const Bf16* x;          // [n, x_stride] or null
  const uint8_t* codes;   // [n, groups*k] or null
  const uint8_t* scales;  // [n, groups*k/32]
  int64_t x_stride;       // elements, of `x`
  Matrix w;
  int32_t groups;    // 1 = plain
  const Bf16* bias;  // [N] or null
  void* y;           // [n, y_stride] of y_type
  OutputType y_type;
  int64_t y_stride;  // elements
  float y_scale;     // 1, or a factor applied as y = round(round(dot) * y_scale) (indexer head weights)
};

// ---- rotary, window KV -----------------------------------------------------------------------------------------

// cos/sin of f32(position) * freq, accurate for positions up to 10^6 (model.md section 4).
struct RopeTableParams {
  Rows rows;
  const int32_t* positions;  // [n]
  const float* freq;         // [RD/2]
  float* cos_sin;            // [n, RD/2, 2]
  int32_t half;              // RD/2
};

// Rotates the last rope_dim channels of each head, adjacent pairs, in place; separate multiply and add (no fma).
struct RopeParams {
  Rows rows;
  Bf16* x;               // [n, heads, head_dim]
  const float* cos_sin;  // [n, rope_dim/2, 2]
  int32_t heads, head_dim, rope_dim;
  int32_t inverse;  // 1: sin -> -sin
};

// Window row of each token: q8(rope(RMSNorm(kv; weight))).
struct WindowKvParams {
  Rows rows;
  const Bf16* kv;        // [n, HD]
  const Bf16* weight;    // [HD]
  const float* cos_sin;  // [n, RD/2, 2]
  uint8_t* codes;        // [n, HD]
  uint8_t* scales;       // [n, HD/32]
  int32_t head_dim, rope_dim;
  float eps;
};

// Copies window rows into their ring slots (position mod ring_slots) of the row's state block. Rows with write[r] = 0
// are left out (older than what the ring can hold at the end of the step).
struct RingWriteParams {
  Rows rows;
  const uint8_t* codes;      // [n, HD]
  const uint8_t* scales;     // [n, HD/32]
  const int32_t* slots;      // [n]
  const int32_t* positions;  // [n]
  const uint8_t* write;      // [n]
  uint8_t* states;           // state blocks
  int64_t state_bytes, ring_offset, ring_codes_bytes;
  int32_t ring_slots, head_dim;
};

// ---- paged global KV -------------------------------------------------------------------------------------------

// Where the pages of each slot are. Entry j of a section lives in page table[slot * table_stride + j / entries].
struct PageView {
  uint8_t* pages;
  int64_t page_bytes;
  const int32_t* table;  // [slots, table_stride]
  int64_t table_stride;
  PageSection section;
  int32_t head_dim, index_dim;
};

// Ratio-2 pooling: value and gate of token pairs -> one BF16 latent per odd position (model.md section 7). The partner of an
// odd position is row r-1 when that row is of the same slot and one position earlier, else the tail in the state
// block; each of the last kTailSlots even positions of a slot leaves its (value, gate) there, at tail slot
// (position/2) % kTailSlots, so that rows after any of them may be rejected. All reads of tails come before all writes (a chunk
// can do both in one slot).
struct PoolPairsParams {
  Rows rows;
  const float* value;        // [n, HD]
  const float* gate;         // [n, HD]
  const int32_t* slots;      // [n]
  const int32_t* positions;  // [n]
  uint8_t* states;
  int64_t state_bytes, tail_offset;
  Bf16* latent;  // [n, HD]; rows at even positions are left alone
  int32_t head_dim;
};

// Finishes the entry of each row that completes one (every row at ratio 1, odd positions at ratio 2) and writes it to
// its page: main row q4e4(rope(lat, j*m)); index key q4e8(rope(RMSNorm(key; k_norm), j*m)). lat is normed already.
// Rows with write[r] = 0 (replayed tokens of cached pages) are left out.
struct WriteEntriesParams {
  Rows rows;
  const Bf16* latent;        // [n, HD], after the compressor's norm, not rotated
  const Bf16* key;           // [n, ID], lin16(latent, wk)
  const Bf16* key_norm;      // [ID]
  const float* freq;         // [RD/2], of the layer's table
  const int32_t* slots;      // [n]
  const int32_t* positions;  // [n]
  const uint8_t* write;      // [n] or null = all
  PageView view;
  int32_t rope_dim;
  float eps;
};

// ---- index selection -------------------------------------------------------------------------------------------

// qi = dq(q4e8(rope(qi))) per head, in place.
struct IndexQueryParams {
  Rows rows;
  Bf16* q;               // [n, IH, ID]
  const float* cos_sin;  // [n, RD/2, 2]
  int32_t heads, dim, rope_dim;
};

enum class SelectMode : int32_t { kAll, kPublishCandidates, kWithinCandidates };

// score_j = sum_h w_h * relu(DOT(qi_h, key_j)), h ascending with fma, FP32, for j < n_vis = (position+1) / ratio; the best top_k
// by (score descending, index ascending), stored ascending, -1 padded (model.md section 8).
struct SelectParams {
  Rows rows;
  const Bf16* q;             // [n, IH, ID]
  const Bf16* w;             // [n, IH]
  const int32_t* slots;      // [n]
  const int32_t* positions;  // [n]
  PageView view;
  SelectMode mode;
  int32_t* selected;     // [n, top_k]
  int32_t* candidates;   // [n, candidate_blocks] block ids ascending, -1 padded; written or read as `mode` says
  float* score_scratch;  // [scratch_rows, max_entries]
  int32_t scratch_rows;  // >= threads of the device
  int64_t max_entries;   // >= every n_vis
  float* scores_out;     // [n, max_entries] for tests (-inf = invisible or outside candidates), or null
  int32_t heads, top_k, candidate_blocks, candidate_block;
};

// ---- attention -------------------------------------------------------------------------------------------------

// Which window rows a query row sees: ring positions [ring_begin, ring_end) of its slot, oldest first, then rows
// [batch_begin, batch_end) of the step's own window rows. REQUIRES: together at most 2 * ring_slots.
struct WindowSpan {
  int32_t ring_begin, ring_end;
  int32_t batch_begin, batch_end;
};

// o_h = bf16(sum_j a_hj row_j), a = softmax with sink over window rows, then selected entries ascending (model.md section 6).
// scores DOT * HD^-0.5; p relative to the running maximum of chunks of 64 slots, rounded to BF16 for the product, summed
// unrounded; o accumulated with fma in slot order; a row without slots gives zeros.
struct AttentionParams {
  Rows rows;
  const Bf16* q;                // [n, H, HD], rotated
  const WindowSpan* spans;      // [n]
  const int32_t* slots;         // [n]
  const uint8_t* batch_codes;   // [*, HD]
  const uint8_t* batch_scales;  // [*, HD/32]
  const uint8_t* states;
  int64_t state_bytes, ring_offset, ring_codes_bytes;
  int32_t ring_slots;
  const int32_t* selected;  // [n, top_k] ascending, -1 padded; null = window only
  int32_t top_k;
  PageView view;      // read when `selected` is given
  const float* sink;  // [H]
  Bf16* o;            // [n, H, HD], not yet rotated back
  int32_t heads, head_dim;
};

// ---- mixture of experts ----------------------------------------------------------------------------------------

// ids = top K of sqrt(softplus(logits)) + bias, ties to the lower id, stored ascending; weights normalised and scaled.
struct RouteParams {
  Rows rows;
  const float* logits;      // [n, E]
  const float* bias;        // [E]
  const float* bias_image;  // [E]: used where is_image[r]
  const uint8_t* is_image;  // [n] or null
  int32_t* ids;             // [n, K]
  float* weights;           // [n, K]
  int32_t experts, top_k;
  float scaling;
};

// (row, k) pairs sorted by expert, then row: a counting sort over experts [first_expert, first_expert + num_experts).
// Ids outside that range (other ranks' experts; -1 = padding) make no pair.
struct GroupPairsParams {
  Rows rows;
  const int32_t* ids;  // [n, K]
  int32_t* pair_row;   // [n*K] source row of each pair
  int32_t* pair_slot;  // [n*K] k of each pair
  int32_t* pair_of;    // [n, K] pair index of each (row, k), -1 = expert of another rank
  int32_t* offsets;    // [num_experts + 1]
  int32_t* num_pairs;  // [1], = offsets[num_experts]
  int32_t top_k, first_expert, num_experts;
};

// Where a (row, k) result arrives after the ranks have exchanged: home[r, k] = owner * stride + r * top_k + k with
// owner = ids[r, k] / experts_per_rank. Used as `pair_of` by combine.
struct ExpertHomeParams {
  Rows rows;
  const int32_t* ids;  // [n, K]
  int32_t* home;       // [n, K]
  int32_t top_k, experts_per_rank, stride;
};

// y[p] = x[pair_row[p] or p] @ w[expert of p]^T; grouped_matmul over routed pairs.
struct GroupedMatmulParams {
  Rows pairs;               // count = num_pairs
  const uint8_t* codes;     // [rows, k]
  const uint8_t* scales;    // [rows, k/32]
  const int32_t* pair_row;  // [pairs] or null = row p
  const int32_t* offsets;   // [num_experts + 1]
  const Matrix* weights;    // [host-table] [num_experts]
  int32_t num_experts;
  Bf16* y;  // [pairs, N]
};

// h = bf16(weight * (silu(min(g, lim)) * clamp(v, -lim, lim))), FP32 inside, then q8.
struct SwigluQuantizeParams {
  Rows rows;
  const Bf16* gate;          // [n, I]
  const Bf16* up;            // [n, I]
  const float* weights;      // [source rows, K] or null = 1
  const int32_t* pair_row;   // [n]; with pair_slot picks the weight of a pair
  const int32_t* pair_slot;  // [n]
  int32_t top_k;
  uint8_t* codes;   // [n, I]
  uint8_t* scales;  // [n, I/32]
  int32_t width;
  float limit;
};

// out = bf16(sum over k ascending of f32(y[pair_of[r, k]]), then + f32(shared[r])); pairs with -1 are skipped.
struct CombineParams {
  Rows rows;
  const Bf16* y;           // [pairs, D]
  const int32_t* pair_of;  // [n, K]
  const Bf16* shared;      // [n, D]
  Bf16* out;               // [n, D]
  int32_t top_k, width;
};

// ---- Engram ----------------------------------------------------------------------------------------------------

// Maps ids, keeps the history ring, hashes n-grams (model.md section 10). The id i tokens before row r is row r-i's when that
// row is of the same slot and i positions earlier, else the history ring's at (position - i) mod ring_slots; positions
// below 0 or a DEAD id among c_t..c_{t-i} give the pad id. DEAD is -1. Rows with write[r] = 0 leave the ring alone.
// All reads of the ring come before all writes: a long chunk writes the very slots its first rows read.
struct EngramHashParams {
  Rows rows;
  const int32_t* tokens;     // [n]
  const uint8_t* is_image;   // [n] or null
  const int32_t* slots;      // [n]
  const int32_t* positions;  // [n]
  const uint8_t* write;      // [n]
  const int32_t* token_map;  // [V]
  uint8_t* states;
  int64_t state_bytes, history_offset;
  int32_t ring_slots;
  const int64_t* multipliers;  // [layers, ngram]
  const int64_t* primes;       // [layers, columns]
  const int64_t* offsets;      // [layers, columns]
  int64_t* hash_rows;          // [layers, n_capacity, columns], column order n-major
  int32_t num_layers, ngram, heads;
  int32_t pad;  // token_map[engram_pad_token_id]
};

// e[r] = concat over columns of dq(table[hash_rows[r, c]]), BF16.
struct EngramGatherParams {
  Rows rows;
  const int64_t* hash_rows;  // [n, columns]
  const uint8_t* codes;      // e4m3 [table rows, dim]
  const uint8_t* scales;     // e8m0 [table rows, dim/32]
  Bf16* e;                   // [n, columns * dim]
  int32_t columns, dim;
};

// x_s += gate_s * val in place, gates from query/key agreement, 0 for image rows (model.md section 10).
struct EngramMixParams {
  Rows rows;
  const Bf16* kvv;          // [n, (S+1) * D]: S keys, then the value
  const Bf16* q_weight;     // [S, D]
  const Bf16* k_weight;     // [S, D]
  const uint8_t* is_image;  // [n] or null
  Bf16* x;                  // [n, S, D]
  float* gates_out;         // [n, S] or null
  int32_t hidden, streams;
  float eps;
};

// ---- draft heads -----------------------------------------------------------------------------------------------

// Logits of draft step k: base + f32(markov_embed[prev]) @ f32(markov_head)^T, greedy or coupled draw left to sample();
// here the Markov addition alone, y[r] = base[r] + DOT(embed[prev[r]], head[v]).
struct MarkovParams {
  Rows rows;
  const float* base;      // [n, base_stride]
  int64_t base_stride;    // elements
  const int32_t* prev;    // [n, prev_stride]: the first of each row
  int64_t prev_stride;    // elements (a SampleResult starts with its token)
  const Bf16* embed;      // [V, R]
  const Bf16* head;       // [V, R]
  float* logits;          // [n, logits_stride]
  int64_t logits_stride;  // elements
  int32_t vocab, rank;
};

// conf[r] = DOT over concat(x[r], embed[prev[r]]) with proj [D + R].
struct ConfidenceParams {
  Rows rows;
  const Bf16* x;  // [n, x_stride]
  int64_t x_stride;
  const int32_t* prev;  // [n, prev_stride]
  int64_t prev_stride;  // elements
  const Bf16* embed;    // [V, R]
  const Bf16* proj;     // [D + R]
  float* conf;          // [n, conf_stride]
  int64_t conf_stride;
  int32_t hidden, rank;
};

// ---- sampling --------------------------------------------------------------------------------------------------

inline constexpr int32_t kMaxTopLogprobs = 20;

// One row's draw: bias, penalties, mask, temperature, top-k, top-p, min-p, Gumbel argmax (determinism.md sections 4, 6).
struct SampleRow {
  uint64_t seed;
  int64_t position;   // absolute index of the token being drawn
  float temperature;  // 0 = argmax
  float top_p, min_p;
  float frequency_penalty, presence_penalty, repetition_penalty;
  int32_t top_k;
  int32_t bias_begin, bias_end;        // into bias_ids / bias_values
  int32_t history_begin, history_end;  // triples of `history`: (token, count in the answer, in prompt), for penalties
  int32_t num_logprobs;                // -1 none
  uint32_t stream;                     // Philox stream, 0 = target, 1 = a draft that rejection verifies
  // With draft_logits: the draft to verify by rejection, -1 = none, and the row of the logits it was drawn from with these
  // settings.
  int32_t draft, draft_row;
};

struct SampleResult {
  int32_t token;  // -1: no finite logit
  float logprob;  // of the token, after bias/penalties/mask/temperature, before truncation
  int32_t num_top;
  int32_t top_tokens[kMaxTopLogprobs];
  float top_logprobs[kMaxTopLogprobs];
};

struct SampleParams {
  Rows rows;
  const float* logits;        // [n, V]
  const SampleRow* settings;  // [n]
  const int32_t* bias_ids;
  const float* bias_values;
  const int32_t* history;  // 3 per triple; tokens of one row are distinct
  const uint32_t* masks;   // [n, mask_words] bit set = allowed, or null
  int64_t mask_words;
  float* scratch;         // [scratch_rows, 2 * V], 4 * V with draft_logits
  int32_t scratch_rows;   // >= threads of the device
  SampleResult* results;  // [n]
  int32_t vocab;
  const float* draft_logits;  // [draft rows, V], or null: no row has a draft
};

// ---- vision tower (model.md section 14) -------------------------------------------------------------------------------

// 2-D rotary, half-split, on q and k of wqkv output, in place; angle vector [row*f, col*f].
struct VisionRopeParams {
  Rows rows;            // patches of one image
  Bf16* qkv;            // [n, 3, heads, hd]
  const int32_t* grid;  // [n, 2] patch row, column
  int32_t heads, dim;
  float theta;
};

// Full attention inside one image; scale hd^-0.5; BF16 output.
struct VisionAttentionParams {
  Rows rows;
  const Bf16* qkv;  // [n, 3, heads, hd]
  Bf16* o;          // [n, heads, hd]
  float* scratch;   // [scratch_rows, n]
  int32_t scratch_rows;
  int32_t heads, dim;
};

enum class PointwiseKind : int32_t {
  kAdd,      // y = bf16(a + b)
  kSiluMul,  // y = bf16(bf16(silu(gate)) * up), a = [n, 2*width] gate first
  kGelu,     // y = bf16(gelu_erf(a))
};
struct PointwiseParams {
  Rows rows;
  PointwiseKind kind;
  const Bf16* a;
  const Bf16* b;
  Bf16* y;
  int32_t width;  // of y
};

// 3x3 (downsample x downsample) unfold of the patch grid, zero-padded right and bottom; feature = c*ds*ds + ky*ds + kx.
struct UnfoldParams {
  const Bf16* x;  // [grid_h * grid_w, C]
  Bf16* y;        // [ceil(grid_h/ds) * ceil(grid_w/ds), C*ds*ds]
  int32_t grid_h, grid_w, channels, downsample;
};

// ---- the table -------------------------------------------------------------------------------------------------

// A device's implementation of every operation. `context` is the device's own; calls go through Ops below.
struct OpTable {
  void* context = nullptr;
#define DI_OP(name, Params)                                  \
  void (*name##_fn)(void* context, const Params&) = nullptr; \
  void name(const Params& p) const { name##_fn(context, p); }
#include "ops/op_list.inc"
#undef DI_OP
};

}  // namespace deepinfer
