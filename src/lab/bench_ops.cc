#include "lab/bench_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/machine.h"
#include "cpu/cpu_device.h"
#include "host/open_device.h"
#include "lab/bench_ops_shapes.h"
#include "lab/measure_machine.h"

namespace deepinfer {
namespace {

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Different weights of one shape, packed for a device. The codes come from a counter, without the smallest seven of e4m3 and
// their like: real weights hardly have them (0.01 % of the shipped model's), and FP32 below the normal range costs a hundred
// cycles.
class WeightSet {
 public:
  static Result<WeightSet> make(Device& device, const BenchShape& shape, int64_t bytes) {
    WeightSet out;
    const int64_t count = std::max<int64_t>(1, bytes / stored_bytes(shape));
    std::vector<uint16_t> codes(static_cast<size_t>(shape.n) * static_cast<size_t>(shape.k));
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto low = static_cast<uint16_t>(8 + i * 40503 % 112), sign = static_cast<uint16_t>(i * 7919 % 2 << 7);
      codes[i] = static_cast<uint16_t>(0x3C00 | sign | low);
    }
    const std::vector<uint8_t> scales(codes.size() / 32, 127);
    out.matrices_.assign(static_cast<size_t>(count), {shape.format, codes.data(), scales.data(), shape.n, shape.k});
    std::vector<Matrix*> list;
    for (Matrix& w : out.matrices_) list.push_back(&w);
    DI_TRY(out.room_, device.pack(list));
    if (!out.matrices_[0].panels) return unsupported("bench ops: these kernels read weights as stored");
    // Kernels read scales of f8 tiles as stored.
    out.scales_ = scales;
    for (Matrix& w : out.matrices_) w.scales = out.scales_.data(), w.data = nullptr;
    return out;
  }
  const std::vector<Matrix>& matrices() const { return matrices_; }

 private:
  std::vector<Matrix> matrices_;
  std::vector<uint8_t> scales_;
  Buffer room_;
};

// The first `count` weights of the set once, `rows` rows each.
void multiply_all(Device& device, const WeightSet& set, size_t count, int32_t rows, const BenchInputs& x, std::vector<float>& y) {
  for (size_t i = 0; i < count; ++i) {
    const Matrix& w = set.matrices()[i];
    MatmulParams p = {};
    p.rows = {&rows, rows};
    p.codes = x.codes.data();
    p.scales = x.scales.data();
    p.w = w;
    p.groups = 1;
    p.y = y.data();
    p.y_type = OutputType::kF32;
    p.y_stride = w.n;
    p.y_scale = 1.0f;
    device.ops().matmul(p);
  }
}

// The limits of a kernel set in this run.
struct Limits {
  double bandwidth, multiply, multiply_fp4;  // bytes and FLOPs a second
};

std::string row_name(const Device& device, const BenchShape& shape, int32_t rows) {
  return fmt::format("ops/{}/{}/{}x{}/{}", device.isa(), shape.name, shape.n, shape.k, rows);
}

// What multiplies at the limit: of e4m3 and BF16 weights, FP4 weights, index scores.
std::string unit_name(const CpuKernelsInfo& kernels, std::string_view what) {
  const auto has = [&](std::string_view part) { return kernels.isa.find(part) != std::string::npos; };
  if (kernels.own_class || (what == "fp4" && has("amx"))) return "AMX BF16";
  if (what == "f8" || has("portable")) return "FP32 FMA";
  return has("vnni") || has("gfni") || has("amx") ? "VNNI int8" : "int8 pairs";
}

Status measure_shape(Device& device, const BenchShape& shape, const Limits& limits, const BenchOpsOptions& options,
                     FigureReport& report) {
  std::vector<int32_t> wanted = options.rows;
  std::erase_if(wanted, [&](int32_t rows) { return row_name(device, shape, rows).find(options.only) == std::string::npos; });
  if (wanted.empty()) return {};
  DI_TRY(const WeightSet set, WeightSet::make(device, shape, options.weight_bytes));
  double one_row = 0;  // seconds per weight
  for (const int32_t rows : wanted) {
    // Many rows need no large set: the time is the multiply units'.
    const size_t all = set.matrices().size(), count = rows <= 8 ? all : std::min<size_t>(all, 8);
    const BenchInputs x = bench_inputs(rows, shape.k);
    std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(shape.n));
    double best = 1e30;
    for (int32_t i = 0; i < options.repeats; ++i)
      best = std::min(best, seconds_of([&] { multiply_all(device, set, count, rows, x, y); }));
    best /= static_cast<double>(count);
    const double work = 2.0 * rows * shape.n * shape.k, bytes = static_cast<double>(stored_bytes(shape));
    const double ideal =
        std::max(bytes / limits.bandwidth, work / (shape.format == WeightFormat::kFp4 ? limits.multiply_fp4 : limits.multiply));
    FigureRow row{.name = row_name(device, shape, rows)};
    const double amount = rows == 1 ? bytes : work;
    row.value = amount / best / 1e9;
    row.unit = rows == 1 ? "GB/s" : "GFLOP/s";
    row.limit = amount / ideal / 1e9;
    if (rows == 1) one_row = best;
    if (rows > 1 && rows <= 8 && one_row > 0) row.baseline = "time of one row", row.ratio = best / one_row;
    report.add(std::move(row));
  }
  return {};
}

