// bench ops of what is no product with a weight: selection, attention, streams, router, Engram, sampler, at release sizes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "base/huge_pages.h"
#include "core/kv_layout.h"
#include "lab/bench_ops.h"
#include "model/random_checkpoint.h"

namespace deepinfer {
namespace {

constexpr int64_t kContext = 32768, kLongContext = 131072;
constexpr int32_t kSites = 80, kTableRows = 1 << 22;  // of Engram: more than caches hold

// Rows of an Engram table, which takes longest to fill.
struct EngramTable {
  explicit EngramTable(int32_t dim)
      : codes(static_cast<size_t>(kTableRows) * static_cast<size_t>(dim), 0x35), scales(codes.size() / 32, 127) {}
  HugeVector<uint8_t> codes, scales;
};

// All that the operations read and write, of `n` rows.
struct World {
  const EngramTable& table;
  ModelShape s;
  int32_t n;
  KvLayout layout = make_kv_layout(s);
  PageSection section = layout.sections[0];
  int64_t pages = kLongContext / kPageTokens, entries = pages * section.entries, columns = s.engram_columns();
  int64_t wide = int64_t{s.streams} * s.hidden, outputs = 2 * s.streams + s.streams * s.streams;
  HugeVector<Bf16> x = values(n * std::max<int64_t>(wide, int64_t{s.heads} * s.head_dim)), y = x;
  HugeVector<Bf16> pairs = values(n * std::max<int64_t>(s.experts_per_token, s.streams + 1) * s.hidden);
  HugeVector<float> floats = HugeVector<float>(static_cast<size_t>(std::max<int64_t>(n, 16) * s.vocab), 0.25f), out = floats;
  HugeVector<float> fn = HugeVector<float>(static_cast<size_t>(kSites * outputs * wide), 0.01f), scratch;
  HugeVector<uint8_t> page_bytes = HugeVector<uint8_t>(static_cast<size_t>(pages * layout.page_bytes), 0x35);
  HugeVector<uint8_t> states = HugeVector<uint8_t>(static_cast<size_t>(layout.state_bytes), 0x35);
  HugeVector<uint8_t> codes = HugeVector<uint8_t>(static_cast<size_t>(n * wide), 0x35),
                      scales = HugeVector<uint8_t>(codes.size(), 127);
  HugeVector<float> sure = floats;
  HugeVector<Bf16> index_q = HugeVector<Bf16>(static_cast<size_t>(n * s.index_heads * s.index_dim));
  std::vector<int64_t> hashes = std::vector<int64_t>(static_cast<size_t>(n * columns));
  std::vector<int32_t> page_table = std::vector<int32_t>(static_cast<size_t>(pages)),
                       slots = std::vector<int32_t>(static_cast<size_t>(n));
  std::vector<int32_t> positions = std::vector<int32_t>(static_cast<size_t>(n), kContext - 1);
  std::vector<int32_t> far_positions = std::vector<int32_t>(static_cast<size_t>(n), kLongContext - 1);
  std::vector<int32_t> candidates = std::vector<int32_t>(static_cast<size_t>(n * s.candidate_blocks));
  std::vector<int32_t> pair_of = std::vector<int32_t>(static_cast<size_t>(n * s.experts_per_token));
  std::vector<int32_t> selected = std::vector<int32_t>(static_cast<size_t>(n * s.index_topk));
  std::vector<int32_t> ids = std::vector<int32_t>(static_cast<size_t>(n * s.experts_per_token));
  std::vector<WindowSpan> spans = std::vector<WindowSpan>(static_cast<size_t>(n), WindowSpan{0, s.window, 0, 0});
  std::vector<SampleRow> draws = std::vector<SampleRow>(static_cast<size_t>(n));
  std::vector<SampleResult> results = std::vector<SampleResult>(static_cast<size_t>(n));

