// Matrix products: inputs become FP32 once per call, columns are spread over threads, a kernel does the rest.
#include "cpu/context.h"
#include "ops/portable/bodies.h"

namespace deepinfer::cpu {
namespace {

// Rows handled per pass: bounds the FP32 copy of the input (10 MB at K = 20480) and still shares each decoded weight.
constexpr int64_t kRowBlock = kMaxTileRows;
// Columns of the FP32 projection given out at once.
constexpr int64_t kMixColumns = 4;
// Rough costs for cutting work, in ns: one multiply-add, one decoded weight, one prepared input, one byte of weights.
constexpr double kMacNs = 0.05, kDecodeNs = 0.1, kPrepareNs = 0.1, kByteNs = 0.08;

int64_t product_stride(int64_t k) { return blocks_of(k) * kBlock; }
// From one row to the next: an odd number of cache lines, or the rows of a tile would share one set of L1.
int64_t row_stride(int64_t width) { return (width / kPanel | 1) * kPanel; }

void clear_padding(float* row, int64_t k, int64_t stride) {
  for (int64_t i = k; i < stride; ++i) row[i] = 0.0f;
}

// What a product reads of one row and one group: BF16 values, or else codes with scales.
struct Input {
  const Bf16* x;
  const uint8_t* codes;
  const uint8_t* scales;
};

// The input as FP32, padded.
void prepare_floats(const Kernels& kernels, const Input& from, const Matrix& w, float* out) {
  if (from.x)
    load_bf16(from.x, w.k, out);
  else
    kernels.q8_row(from.codes, from.scales, w.k, out);
  const float factor = input_factor(w.format);
  for (int64_t i = 0; factor != 1.0f && i < w.k; ++i) out[i] *= factor;
  clear_padding(out, w.k, product_stride(w.k));
}

// The inputs of `rows` rows of `groups` groups as FP32, one row after another as `stride` says, and where the kernels take them
// as BF16 lines in the same way and as digits, block after block.
struct Inputs {
  float* x;
  Digits* digits;
  Bf16* lines;
  uint8_t* kinds;
  int64_t rows, stride, line_stride;

  // From row `row` of group `group` on, whose blocks begin at `block`.
  void give(MatmulTile& tile, int64_t row, int64_t block = 0) const {
    tile.x = x + row * stride + block * kBlock, tile.x_stride = stride, tile.digits_stride = rows;
    const int64_t at = block * rows + row;
    tile.digits = digits ? digits + at : nullptr;
    tile.lines = lines ? lines + row * line_stride + block * kBlock : nullptr, tile.line_stride = line_stride;
    tile.kinds = kinds ? kinds + at : nullptr;
  }
};

Inputs inputs_for(Context& context, const Kernels& kernels, const Matrix& w, int64_t rows, int groups) {
  const int64_t stride = row_stride(product_stride(w.k) * groups), blocks = blocks_of(w.k) * groups * rows;
  Inputs out = {.x = context.shared.get(rows * stride), .rows = rows, .stride = stride};
  const bool fp4 = w.format == WeightFormat::kFp4;
  constexpr int64_t kFloats = sizeof(Digits) / sizeof(float);
  if (fp4 && kernels.digitise) out.digits = reinterpret_cast<Digits*>(context.digits.get(blocks * kFloats));
  if (!kernels.narrow || (!fp4 && !kernels.own_class)) return out;
  out.line_stride = (blocks_of(w.k) * groups | 1) * kBlock;  // as row_stride()
  const int64_t words = (rows + kPaddingLines) * out.line_stride / 2;
  float* lines = context.lines.get(words + blocks / 4 + 1);
  out.lines = reinterpret_cast<Bf16*>(lines), out.kinds = reinterpret_cast<uint8_t*>(lines + words);
  return out;
}

template <class InputOf>
void prepare_inputs(Context& context, const Kernels& kernels, const Matrix& w, int groups, const Inputs& to, InputOf input_of) {
  const int64_t blocks = blocks_of(w.k);
  context.pool.run(
      to.rows,
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin * groups; i < end * groups; ++i) {
          const int64_t row = i / groups, group = i % groups;
          float* x = to.x + row * to.stride + group * product_stride(w.k);
          prepare_floats(kernels, input_of(row, group), w, x);
          const int64_t at = group * blocks * to.rows + row;
          if (to.digits) kernels.digitise(x, blocks, to.digits + at, to.rows);
          if (!to.lines) continue;
          Bf16* lines = to.lines + row * to.line_stride + group * blocks * kBlock;
          kernels.narrow(w.format, x, blocks, to.digits ? to.digits + at : nullptr, to.rows, lines, to.kinds + at);
        }
      },
      grain_for(kPrepareNs * static_cast<double>(w.k * groups)));
}