// The output head: as few rows as decoding has, by one set of kernels, where memory holds it as made and packed.
Status measure_head(Device& device, const Limits& limits, BenchOpsOptions options, FigureReport& report) {
  constexpr BenchShape kHead = {WeightFormat::kBf16, "head", 129280, 5120};
  if (available_memory() < 4 * stored_bytes(kHead)) return {};
  std::erase_if(options.rows, [](int32_t rows) { return rows > 8; });
  return measure_shape(device, kHead, limits, options, report);
}

}  // namespace

Status bench_ops(const BenchOpsOptions& options, FigureReport& report) {
  if (!options.device.starts_with("cpu")) {
    DI_TRY(const auto device, open_device(options.device, options.threads));
    return bench_ops_gpu(*device, options, report);
  }
  DI_TRY(const auto named, open_device(options.device, options.threads));  // a name nobody has is an error
  const std::string isa = cpu_kernels_of(options.device);
  const double bandwidth = measure_read_bandwidth(options.threads);
  report.add({.name = "memory/read", .value = bandwidth / 1e9, .unit = "GB/s"});
  for (const CpuKernelsInfo& kernels : list_cpu_kernels()) {
    if (isa.empty() ? !kernels.supported || kernels.isa == "portable" : kernels.isa != isa) continue;
    DI_TRY(const auto device, make_cpu_device({.threads = options.threads, .isa = kernels.isa}));
    const Limits limits = {bandwidth, 2 * measure_multiply_adds(kernels.isa, options.threads, WeightFormat::kF8Tile),
                           2 * measure_multiply_adds(kernels.isa, options.threads, WeightFormat::kFp4)};
    const double scores = 2 * measure_multiply_scores(kernels.isa, options.threads);
    report.add({.name = fmt::format("multiply/{}", kernels.isa),
                .value = limits.multiply / 1e9,
                .unit = "GFLOP/s of " + unit_name(kernels, "f8")});
    for (const auto& [what, rate] : {std::pair{"fp4", limits.multiply_fp4}, {"scores", scores}}) {
      if (kernels.own_class) break;
      report.add({.name = fmt::format("multiply/{}/{}", kernels.isa, what),
                  .value = rate / 1e9,
                  .unit = "GFLOP/s of " + unit_name(kernels, what),
                  .baseline = "FP32 units",
                  .ratio = rate / limits.multiply});
    }
    for (const BenchShape& shape : kBenchShapes) DI_CHECK_OK(measure_shape(*device, shape, limits, options, report));
    if (named->isa() == kernels.isa) DI_CHECK_OK(measure_head(*device, limits, options, report));
    DI_CHECK_OK(bench_ops_experts(*device, options, bandwidth, limits.multiply_fp4, report));
    // A class of its own has the rows of the best other set.
    if (!kernels.own_class) DI_CHECK_OK(bench_ops_rows(*device, options, {bandwidth, limits.multiply, scores}, report));
  }
  return {};
}

}  // namespace deepinfer
