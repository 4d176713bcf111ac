#include "model/vision.h"

#include <cstring>
#include <functional>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr float kVisionEps = 1e-6f;

class Tower {
 public:
  Tower(Device& device, const ModelShape& shape, const VisionWeights& weights, PatchGrid grid, const VisionProbe& probe)
      : device_(device), ops_(device.ops()), s_(*shape.vision), hidden_(shape.hidden), w_(weights), grid_(grid), probe_(probe) {}

  // Aligner rows [cells, hidden] on the host.
  Result<std::vector<uint16_t>> run(std::span<const uint16_t> patches);

 private:
  int32_t patches() const { return grid_.rows * grid_.columns; }
  int32_t cells() const {
    return ((grid_.rows + s_.downsample - 1) / s_.downsample) * ((grid_.columns + s_.downsample - 1) / s_.downsample);
  }
  Status allocate();
  void block(int32_t index, const VisionBlockWeights& w);
  void linear(Rows rows, const Bf16* x, const Matrix& w, const Bf16* bias, Bf16* y) {
    ops_.matmul({.rows = rows,
                 .x = x,
                 .codes = nullptr,
                 .scales = nullptr,
                 .x_stride = w.k,
                 .w = w,
                 .groups = 1,
                 .bias = bias,
                 .y = y,
                 .y_type = OutputType::kBf16,
                 .y_stride = w.n,
                 .y_scale = 1.0f});
  }
  void norm(const Bf16* x, const Bf16* weight, Bf16* y) {
    ops_.rms_norm(
        {.rows = rows_, .x = x, .weight = weight, .y = y, .width = s_.hidden, .stride_x = s_.hidden, .eps = kVisionEps});
  }
  void pointwise(Rows rows, PointwiseKind kind, const Bf16* a, const Bf16* b, Bf16* y, int32_t width) {
    ops_.pointwise({.rows = rows, .kind = kind, .a = a, .b = b, .y = y, .width = width});
  }
  void probe(const char* name, int32_t block, Bf16* data, int32_t rows, int32_t width) {
    if (probe_) probe_(name, block, data, rows, width);
  }

  Device& device_;
  const OpTable& ops_;
  const VisionShape& s_;
  int32_t hidden_;
  const VisionWeights& w_;
  PatchGrid grid_;
  const VisionProbe& probe_;

  Buffer memory_;
  Rows rows_{}, cell_rows_{};
  int32_t* grid_positions_ = nullptr;
  Bf16 *input_ = nullptr, *x_ = nullptr, *normed_ = nullptr, *qkv_ = nullptr, *o_ = nullptr, *branch_ = nullptr, *wide_ = nullptr,
       *act_ = nullptr, *unfolded_ = nullptr, *cell_ = nullptr, *gelu_ = nullptr, *out_ = nullptr;
  float* scratch_ = nullptr;
  std::vector<int32_t> host_positions_;
  int32_t host_counts_[2] = {0, 0};
};

Status Tower::allocate() {
  const int64_t n = patches(), c = cells();
  int64_t bytes = 0;
  int64_t at[16];
  const int64_t sizes[16] = {8,
                             n * 8,
                             n * w_.patch_embed.k * 2,
                             n * s_.hidden * 2,
                             n * s_.hidden * 2,
                             n * s_.hidden * 3 * 2,
                             n * s_.hidden * 2,
                             n * s_.hidden * 2,
                             n * s_.intermediate * 2 * 2,
                             n * s_.intermediate * 2,
                             c * w_.aligner_w1.k * 2,
                             c * hidden_ * 2,
                             c * hidden_ * 2,
                             c * hidden_ * 2,
                             device_.parallelism() * n * 4,
                             0};
  for (int i = 0; i < 16; ++i) {
    at[i] = bytes;
    bytes += (sizes[i] + 127) / 128 * 128;
  }
  DI_TRY(memory_, device_.allocate(static_cast<size_t>(bytes)));
  auto* counts = memory_.as<int32_t>(static_cast<size_t>(at[0]));
  rows_ = {counts, patches()};
  cell_rows_ = {counts + 1, cells()};
  grid_positions_ = memory_.as<int32_t>(static_cast<size_t>(at[1]));
  Bf16** pointers[] = {&input_, &x_, &normed_, &qkv_, &o_, &branch_, &wide_, &act_, &unfolded_, &cell_, &gelu_, &out_};
  for (int i = 0; i < 12; ++i) *pointers[i] = memory_.as<Bf16>(static_cast<size_t>(at[i + 2]));
  scratch_ = memory_.as<float>(static_cast<size_t>(at[14]));
  host_counts_[0] = patches();
  host_counts_[1] = cells();
  device_.upload(counts, host_counts_, sizeof host_counts_);
  for (int32_t row = 0; row < grid_.rows; ++row) {
    for (int32_t column = 0; column < grid_.columns; ++column) host_positions_.insert(host_positions_.end(), {row, column});
  }
  device_.upload(grid_positions_, host_positions_.data(), host_positions_.size() * sizeof(int32_t));
  return {};
}