// Columns [begin, end) of all rows of the block, cut at group borders.
void run_columns(const Kernels& kernels, const MatmulParams& p, const Inputs& inputs, MatmulTile tile, int64_t begin,
                 int64_t end) {
  const int64_t per_group = p.w.n / p.groups;
  while (begin < end) {
    const int64_t group = begin / per_group, border = std::min(end, (group + 1) * per_group);
    inputs.give(tile, 0, group * blocks_of(p.w.k));
    tile.begin = begin, tile.end = border;
    kernels.matmul(tile);
    begin = border;
  }
}

}  // namespace

void run_matmul(Context& context, const MatmulParams& p) {
  const int64_t n = live(p.rows), k = p.w.k;
  if (n == 0) return;
  context.begin_caller();
  if (context.reader) context.reader->advance();  // so that the disk is never idle for long
  context.count_product(packed_bytes(p.w), p.w, n);
  context.reserve_workers(matmul_scratch(p.w));
  // Groups that begin within a panel are rare (no released size has them).
  const Kernels& kernels = p.groups > 1 && p.w.n / p.groups % kPanel != 0 ? kPortableKernels : context.kernels;
  for (int64_t row0 = 0; row0 < n; row0 += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, n - row0);
    const auto input_of = [&](int64_t row, int64_t group) {
      const int64_t at = ((row0 + row) * p.groups + group) * k;
      return p.x ? Input{p.x + (row0 + row) * p.x_stride + group * k, nullptr, nullptr}
                 : Input{nullptr, p.codes + at, p.scales + at / kScaleBlock};
    };
    const Inputs inputs = inputs_for(context, kernels, p.w, rows, p.groups);
    prepare_inputs(context, kernels, p.w, p.groups, inputs, input_of);
    MatmulTile tile = {};
    tile.rows = rows, tile.w = p.w, tile.bias = p.bias;
    tile.y = static_cast<uint8_t*>(p.y) + row0 * p.y_stride * (p.y_type == OutputType::kF32 ? 4 : 2);
    tile.y_stride = p.y_stride, tile.y_type = p.y_type, tile.y_scale = p.y_scale;
    const double unit_ns = static_cast<double>(kPanel * k) * (kDecodeNs + kMacNs * static_cast<double>(rows));
    context.pool.run((p.w.n + kPanel - 1) / kPanel,
                     [&](int64_t begin, int64_t end, int worker) {
                       MatmulTile mine = tile;
                       mine.scratch = context.worker(worker);
                       run_columns(kernels, p, inputs, mine, begin * kPanel, std::min<int64_t>(p.w.n, end * kPanel));
                     },
                     grain_for(unit_ns));
  }
}

void pack_weight(Context& context, const Matrix& w, uint8_t* panels) {
  const int64_t step = panel_bytes(w);
  context.pool.run((w.n + kPanel - 1) / kPanel,
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t i = begin; i < end; ++i) context.kernels.pack_panel(w, i * kPanel, panels + i * step);
                   },
                   1 + 16384 / step);
}

