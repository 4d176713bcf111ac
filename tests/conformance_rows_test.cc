// Row operations, quantisers, streams, experts, Engram and draft heads on every device: bit for bit the portable bodies.
#include "tests/conformance.h"

namespace deepinfer {
namespace {

using Ops = const OpTable&;
using At = const Twin::Side&;

// Tiny and release widths.
constexpr int kHidden[] = {64, 352, 5120};

TEST_P(Conformance, EmbedAndGather) {
  for (const int hidden : kHidden) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const auto count = t.count(n);
      std::vector<int32_t> tokens = below(random, n + 2, 20), images;
      tokens[0] = -1;
      for (int i = 0; i < n + 2; ++i) images.push_back(random.below(3) - 1);
      const auto ids = t.in(tokens), image = t.in(images);
      const auto table = t.in(random.bf16(20 * hidden)), rows = t.in(random.bf16(2 * hidden));
      const auto x = t.out<Bf16>(int64_t{n + 2} * 4 * hidden);
      const auto pre = t.out<float>((n + 2) * 4);
      t.check("embed", [&](Ops ops, At at) {
        ops.embed({at.rows(count, n), at(ids), at(image), at(table), at(rows), at(x), at(pre), hidden, 4});
      });
      std::vector<SampleResult> results(5);
      for (SampleResult& result : results) result = {.token = random.below(20) - 1};
      std::vector<int32_t> named = below(random, n + 2, 20);
      for (int32_t& token : named) token -= token < 10 ? 1 + token + random.below(5) : 0;  // -5 to -1: a draw
      const auto draws = t.in(results);
      const auto drawn = t.in(named);
      t.check("take_draws", [&](Ops ops, At at) { ops.take_draws({at.rows(count, n), at(draws), at(drawn)}); });
      for (const int64_t bytes : {int64_t{16}, int64_t{hidden} * 8, int64_t{hidden} * 8 - 4}) {
        Twin g(device());
        const auto live = g.count(n);
        std::vector<int32_t> index;
        for (int i = 0; i < n + 2; ++i) index.push_back(random.below(12) - 1);
        const auto from = g.in(index);
        const auto src = g.in(random.bytes(12 * bytes));
        const auto dst = g.out<uint8_t>((n + 2) * bytes);
        g.check("gather_rows", [&](Ops ops, At at) { ops.gather_rows({at.rows(live, n), at(from), at(src), at(dst), bytes}); });
      }
    }
  }
}

TEST_P(Conformance, NormsAndStreams) {
  for (const int hidden : kHidden) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2, s = 4;
      const auto count = t.count(n);
      const auto x = t.in(random.bf16(int64_t{m} * s * hidden)), w = t.in(random.bf16(hidden)), y = t.in(random.bf16(m * hidden));
      const auto fn = t.in(random.f32(int64_t{24} * s * hidden)), base = t.in(random.f32(24)), scale = t.in(random.f32(3));
      const auto pre = t.in(random.f32(m * s)), post = t.in(random.f32(m * s)), comb = t.in(random.f32(m * s * s));
      const auto u = t.out<Bf16>(m * hidden), collapsed = t.out<Bf16>(m * hidden);
      t.check("rms_norm", [&](Ops ops, At at) {
        ops.rms_norm({at.rows(count, n), at(x), at(w), at(u), hidden, s * hidden, 1e-6f});
      });
      t.check("mix", [&](Ops ops, At at) {
        ops.mix(
            {at.rows(count, n), at(x), at(fn), at(base), at(scale), at(pre), at(post), at(comb), hidden, s, 20, 1e-6f, 1e-6f});
      });
      t.check("collapse_norm", [&](Ops ops, At at) {
        ops.collapse_norm({at.rows(count, n), at(x), at(pre), at(w), at(u), at(collapsed), hidden, s, 1e-6f});
      });
      t.check("expand", [&](Ops ops, At at) { ops.expand({at.rows(count, n), at(y), at(post), at(comb), at(x), hidden, s}); });
      t.check("tap", [&](Ops ops, At at) { ops.tap({at.rows(count, n), at(x), at(u), hidden, 0, hidden, s}); });
    }
  }
}