void Tower::block(int32_t index, const VisionBlockWeights& w) {
  const int32_t head_dim = s_.hidden / s_.heads;
  norm(x_, w.norm1, normed_);
  linear(rows_, normed_, w.wqkv, w.wqkv_bias, qkv_);
  ops_.vision_rope({.rows = rows_,
                    .qkv = qkv_,
                    .grid = grid_positions_,
                    .heads = s_.heads,
                    .dim = head_dim,
                    .theta = static_cast<float>(s_.rope_theta)});
  ops_.vision_attention({.rows = rows_,
                         .qkv = qkv_,
                         .o = o_,
                         .scratch = scratch_,
                         .scratch_rows = device_.parallelism(),
                         .heads = s_.heads,
                         .dim = head_dim});
  linear(rows_, o_, w.wo, w.wo_bias, branch_);
  pointwise(rows_, PointwiseKind::kAdd, x_, branch_, x_, s_.hidden);
  norm(x_, w.norm2, normed_);
  linear(rows_, normed_, w.w1, nullptr, wide_);
  pointwise(rows_, PointwiseKind::kSiluMul, wide_, nullptr, act_, s_.intermediate);
  linear(rows_, act_, w.w2, nullptr, branch_);
  pointwise(rows_, PointwiseKind::kAdd, x_, branch_, x_, s_.hidden);
  probe("block", index, x_, patches(), s_.hidden);
}

Result<std::vector<uint16_t>> Tower::run(std::span<const uint16_t> patches_in) {
  DI_CHECK_OK(allocate());
  device_.upload(input_, patches_in.data(), patches_in.size_bytes());
  linear(rows_, input_, w_.patch_embed, w_.patch_bias, x_);
  probe("patch_embed", 0, x_, patches(), s_.hidden);
  for (size_t i = 0; i < w_.blocks.size(); ++i) block(static_cast<int32_t>(i), w_.blocks[i]);
  norm(x_, w_.norm, normed_);
  probe("vit_out", 0, normed_, patches(), s_.hidden);
  ops_.unfold({.x = normed_,
               .y = unfolded_,
               .grid_h = grid_.rows,
               .grid_w = grid_.columns,
               .channels = s_.hidden,
               .downsample = s_.downsample});
  linear(cell_rows_, unfolded_, w_.aligner_w1, w_.aligner_b1, cell_);
  pointwise(cell_rows_, PointwiseKind::kGelu, cell_, nullptr, gelu_, hidden_);
  linear(cell_rows_, gelu_, w_.aligner_w2, w_.aligner_b2, out_);
  probe("aligner_out", 0, out_, cells(), hidden_);
  std::vector<uint16_t> rows(static_cast<size_t>(cells()) * static_cast<size_t>(hidden_));
  device_.download(rows.data(), out_, rows.size() * sizeof(uint16_t));
  DI_CHECK_OK(device_.wait(device_.record()));
  return rows;
}

}  // namespace

std::vector<SpanRole> span_roles(PatchGrid grid, int32_t downsample) {
  const int32_t cell_rows = (grid.rows + downsample - 1) / downsample;
  const int32_t cell_columns = (grid.columns + downsample - 1) / downsample;
  std::vector<SpanRole> roles{SpanRole::kStart};
  for (int32_t row = 0; row < cell_rows; ++row) {
    roles.insert(roles.end(), static_cast<size_t>(cell_columns), SpanRole::kImage);
    roles.push_back(SpanRole::kNewline);
  }
  roles.push_back(SpanRole::kEnd);
  return roles;
}

Result<VisionSpan> encode_image(Device& device, const ModelShape& shape, const Weights& weights,
                                std::span<const uint16_t> patches, PatchGrid grid, const VisionProbe& probe) {
  if (!shape.vision || !weights.vision) return unsupported("this checkpoint has no vision tower: send text only");
  const int64_t expected = int64_t{grid.rows} * grid.columns * weights.vision->patch_embed.k;
  if (grid.rows <= 0 || grid.columns <= 0 || static_cast<int64_t>(patches.size()) != expected) {
    return invalid_argument(
        fmt::format("an image of {} x {} patches needs {} values, got {}", grid.rows, grid.columns, expected, patches.size()));
  }
  Tower tower(device, shape, *weights.vision, grid, probe);
  DI_TRY(const std::vector<uint16_t> cells, tower.run(patches));
  VisionSpan span;
  span.roles = span_roles(grid, shape.vision->downsample);
  const size_t width = static_cast<size_t>(shape.hidden);
  span.embeddings.resize(span.roles.size() * width);
  const Bf16* learned[] = {weights.image_start, nullptr, weights.image_newline, weights.image_end};
  size_t cell = 0;
  for (size_t i = 0; i < span.roles.size(); ++i) {
    const bool image = span.roles[i] == SpanRole::kImage;
    const void* row = image ? static_cast<const void*>(&cells[cell++ * width]) : learned[static_cast<int32_t>(span.roles[i])];
    std::memcpy(&span.embeddings[i * width], row, width * sizeof(uint16_t));
  }
  return span;
}

}  // namespace deepinfer