  World(ModelShape shape, int32_t rows, int32_t parallelism, const EngramTable& engram)
      : table(engram),
        s(std::move(shape)),
        n(rows),
        scratch(static_cast<size_t>(parallelism) * static_cast<size_t>(std::max<int64_t>(2 * s.vocab, entries))) {
    for (size_t i = 0; i < page_table.size(); ++i) {
      page_table[i] = static_cast<int32_t>(i);
      uint8_t* page = page_bytes.data() + static_cast<int64_t>(i) * layout.page_bytes;
      for (int64_t j = 0; j < section.entries * int64_t{s.index_dim} / 2; ++j)
        page[section.index_codes + j] = static_cast<uint8_t>((j + static_cast<int64_t>(i)) * 40503 >> 3);
      std::memset(page + section.index_scales, 127, static_cast<size_t>(section.entries * int64_t{s.index_dim} / 32));
    }
    for (size_t i = 0; i < hashes.size(); ++i) hashes[i] = static_cast<int64_t>(i * 2654435761u % kTableRows);
    for (size_t i = 0; i < selected.size(); ++i)
      selected[i] = static_cast<int32_t>(static_cast<int64_t>(i) % s.index_topk * entries / s.index_topk);
    for (size_t i = 0; i < candidates.size(); ++i)
      candidates[i] =
          static_cast<int32_t>(static_cast<int64_t>(i) % s.candidate_blocks * (entries / s.candidate_block) / s.candidate_blocks);
    for (size_t i = 0; i < pair_of.size(); ++i) pair_of[i] = static_cast<int32_t>(i);
    // As index_query leaves them: e2m1 times a power of two.
    for (size_t i = 0; i < index_q.size(); ++i) {
      const auto value = e2m1_to_float(static_cast<uint8_t>(i * 40503 >> 3 & 15));
      index_q[i] = to_bf16(value * (i / 32 % 2 != 0 ? 0.25f : 0.125f));
    }
    for (SampleRow& draw : draws) draw = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1, .draft = -1};
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i * 40503 % 1000) * 0.01f;
    for (size_t i = 0; i < sure.size(); ++i) sure[i] = floats[i] + (i % static_cast<size_t>(s.vocab) == 5000 ? 30.0f : 0.0f);
    std::memset(states.data() + layout.ring_codes_bytes, 127, static_cast<size_t>(layout.ring_bytes - layout.ring_codes_bytes));
  }
  static HugeVector<Bf16> values(int64_t count) {
    HugeVector<Bf16> out(static_cast<size_t>(count));
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_bf16(static_cast<float>(i * 40503 % 201) * 0.01f - 1);
    return out;
  }
  Rows rows() const { return {&n, n}; }
  PageView view() { return {page_bytes.data(), layout.page_bytes, page_table.data(), 0, section, s.head_dim, s.index_dim}; }
};

// One operation: what it must read and compute, of all rows.
struct Case {
  const char* name;
  double bytes, flops;
  std::function<void(const OpTable&, int)> run;  // with the number of the call
};