namespace {

// Notes what the product takes: what can be multiplied now, and what is still on its way.
void choose_experts(Context& context, const GroupedMatmulParams& p) {
  context.ready_experts.clear(), context.coming_experts.clear();
  for (auto* list : {&context.ready_experts, &context.coming_experts}) list->reserve(static_cast<size_t>(p.num_experts));
  const bool keeps = context.experts.room() != nullptr;
  if (keeps) context.experts.begin();
  for (int e = 0; e < p.num_experts; ++e) {
    const int64_t rows = int64_t{p.offsets[e + 1]} - p.offsets[e];
    if (rows == 0) continue;
    ChosenExpert chosen = {e, p.weights[e]};
    const int64_t bytes = packed_bytes(chosen.w);
    context.count_product(bytes, chosen.w, rows);
    bool here = true;
    if (keeps && chosen.w.place >= 0) {
      const ExpertMemory::Found found = context.experts.use(chosen.w.place);
      here = found.panels && !found.is_new;
      context.expert_uses.add(1);
      if (!here) context.expert_misses.add(1), context.missed_bytes.add(bytes);
      if (here) chosen.w.panels = found.panels;
      if (found.is_new) chosen.fill = found.panels;
    }
    if (!here && context.reader) context.reader->want(chosen.w);
    (here || !context.reader ? context.ready_experts : context.coming_experts).push_back(chosen);
  }
  if (context.reader) context.reader->advance();
}

// The next expert behind `i` that lies in the checkpoint only: it is read while `i` is computed.
void ask_for_next(const Context& context, size_t i) {
  if (context.experts.room() && !context.reader && ++i < context.ready_experts.size() && !context.ready_experts[i].w.panels)
    ask_for(context.ready_experts[i].w);
}

// Columns [begin, end) of one expert; what gets a slot is packed there first, while it is in this thread's caches.
void run_expert_columns(Context& context, const GroupedMatmulParams& p, const Inputs& inputs, const ChosenExpert& chosen,
                        int64_t begin, int64_t end, int worker) {
  const int64_t first = p.offsets[chosen.expert], rows = p.offsets[chosen.expert + 1] - first, step = panel_bytes(chosen.w);
  Matrix w = chosen.w;
  for (int64_t c = begin; chosen.fill && c < end; c += kPanel) context.kernels.pack_panel(w, c, chosen.fill + c / kPanel * step);
  if (chosen.fill) w.panels = chosen.fill;
  for (int64_t r = 0; r < rows; r += kRowBlock) {
    MatmulTile tile = {};
    inputs.give(tile, first + r);
    tile.rows = std::min(kRowBlock, rows - r), tile.w = w, tile.begin = begin, tile.end = end;
    tile.y = p.y + (first + r) * w.n, tile.y_stride = w.n, tile.y_type = OutputType::kBf16, tile.y_scale = 1.0f;
    tile.scratch = context.worker(worker);
    context.kernels.matmul(tile);
  }
}

// The ready experts. Work is laid out as one line, expert after expert; a column unit of an expert is as long as its rows plus
// the cost of decoding, so equal cuts of the line are equal work.
void run_ready_experts(Context& context, const GroupedMatmulParams& p, const Inputs& inputs) {
  constexpr int64_t kDecodeRows = 2;
  const int64_t k = p.weights[0].k, n = p.weights[0].n, units = (n + kPanel - 1) / kPanel;
  const auto unit_of = [&](const ChosenExpert& c) { return p.offsets[c.expert + 1] - p.offsets[c.expert] + kDecodeRows; };
  int64_t length = 0;
  for (const ChosenExpert& chosen : context.ready_experts) length += units * unit_of(chosen);
  const auto body = [&](int64_t begin, int64_t end, int worker) {
    int64_t at = 0;
    for (size_t i = 0; i < context.ready_experts.size() && at < end; ++i) {
      const ChosenExpert& chosen = context.ready_experts[i];
      const int64_t unit = unit_of(chosen);
      // A unit belongs to the thread in whose part it starts.
      const int64_t first = std::clamp<int64_t>((begin - at + unit - 1) / unit, 0, units);
      const int64_t last = std::clamp<int64_t>((end - at + unit - 1) / unit, 0, units);
      at += units * unit;
      if (first >= last) continue;
      ask_for_next(context, i);
      run_expert_columns(context, p, inputs, chosen, first * kPanel, std::min(n, last * kPanel), worker);
      if (context.reader && worker == 0) context.reader->advance();  // the calling thread's part: the disk goes on meanwhile
    }
  };
  context.pool.run(length, body, grain_for(static_cast<double>(kPanel * k) * kMacNs));
}

// A read that failed: its rows are zeros, and the next wait says why.
void give_up(Context& context, const GroupedMatmulParams& p, const ChosenExpert& chosen) {
  const int64_t first = p.offsets[chosen.expert], rows = p.offsets[chosen.expert + 1] - first;
  std::fill_n(p.y + first * chosen.w.n, rows * chosen.w.n, Bf16{0});
  context.experts.forget(chosen.w.place);
  if (context.failure) context.failure = context.reader->failure();
}

// Makes those ready that have come.
void take_arrived(Context& context, const GroupedMatmulParams& p) {
  context.ready_experts.clear();
  std::erase_if(context.coming_experts, [&](ChosenExpert& chosen) {
    const Arrival arrival = context.reader->look(chosen.w);
    if (arrival == Arrival::kComing) return false;
    if (arrival == Arrival::kFailed) {
      give_up(context, p, chosen);
      context.reader->let_go(chosen.w.place);
    } else {
      context.ready_experts.push_back(chosen);
    }
    return true;
  });
}

}  // namespace

