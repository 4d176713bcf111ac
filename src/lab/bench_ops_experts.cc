// bench ops of routed experts: one product of a layer's 384, six per row, each round with other experts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "lab/bench_ops.h"
#include "lab/bench_ops_shapes.h"

namespace deepinfer {
namespace {

constexpr int32_t kExperts = 384, kTopK = 6, kRounds = 16;

std::string place_of(const Device& device) { return device.name() == "cpu" ? device.isa() : device.name(); }

// All that the rounds of one number of rows read and write.
struct Routed {
  Buffer codes, scales, y, ints;
  GroupedMatmulParams rounds[kRounds];
  int64_t touched = 0;  // experts, over all rounds

  static Result<Routed> make(Device& device, const std::vector<Matrix>& table, int32_t rows, int32_t rounds) {
    Routed out;
    const BenchShape shape = {table[0].format, "", table[0].n, table[0].k};
    const int32_t pairs = rows * kTopK;
    const size_t per_round = static_cast<size_t>(kExperts + 1 + pairs + 1);
    std::vector<int32_t> ints;
    uint32_t word = 1;
    for (int32_t round = 0; round < rounds; ++round) {
      std::vector<std::pair<int32_t, int32_t>> routed;  // expert, row
      for (int32_t r = 0; r < rows; ++r) {
        std::set<int32_t> chosen;
        while (chosen.size() < kTopK) chosen.insert(static_cast<int32_t>((word = word * 1664525 + 1013904223) >> 8) % kExperts);
        for (const int32_t e : chosen) routed.emplace_back(e, r);
      }
      std::sort(routed.begin(), routed.end());
      for (int32_t e = 0, at = 0; e <= kExperts; ++e) {
        ints.push_back(at);
        const int32_t begin = at;
        while (at < pairs && routed[static_cast<size_t>(at)].first == e) ++at;
        out.touched += at > begin;
      }
      for (const auto& [expert, row] : routed) ints.push_back(row);
      ints.push_back(pairs);
    }
    DI_TRY(out.ints, device.allocate(ints.size() * sizeof(int32_t)));
    device.upload(out.ints.as<void>(), ints.data(), ints.size() * sizeof(int32_t));
    const BenchInputs inputs = bench_inputs(rows, shape.k);
    DI_TRY(out.codes, device.allocate(inputs.codes.size()));
    DI_TRY(out.scales, device.allocate(inputs.scales.size()));
    device.upload(out.codes.as<void>(), inputs.codes.data(), inputs.codes.size());
    device.upload(out.scales.as<void>(), inputs.scales.data(), inputs.scales.size());
    DI_TRY(out.y, device.allocate(static_cast<size_t>(pairs) * static_cast<size_t>(shape.n) * 2));
    for (size_t round = 0; round < static_cast<size_t>(rounds); ++round) {
      const auto* at = out.ints.as<int32_t>() + round * per_round;
      out.rounds[round] = {{at + kExperts + 1 + pairs, pairs},
                           out.codes.as<uint8_t>(),
                           out.scales.as<uint8_t>(),
                           at + kExperts + 1,
                           at,
                           table.data(),
                           kExperts,
                           out.y.as<Bf16>()};
    }
    DI_CHECK_OK(device.wait(device.record()));
    return out;
  }
};

Status measure(Device& device, const BenchShape& shape, const std::vector<Matrix>& table, int32_t rows,
               const BenchOpsOptions& options, double bandwidth, double multiply, FigureReport& report) {
  const int32_t rounds = multiply > 0 && rows > 8 ? 2 : kRounds;  // a processor takes seconds for many rows
  DI_TRY(const Routed routed, Routed::make(device, table, rows, rounds));
  std::unique_ptr<Recording> recording;
  double best = 1e30;
  for (int32_t i = 0; i < options.repeats + 2; ++i) {  // the first two warm up and record
    const auto begin = std::chrono::steady_clock::now();
    device.replay(recording, [&] {
      for (int32_t r = 0; r < rounds; ++r) device.ops().grouped_matmul(routed.rounds[r]);
    });
    DI_CHECK_OK(device.wait(device.record()));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= 2) best = std::min(best, took.count());
  }
  FigureRow row{.name = fmt::format("ops/{}/experts/{}x{}/{}", place_of(device), shape.n, shape.k, rows)};
  const double bytes = static_cast<double>(routed.touched) * static_cast<double>(stored_bytes(shape));
  const double work = 2.0 * rounds * kTopK * rows * shape.n * shape.k;
  const double ideal = std::max(bytes / bandwidth, multiply > 0 ? work / multiply : 0);
  row.value = bytes / best / 1e9;
  row.unit = "GB/s";
  row.limit = bytes / ideal / 1e9;
  report.add(row);
  report.add({.name = row.name + "/time", .value = best / rounds * 1e6, .unit = "us"});
  return {};
}

}  // namespace

Status bench_ops_experts(Device& device, const BenchOpsOptions& options, double bandwidth, double multiply,
                         FigureReport& report) {
  for (const BenchShape& shape : kBenchShapes) {
    const std::string name = fmt::format("ops/{}/experts/{}x{}/", place_of(device), shape.n, shape.k);
    if (shape.format != WeightFormat::kFp4 || name.find(options.only) == std::string::npos) continue;
    const int64_t codes = int64_t{shape.n} * shape.k / 2, each = stored_bytes(shape);
    std::vector<uint8_t> one(static_cast<size_t>(each), 127);
    for (int64_t i = 0; i < codes; ++i) one[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 40503 % 251);
    // A device that packs has as many different weights then.
    const int64_t different = device.reads_host_memory() ? 1 : kExperts;
    DI_TRY(const Buffer weights, device.allocate(static_cast<size_t>(each * different)));
    device.upload(weights.as<void>(), one.data(), one.size());
    std::vector<Matrix> table;
    for (int64_t e = 0; e < kExperts; ++e) {
      auto* at = weights.as<uint8_t>(static_cast<size_t>(e % different * each));
      if (e > 0 && e < different) device.copy(at, weights.as<void>(), one.size());
      table.push_back({shape.format, at, at + codes, shape.n, shape.k});
    }
    DI_CHECK_OK(device.wait(device.record()));
    std::vector<Matrix*> all;
    for (Matrix& w : table) all.push_back(&w);
    DI_TRY(const Buffer panels, device.pack(all));
    for (const int32_t rows : options.rows)
      DI_CHECK_OK(measure(device, shape, table, rows, options, bandwidth, multiply, report));
  }
  return {};
}

}  // namespace deepinfer