std::vector<Case> cases(World& w, int32_t parallelism) {
  const ModelShape& s = w.s;
  const auto n = static_cast<double>(w.n), wide = static_cast<double>(w.wide), hidden = static_cast<double>(s.hidden);
  const double head = s.heads * s.head_dim, index = static_cast<double>(s.index_heads) * s.index_dim;
  const double slots = s.window + s.index_topk, key = s.index_dim * 0.53125, far = static_cast<double>(w.entries),
               seen = far * kContext / kLongContext, within = static_cast<double>(s.candidate_blocks) * s.candidate_block;
  float* scores = w.scratch.data();
  const auto select = [&w, &s, scores, parallelism](const std::vector<int32_t>& positions, SelectMode mode) {
    return [&w, &s, &positions, mode, scores, parallelism](const OpTable& ops, int) {
      ops.select({w.rows(), w.index_q.data(), w.x.data(), w.slots.data(), positions.data(), w.view(), mode, w.selected.data(),
                  w.candidates.data(), scores, parallelism, w.entries, nullptr, s.index_heads, s.index_topk, s.candidate_blocks,
                  s.candidate_block});
    };
  };
  const auto sample = [&w, &s, scores, parallelism](const HugeVector<float>& logits, SampleRow draw) {
    return [&w, &s, &logits, draw, scores, parallelism](const OpTable& ops, int) {
      for (SampleRow& row : w.draws) row = draw;
      SampleParams p = {};
      p.rows = w.rows(), p.logits = logits.data(), p.settings = w.draws.data(), p.scratch = scores;
      p.scratch_rows = parallelism, p.results = w.results.data(), p.vocab = s.vocab;
      ops.sample(p);
    };
  };
  SampleRow draw = w.draws[0], greedy = draw, nucleus = draw;
  greedy.temperature = 0, nucleus.top_p = 0.95f;
  return {
      {"select", seen * key, 2 * n * index * seen, select(w.positions, SelectMode::kAll)},
      {"select_128k", far * key, 2 * n * index * far, select(w.far_positions, SelectMode::kAll)},
      {"select_128k/publish", far * key, 2 * n * index * far, select(w.far_positions, SelectMode::kPublishCandidates)},
      {"select_128k/within", within * key, 2 * n * index * within, select(w.far_positions, SelectMode::kWithinCandidates)},
      {"attention", slots * s.head_dim, 4 * n * head * slots,
       [&w, &s](const OpTable& ops, int) {
         ops.attention({w.rows(), w.x.data(), w.spans.data(), w.slots.data(), nullptr, nullptr, w.states.data(),
                        w.layout.state_bytes, 0, w.layout.ring_codes_bytes, w.layout.ring_slots, w.selected.data(), s.index_topk,
                        w.view(), w.floats.data(), w.y.data(), s.heads, s.head_dim});
       }},
      {"mix", static_cast<double>(w.outputs) * wide * 4, 2 * n * static_cast<double>(w.outputs) * wide,
       [&w, &s](const OpTable& ops, int call) {
         ops.mix({w.rows(), w.x.data(), w.fn.data() + call % kSites * w.outputs * w.wide, w.floats.data(), w.floats.data(),
                  w.out.data(), w.out.data() + w.n * 4, w.out.data() + w.n * 8, s.hidden, s.streams, s.sinkhorn_iters, s.rms_eps,
                  s.hc_eps});
       }},
      {"collapse_norm", n * (wide + hidden) * 2, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.collapse_norm(
             {w.rows(), w.x.data(), w.floats.data(), w.x.data(), w.y.data(), nullptr, s.hidden, s.streams, s.rms_eps});
       }},
      {"expand", n * (2 * wide + hidden) * 2, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.expand({w.rows(), w.x.data(), w.floats.data(), w.floats.data(), w.y.data(), s.hidden, s.streams});
       }},
      {"rms_norm", n * hidden * 4, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.rms_norm({w.rows(), w.x.data(), w.x.data(), w.y.data(), s.hidden, s.hidden, s.rms_eps});
       }},
      {"index_query", n * index * 4, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.index_query({w.rows(), w.y.data(), w.floats.data(), s.index_heads, s.index_dim, s.rope_dim});
       }},
      {"window_kv", n * s.head_dim * 3, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.window_kv({w.rows(), w.x.data(), w.x.data(), w.floats.data(), w.codes.data(), w.scales.data(), s.head_dim,
                        s.rope_dim, s.rms_eps});
       }},
      {"write_entries", n * (2.5625 * s.head_dim + 2.53125 * s.index_dim), 0,
       [&w, &s](const OpTable& ops, int) {
         ops.write_entries({w.rows(), w.x.data(), w.x.data(), w.x.data(), w.floats.data(), w.slots.data(), w.far_positions.data(),
                            nullptr, w.view(), s.rope_dim, s.rms_eps});
       }},
      {"combine", n * hidden * 2 * (s.experts_per_token + 2), 0,
       [&w, &s](const OpTable& ops, int) {
         ops.combine({w.rows(), w.pairs.data(), w.pair_of.data(), w.x.data(), w.y.data(), s.experts_per_token, s.hidden});
       }},
      {"engram_mix", n * (3 * wide + hidden) * 2, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.engram_mix(
             {w.rows(), w.pairs.data(), w.x.data(), w.x.data(), nullptr, w.y.data(), nullptr, s.hidden, s.streams, s.rms_eps});
       }},
      {"quantize", n * hidden * 3, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.quantize({w.rows(), w.x.data(), w.codes.data(), w.scales.data(), s.hidden});
       }},
      {"rope", n * head * 4, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.rope({w.rows(), w.y.data(), w.floats.data(), s.heads, s.head_dim, s.rope_dim, 0});
       }},
      {"route", n * s.experts * 4, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.route({w.rows(), w.floats.data(), w.out.data(), w.out.data(), nullptr, w.ids.data(), w.out.data() + s.experts,
                    s.experts, s.experts_per_token, s.routed_scaling});
       }},
      {"swiglu_quantize", n * s.expert_hidden * 5, 0,
       [&w, &s](const OpTable& ops, int) {
         ops.swiglu_quantize({w.rows(), w.x.data(), w.x.data(), nullptr, nullptr, nullptr, 0, w.codes.data(), w.scales.data(),
                              s.expert_hidden, s.swiglu_limit});
       }},
      {"engram_gather", n * static_cast<double>(w.columns) * (s.engram_dim * 1.03125), 0,
       [&w, &s](const OpTable& ops, int call) {
         for (int64_t& row : w.hashes) row = (row * 40503 + call) % kTableRows;
         ops.engram_gather({w.rows(), w.hashes.data(), w.table.codes.data(), w.table.scales.data(), w.y.data(),
                            static_cast<int32_t>(w.columns), s.engram_dim});
       }},
      {"sample", n * s.vocab * 4, 0, sample(w.floats, draw)},
      {"sample/sure", n * s.vocab * 4, 0, sample(w.sure, draw)},
      {"sample/top_p", n * s.vocab * 4, 0, sample(w.floats, nucleus)},
      {"sample/sure/top_p", n * s.vocab * 4, 0, sample(w.sure, nucleus)},
      {"sample/greedy", n * s.vocab * 4, 0, sample(w.floats, greedy)},
  };
}