void run_grouped_matmul(Context& context, const GroupedMatmulParams& p) {
  const int64_t pairs = live(p.pairs);
  if (pairs == 0) return;
  context.begin_caller();
  const int64_t k = p.weights[0].k;
  const Inputs inputs = inputs_for(context, context.kernels, p.weights[0], pairs, 1);
  context.reserve_workers(matmul_scratch(p.weights[0]));
  prepare_inputs(context, context.kernels, p.weights[0], 1, inputs, [&](int64_t i, int64_t) {
    const int64_t row = p.pair_row ? p.pair_row[i] : i;
    return Input{nullptr, p.codes + row * k, p.scales + row * (k / kScaleBlock)};
  });
  choose_experts(context, p);
  run_ready_experts(context, p, inputs);
  while (!context.coming_experts.empty()) {
    take_arrived(context, p);
    if (context.ready_experts.empty() && !context.coming_experts.empty()) context.reader->wait();
    run_ready_experts(context, p, inputs);
    for (const ChosenExpert& chosen : context.ready_experts) context.reader->let_go(chosen.w.place);
    context.reader->advance();
  }
}

// The projection is a matrix product of FP32 rows; the rest is a few hundred operations per row.
void run_mix(Context& context, const MixParams& p) {
  const int64_t n = live(p.rows), k = int64_t{p.streams} * p.hidden, stride = padded(k);
  const int outputs = 2 * p.streams + p.streams * p.streams;
  if (n == 0) return;
  context.count_product(outputs * k * 4, {.n = outputs, .k = static_cast<int32_t>(k)}, n);
  float* x = context.shared.get(std::min(n, kRowBlock) * stride);
  float* dots = context.shared2.get(std::min(n, kRowBlock) * (outputs + 1));
  for (int64_t row0 = 0; row0 < n; row0 += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, n - row0);
    context.pool.run(
        rows,
        [&](int64_t begin, int64_t end, int) {
          for (int64_t r = begin; r < end; ++r) {
            load_bf16(p.x + (row0 + r) * k, static_cast<int>(k), x + r * stride);
            clear_padding(x + r * stride, k, stride);
            dots[r * (outputs + 1) + outputs] = rms_factor(p.x + (row0 + r) * k, static_cast<int>(k), p.eps);
          }
        },
        grain_for(2 * kPrepareNs * static_cast<double>(k)));
    context.pool.run((outputs + kMixColumns - 1) / kMixColumns,
                     [&](int64_t begin, int64_t end, int) {
                       context.kernels.dots({.x = x,
                                             .x_stride = stride,
                                             .rows = rows,
                                             .w = p.fn,
                                             .k = static_cast<int>(k),
                                             .begin = begin * kMixColumns,
                                             .end = std::min<int64_t>(outputs, end * kMixColumns),
                                             .y = dots,
                                             .y_stride = outputs + 1});
                     },
                     grain_for(static_cast<double>(kMixColumns * k) * (4 * kByteNs + kMacNs * static_cast<double>(rows))));
    context.pool.run(
        rows,
        [&](int64_t begin, int64_t end, int) {
          for (int64_t r = begin; r < end; ++r) {
            const float* row = dots + r * (outputs + 1);
            mix_finish(p, row0 + r, row, row[outputs]);
          }
        },
        grain_for(1500));
  }
}

}  // namespace deepinfer::cpu