TEST_P(Conformance, QuantizeAndGatedUnit) {
  for (const int width : {32, 2304, 5120}) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2, top_k = 6;
      const auto count = t.count(n);
      const auto x = t.in(random.bf16(m * width)), up = t.in(random.bf16(m * width));
      const auto codes = t.out<uint8_t>(m * width), scales = t.out<uint8_t>(m * width / 32);
      const auto weights = t.in(random.f32(m * top_k));
      const auto pair_row = t.in(below(random, m, m)), pair_slot = t.in(below(random, m, top_k));
      t.check("quantize", [&](Ops ops, At at) { ops.quantize({at.rows(count, n), at(x), at(codes), at(scales), width}); });
      t.check("swiglu_quantize", [&](Ops ops, At at) {
        ops.swiglu_quantize({at.rows(count, n), at(x), at(up), at(weights), at(pair_row), at(pair_slot), top_k, at(codes),
                             at(scales), width, 10.0f});
      });
      t.check("swiglu_quantize, shared", [&](Ops ops, At at) {
        ops.swiglu_quantize(
            {at.rows(count, n), at(x), at(up), nullptr, nullptr, nullptr, 0, at(codes), at(scales), width, 10.0f});
      });
    }
  }
}

TEST_P(Conformance, Routing) {
  struct Shape {
    int experts, top_k;
  };
  for (const auto [experts, top_k] : {Shape{4, 2}, Shape{96, 3}, Shape{384, 6}}) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2, first = experts / 4, local = experts / 2;
      const auto count = t.count(n);
      auto logits = random.f32(m * experts);
      for (int i = 0; i < 3; ++i) logits[static_cast<size_t>(random.below(experts))] = logits[0];  // ties
      const auto logit = t.in(logits), bias = t.in(std::vector<float>(static_cast<size_t>(experts), 0.25f));
      const auto bias_image = t.in(random.f32(experts));
      const auto image = t.in(random.bytes(m));
      const auto ids = t.in(below(random, m * top_k, experts));
      const auto weights = t.out<float>(m * top_k);
      t.check("route", [&](Ops ops, At at) {
        ops.route({at.rows(count, n), at(logit), at(bias), at(bias_image), n % 2 ? nullptr : at(image), at(ids), at(weights),
                   experts, top_k, 1.5f});
      });
      const auto pair_row = t.out<int32_t>(m * top_k), pair_slot = t.out<int32_t>(m * top_k), pair_of = t.out<int32_t>(m * top_k);
      const auto offsets = t.out<int32_t>(local + 1), pairs = t.out<int32_t>(1), home = t.out<int32_t>(m * top_k);
      t.check("group_pairs", [&](Ops ops, At at) {
        ops.group_pairs(
            {at.rows(count, n), at(ids), at(pair_row), at(pair_slot), at(pair_of), at(offsets), at(pairs), top_k, first, local});
      });
      t.check("expert_home", [&](Ops ops, At at) {
        ops.expert_home({at.rows(count, n), at(ids), at(home), top_k, (experts + 1) / 2, m * top_k});
      });
    }
  }
}

TEST_P(Conformance, Combine) {
  for (const int width : kHidden) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2, top_k = 6;
      std::vector<int32_t> of;
      for (int i = 0; i < m * top_k; ++i) of.push_back(random.below(31) - 1);
      const auto count = t.count(n), pair_of = t.in(of);
      const auto y = t.in(random.bf16(30 * width)), shared = t.in(random.bf16(m * width));
      const auto out = t.out<Bf16>(m * width);
      t.check("combine", [&](Ops ops, At at) {
        ops.combine({at.rows(count, n), at(y), at(pair_of), at(shared), at(out), top_k, width});
      });
    }
  }
}