double seconds_a_call(const OpTable& ops, const Case& c, int32_t repeats) {
  constexpr double kLeast = 0.02;
  double best = 1e30;
  int calls = 1, number = 0;
  for (int32_t repeat = 0; repeat < repeats + 1;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) c.run(ops, number++);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (took.count() < kLeast) {
      calls *= 2;
      continue;
    }
    if (repeat++ > 0) best = std::min(best, took.count() / calls);
  }
  return best;
}

}  // namespace

Status bench_ops_rows(Device& device, const BenchOpsOptions& options, const RowLimits& limits, FigureReport& report) {
  DI_TRY(const RandomSpec spec, parse_random_spec("v41"));
  const EngramTable table(spec.shape.engram_dim);
  for (const int32_t rows : {1, 8, 64}) {
    World world(spec.shape, rows, device.parallelism(), table);
    for (const Case& c : cases(world, device.parallelism())) {
      FigureRow row{.name = fmt::format("ops/{}/{}/{}", device.isa(), c.name, rows)};
      if (row.name.find(options.only) == std::string::npos) continue;
      const double took = seconds_a_call(device.ops(), c, options.repeats);
      const bool scores = std::string_view(c.name).starts_with("select");
      const double ideal = std::max(c.bytes / limits.bandwidth, c.flops / (scores ? limits.scores : limits.multiply));
      const double amount = c.flops > 0 ? c.flops : c.bytes;
      row.value = amount / took / 1e9;
      row.unit = c.flops > 0 ? "GFLOP/s" : "GB/s";
      row.limit = amount / ideal / 1e9;
      report.add(row);
      report.add({.name = row.name + "/time", .value = took * 1e6, .unit = "us"});
    }
  }
  return {};
}

}  // namespace deepinfer
