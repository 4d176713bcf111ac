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

void clear_padding(float* row, int64_t k, int64_t stride) {
  for (int64_t i = k; i < stride; ++i) row[i] = 0.0f;
}

void scale_input(float* row, int64_t k, WeightFormat format) {
  const float factor = input_factor(format);
  if (factor == 1.0f) return;
  for (int64_t i = 0; i < k; ++i) row[i] *= factor;
}

// Row `row` of the input as FP32, each group padded.
void prepare_row(const Kernels& kernels, const MatmulParams& p, int64_t row, float* out) {
  const int64_t k = p.w.k, stride = product_stride(k);
  for (int g = 0; g < p.groups; ++g, out += stride) {
    if (p.x) {
      load_bf16(p.x + row * p.x_stride + g * k, static_cast<int>(k), out);
    } else {
      const int64_t at = (row * p.groups + g) * k;
      kernels.q8_row(p.codes + at, p.scales + at / kScaleBlock, static_cast<int>(k), out);
    }
    scale_input(out, k, p.w.format);
    clear_padding(out, k, stride);
  }
}

// Columns [begin, end) of all rows of the block, cut at group borders.
void run_columns(Context& context, const MatmulParams& p, const float* x, int64_t row0, int64_t rows, int64_t begin, int64_t end,
                 int worker) {
  const int64_t k = product_stride(p.w.k), per_group = p.w.n / p.groups;
  const int64_t element = p.y_type == OutputType::kF32 ? 4 : 2;
  // Groups that begin within a panel are rare (no released size has them).
  const Kernels& kernels = p.groups > 1 && per_group % kPanel != 0 ? kPortableKernels : context.kernels;
  while (begin < end) {
    const int64_t group = begin / per_group, border = std::min(end, (group + 1) * per_group);
    kernels.matmul({.x = x + group * k,
                    .x_stride = k * p.groups,
                    .rows = rows,
                    .w = p.w,
                    .begin = begin,
                    .end = border,
                    .bias = p.bias,
                    .y = static_cast<uint8_t*>(p.y) + row0 * p.y_stride * element,
                    .y_stride = p.y_stride,
                    .y_type = p.y_type,
                    .y_scale = p.y_scale,
                    .scratch = context.worker(worker)});
    begin = border;
  }
}

}  // namespace

void run_matmul(Context& context, const MatmulParams& p) {
  const int64_t n = live(p.rows), width = product_stride(p.w.k) * p.groups;
  if (n == 0) return;
  float* x = context.shared.get(std::min(n, kRowBlock) * width);
  context.reserve_workers(matmul_scratch(p.w));
  for (int64_t row0 = 0; row0 < n; row0 += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, n - row0);
    context.pool.run(
        rows,
        [&](int64_t begin, int64_t end, int) {
          for (int64_t r = begin; r < end; ++r) prepare_row(context.kernels, p, row0 + r, x + r * width);
        },
        grain_for(kPrepareNs * static_cast<double>(width)));
    const double unit_ns = static_cast<double>(kPanel * p.w.k) * (kDecodeNs + kMacNs * static_cast<double>(rows));
    context.pool.run((p.w.n + kPanel - 1) / kPanel,
                     [&](int64_t begin, int64_t end, int worker) {
                       run_columns(context, p, x, row0, rows, begin * kPanel, std::min<int64_t>(p.w.n, end * kPanel), worker);
                     },
                     grain_for(unit_ns));
  }
}

void run_grouped_matmul(Context& context, const GroupedMatmulParams& p) {
  const int64_t pairs = live(p.pairs);
  if (pairs == 0) return;
  const int64_t k = p.weights[0].k, stride = product_stride(k), n = p.weights[0].n;
  float* x = context.shared.get(pairs * stride);
  context.reserve_workers(matmul_scratch(p.weights[0]));
  context.pool.run(
      pairs,
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = p.pair_row ? p.pair_row[i] : i;
          context.kernels.q8_row(p.codes + row * k, p.scales + row * (k / kScaleBlock), static_cast<int>(k), x + i * stride);
          scale_input(x + i * stride, k, p.weights[0].format);
        }
      },
      grain_for(kPrepareNs * static_cast<double>(k)));
  // Work is laid out as one line, expert after expert; a column unit of an expert is as long as its rows plus the cost of
  // decoding, so equal cuts of the line are equal work.
  constexpr int64_t kDecodeRows = 2;
  const int64_t units = (n + kPanel - 1) / kPanel;
  const auto rows_of = [&](int e) { return int64_t{p.offsets[e + 1]} - p.offsets[e]; };
  int64_t length = 0;
  for (int e = 0; e < p.num_experts; ++e) length += rows_of(e) > 0 ? units * (rows_of(e) + kDecodeRows) : 0;
  const auto body = [&](int64_t begin, int64_t end, int worker) {
    int64_t at = 0;
    for (int e = 0; e < p.num_experts && at < end; ++e) {
      const int64_t rows = rows_of(e), unit = rows + kDecodeRows;
      if (rows == 0) continue;
      // A unit belongs to the thread in whose part it starts.
      const int64_t first = std::clamp<int64_t>((begin - at + unit - 1) / unit, 0, units);
      const int64_t last = std::clamp<int64_t>((end - at + unit - 1) / unit, 0, units);
      at += units * unit;
      if (first >= last) continue;
      for (int64_t r = 0; r < rows; r += kRowBlock) {
        context.kernels.matmul({.x = x + (p.offsets[e] + r) * stride,
                                .x_stride = stride,
                                .rows = std::min(kRowBlock, rows - r),
                                .w = p.weights[e],
                                .begin = first * kPanel,
                                .end = std::min(n, last * kPanel),
                                .bias = nullptr,
                                .y = p.y + (p.offsets[e] + r) * n,
                                .y_stride = n,
                                .y_type = OutputType::kBf16,
                                .y_scale = 1.0f,
                                .scratch = context.worker(worker)});
      }
    }
  };
  context.pool.run(length, body, grain_for(static_cast<double>(kPanel * k) * kMacNs));
}

// The projection is a matrix product of FP32 rows; the rest is a few hundred operations per row.
void run_mix(Context& context, const MixParams& p) {
  const int64_t n = live(p.rows), k = int64_t{p.streams} * p.hidden, stride = padded(k);
  const int outputs = 2 * p.streams + p.streams * p.streams;
  if (n == 0) return;
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