TEST_P(Conformance, Engram) {
  const int layers = 2, ngram = 3, heads = 8, columns = (ngram - 1) * heads, ring = 64, vocab = 50, dim = 256;
  for (const int hidden : kHidden) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2;
      const auto count = t.count(n);
      std::vector<int32_t> slots, positions;
      for (int i = 0; i < m; ++i) slots.push_back(i % 9 < 7 ? 0 : 1), positions.push_back(i % 9 < 7 ? i / 9 * 7 + i % 9 : i);
      std::vector<int64_t> primes, offsets, multipliers;
      for (int i = 0; i < layers * columns; ++i) primes.push_back(1009 + 2 * i), offsets.push_back(1200 * i);
      for (int i = 0; i < layers * ngram; ++i) multipliers.push_back(int64_t{random.below(1 << 30)} * 1234567);
      const auto tokens = t.in(below(random, m, vocab)), slot = t.in(slots), position = t.in(positions),
                 map = t.in(below(random, vocab, 30));
      const auto image = t.in(std::vector<uint8_t>(static_cast<size_t>(m), n % 3 == 0)), write = t.in(random.bytes(m));
      const auto states = t.in(std::vector<uint8_t>(2 * ring * 4, 0));
      const auto multiplier = t.in(multipliers), prime = t.in(primes), offset = t.in(offsets);
      const auto rows = t.in(std::vector<int64_t>(static_cast<size_t>(layers * m * columns), 5));
      t.check("engram_hash", [&](Ops ops, At at) {
        ops.engram_hash({at.rows(count, n), at(tokens), at(image), at(slot), at(position), at(write), at(map), at(states),
                         ring * 4, 0, ring, at(multiplier), at(prime), at(offset), at(rows), layers, ngram, heads, 3});
      });
      const auto codes = t.in(random.e4m3(8 * dim)), scales = t.in(random.e8m0(8 * dim / 32));
      const auto e = t.out<Bf16>(int64_t{m} * columns * dim);
      t.check("engram_gather", [&](Ops ops, At at) {
        ops.engram_gather({at.rows(count, n), at(rows), at(codes), at(scales), at(e), columns, dim});
      });
      const auto kvv = t.in(random.bf16(int64_t{m} * 5 * hidden)), qw = t.in(random.bf16(4 * hidden)),
                 kw = t.in(random.bf16(4 * hidden));
      const auto x = t.in(random.bf16(int64_t{m} * 4 * hidden));
      const auto gates = t.out<float>(m * 4);
      t.check("engram_mix", [&](Ops ops, At at) {
        ops.engram_mix({at.rows(count, n), at(kvv), at(qw), at(kw), at(image), at(x), at(gates), hidden, 4, 1e-6f});
      });
    }
  }
}

TEST_P(Conformance, DraftHeads) {
  const int vocab = 1003;
  for (const int rank : {16, 256}) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2, hidden = rank * 20;
      auto tokens = below(random, m * 2, vocab);
      tokens[0] = -1;
      const auto count = t.count(n), prev = t.in(tokens);
      const auto base = t.in(random.f32(int64_t{m} * vocab)), logits = t.out<float>(int64_t{m} * vocab), conf = t.out<float>(m);
      const auto embed = t.in(random.bf16(vocab * rank)), head = t.in(random.bf16(vocab * rank));
      const auto x = t.in(random.bf16(m * hidden)), proj = t.in(random.bf16(hidden + rank));
      t.check("markov", [&](Ops ops, At at) {
        ops.markov({at.rows(count, n), at(base), vocab, at(prev), 2, at(embed), at(head), at(logits), vocab, vocab, rank});
      });
      t.check("confidence", [&](Ops ops, At at) {
        ops.confidence({at.rows(count, n), at(x), hidden, at(prev), 2, at(embed), at(proj), at(conf), 1, hidden, rank});
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::Values("delayed", "cuda", "portable", "eager"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer
