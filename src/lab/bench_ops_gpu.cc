// bench ops on a GPU: weights as stored, enough of them that no cache keeps them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cuda/cuda_device.h"
#include "lab/bench_ops.h"
#include "lab/bench_ops_shapes.h"

namespace deepinfer {
namespace {

// All that one shape's products read and write, on the device.
class ProductSet {
 public:
  static Result<ProductSet> make(Device& device, const BenchShape& shape, int64_t weight_bytes, int32_t rows) {
    ProductSet out;
    out.count_ = std::max<int64_t>(1, weight_bytes / stored_bytes(shape));
    const int64_t count = int64_t{shape.n} * shape.k, codes = count * bits_of(shape.format) / 8;
    const int64_t scales = shape.format == WeightFormat::kBf16  ? 0
                           : shape.format == WeightFormat::kFp4 ? count / 32
                                                                : count / 1024;
    out.step_ = (codes + scales + 255) / 256 * 256;
    std::vector<uint8_t> one(static_cast<size_t>(out.step_), 127);
    for (int64_t i = 0; i < codes; ++i) one[static_cast<size_t>(i)] = static_cast<uint8_t>(0x30 + i * 40503 % 13);
    DI_TRY(out.weights_, device.allocate(static_cast<size_t>(out.step_ * out.count_)));
    device.upload(out.weights_.as<void>(), one.data(), one.size());
    for (int64_t i = 1; i < out.count_; ++i) {
      device.copy(out.weights_.as<void>(static_cast<size_t>(i * out.step_)), out.weights_.as<void>(), one.size());
    }
    // Inputs as the model gives them: BF16, or codes with scales; 0x3C39 is 0.011, 0x39 is 1.125 or 2^-70.
    const size_t inputs = static_cast<size_t>(rows) * static_cast<size_t>(shape.k);
    DI_TRY(out.x_, device.allocate(inputs * 2));
    const std::vector<uint16_t> values(inputs, 0x3C39);
    device.upload(out.x_.as<void>(), values.data(), inputs * 2);
    DI_TRY(out.y_, device.allocate(static_cast<size_t>(rows) * static_cast<size_t>(shape.n) * 4));
    DI_TRY(out.rows_, device.allocate(sizeof(int32_t)));
    device.upload(out.rows_.as<void>(), &rows, sizeof rows);
    out.params_.rows = {out.rows_.as<int32_t>(), rows};
    if (shape.format == WeightFormat::kBf16) {
      out.params_.x = out.x_.as<Bf16>();
      out.params_.x_stride = shape.k;
    } else {
      out.params_.codes = out.x_.as<uint8_t>();
      out.params_.scales = out.x_.as<uint8_t>(inputs);
    }
    out.params_.w = {shape.format, nullptr, nullptr, shape.n, shape.k};
    out.params_.groups = 1;
    out.params_.y = out.y_.as<void>();
    out.params_.y_type = OutputType::kF32;
    out.params_.y_stride = shape.n;
    out.params_.y_scale = 1.0f;
    out.scales_at_ = codes;
    DI_CHECK_OK(device.wait(device.record()));
    return out;
  }

  int64_t count() const { return count_; }

  void multiply_all(Device& device) {
    for (int64_t i = 0; i < count_; ++i) {
      params_.w.data = weights_.as<void>(static_cast<size_t>(i * step_));
      params_.w.scales = weights_.as<uint8_t>(static_cast<size_t>(i * step_ + scales_at_));
      device.ops().matmul(params_);
    }
  }

 private:
  static int bits_of(WeightFormat format) { return format == WeightFormat::kBf16 ? 16 : format == WeightFormat::kFp4 ? 4 : 8; }

  Buffer weights_, x_, y_, rows_;
  MatmulParams params_ = {};
  int64_t count_ = 0, step_ = 0, scales_at_ = 0;
};

}  // namespace

Status bench_ops_gpu(Device& device, const BenchOpsOptions& options, FigureReport& report) {
  const double bandwidth = measure_cuda_read(device);
  report.add({.name = "memory/read", .value = bandwidth / 1e9, .unit = "GB/s"});
  for (const BenchShape& shape : kBenchShapes) {
    for (const int32_t rows : options.rows) {
      const int64_t bytes = rows == 1 ? options.weight_bytes : options.weight_bytes / std::min(rows, 16);
      DI_TRY(ProductSet set, ProductSet::make(device, shape, bytes, rows));
      std::unique_ptr<Recording> recording;
      double best = 1e30;
      for (int32_t i = 0; i < options.repeats + 2; ++i) {  // the first two warm up and record
        const auto begin = std::chrono::steady_clock::now();
        device.replay(recording, [&] { set.multiply_all(device); });
        DI_CHECK_OK(device.wait(device.record()));
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (i >= 2) best = std::min(best, took.count());
      }
      const auto count = static_cast<double>(set.count());
      FigureRow row{.name = fmt::format("ops/{}/{}/{}x{}/{}", device.name(), shape.name, shape.n, shape.k, rows)};
      row.value = rows == 1 ? count * static_cast<double>(stored_bytes(shape)) / best / 1e9
                            : 2.0 * count * rows * shape.n * shape.k / best / 1e9;
      row.unit = rows == 1 ? "GB/s" : "GFLOP/s";
      if (rows == 1) row.limit = bandwidth / 1e9;
      report.add(std::move(row));
    }
  }
  return bench_ops_experts(device, options, bandwidth, 0, report);
}

}  // namespace deepinfer
