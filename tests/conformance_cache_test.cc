// Rotary tables, window rings, pages, selection and attention on every device: bit for bit the portable bodies.
#include <deque>

#include "core/kv_layout.h"
#include "tests/conformance.h"

namespace deepinfer {
namespace {

using Ops = const OpTable&;
using At = const Twin::Side&;

struct Sizes {
  int heads, head_dim, rope_dim, index_heads, index_dim, top_k, candidate_blocks;
};
constexpr Sizes kTinySizes = {4, 64, 32, 2, 32, 24, 5};
constexpr Sizes kReleaseSizes = {64, 512, 64, 32, 128, 512, 100};

// Pages, state blocks and the rows of a step over them.
struct CacheTwin {
  static constexpr int kSlots = 3, kRing = 160, kBatch = 30;

  CacheTwin(Twin& t, Random& random, const Sizes& s, int ratio, int pages_per_slot, int n)
      : sizes(s),
        pages_of_slot(pages_per_slot),
        count(t.count(n)),
        pages(t.in(make_pages(random, ratio))),
        table(t.in(make_table())),
        states(t.in(make_states(random))),
        slots(t.in(below(random, n + 2, kSlots))),
        positions(t.in(below(random, n + 2, 64 * pages_per_slot))),
        write(t.in(random.bytes(n + 2))) {}

  PageView view(At at) const {
    PageView v = shape;
    v.pages = at(pages);
    v.table = at(table);
    return v;
  }

  Sizes sizes;
  int pages_of_slot;
  PageView shape{};
  int64_t state_bytes = 0;
  Twin::Slot<int32_t> count;
  Twin::Slot<uint8_t> pages;
  Twin::Slot<int32_t> table;
  Twin::Slot<uint8_t> states;
  Twin::Slot<int32_t> slots, positions;
  Twin::Slot<uint8_t> write;

 private:
  std::vector<uint8_t> make_pages(Random& random, int ratio) {
    const int entries = 64 / ratio, hd = sizes.head_dim, id = sizes.index_dim;
    shape.section = {0, ratio, entries, 0, int64_t{entries} * hd / 2, 0, 0};
    shape.section.index_codes = shape.section.main_scales + entries * hd / 16;
    shape.section.index_scales = shape.section.index_codes + entries * id / 2;
    shape.page_bytes = shape.section.index_scales + entries * id / 32;
    shape.table_stride = pages_of_slot;
    shape.head_dim = hd;
    shape.index_dim = id;
    std::vector<uint8_t> out;
    for (int page = 0; page < kSlots * pages_of_slot; ++page) {
      for (const auto& part : {random.bytes(entries * hd / 2), random.e4m3(entries * hd / 16), random.bytes(entries * id / 2),
                               random.e8m0(entries * id / 32)}) {
        out.insert(out.end(), part.begin(), part.end());
      }
    }
    return out;
  }
  std::vector<int32_t> make_table() const {
    std::vector<int32_t> out;
    for (int page = kSlots * pages_of_slot; page-- > 0;) out.push_back(page);
    return out;
  }
  std::vector<uint8_t> make_states(Random& random) {
    std::vector<uint8_t> out;
    for (int s = 0; s < kSlots; ++s) {
      for (const auto& part : {random.e4m3(kRing * sizes.head_dim), random.e8m0(kRing * sizes.head_dim / 32)}) {
        out.insert(out.end(), part.begin(), part.end());
      }
    }
    state_bytes = static_cast<int64_t>(out.size()) / kSlots;
    return out;
  }
};

class ConformanceCache : public Conformance {};

TEST_P(ConformanceCache, Rotary) {
  for (const Sizes& s : {kTinySizes, kReleaseSizes}) {
    for (const int n : kRowCounts) {
      Twin t(device());
      const int m = n + 2;
      std::vector<float> freq;
      for (int i = 0; i < s.rope_dim / 2; ++i) freq.push_back(1.0f / static_cast<float>(1 + i * i));
      const auto count = t.count(n), positions = t.in(below(random, m, 1 << 20));
      const auto freqs = t.in(freq);
      const auto table = t.in(random.f32(m * s.rope_dim));
      const auto x = t.in(random.bf16(int64_t{m} * s.heads * s.head_dim));
      t.check("rope_table", [&](Ops ops, At at) {
        ops.rope_table({at.rows(count, n), at(positions), at(freqs), at(table), s.rope_dim / 2});
      });
      for (const int inverse : {0, 1}) {
        t.check("rope", [&](Ops ops, At at) {
          ops.rope({at.rows(count, n), at(x), at(table), s.heads, s.head_dim, s.rope_dim, inverse});
        });
      }
      t.check("index_query", [&](Ops ops, At at) {
        ops.index_query({at.rows(count, n), at(x), at(table), s.index_heads, s.index_dim, s.rope_dim});
      });
      const auto kv = t.in(random.bf16(m * s.head_dim)), weight = t.in(random.bf16(s.head_dim));
      const auto codes = t.out<uint8_t>(m * s.head_dim), scales = t.out<uint8_t>(m * s.head_dim / 32);
      t.check("window_kv", [&](Ops ops, At at) {
        ops.window_kv({at.rows(count, n), at(kv), at(weight), at(table), at(codes), at(scales), s.head_dim, s.rope_dim, 1e-6f});
      });
    }
  }
}

TEST_P(ConformanceCache, RingsPoolsAndEntries) {
  for (const Sizes& s : {kTinySizes, kReleaseSizes}) {
    for (const int n : kRowCounts) {
      for (const int ratio : {1, 2}) {
        Twin t(device());
        const int m = n + 2, hd = s.head_dim;
        CacheTwin c(t, random, s, ratio, 3, n);
        // Runs of neighbouring positions in two slots, as a step has them; no two rows write one place.
        std::vector<int32_t> slots, positions;
        for (int i = 0; i < m; ++i) slots.push_back(i < m / 2 ? 0 : 2), positions.push_back(i < m / 2 ? 5 + i : 40 + i - m / 2);
        const auto slot = t.in(slots), position = t.in(positions);
        const auto codes = t.in(random.e4m3(m * hd)), scales = t.in(random.e8m0(m * hd / 32));
        t.check("ring_write", [&](Ops ops, At at) {
          ops.ring_write({at.rows(c.count, n), at(codes), at(scales), at(slot), at(position), at(c.write), at(c.states),
                          c.state_bytes, 0, CacheTwin::kRing * hd, CacheTwin::kRing, hd});
        });
        const auto value = t.in(random.f32(m * hd)), gate = t.in(random.f32(m * hd));
        const auto latent = t.out<Bf16>(m * hd);
        const auto tails = t.in(random.f32(3 * kTailSlots * 2 * hd));
        t.check("pool_pairs", [&](Ops ops, At at) {
          ops.pool_pairs({at.rows(c.count, n), at(value), at(gate), at(slot), at(position), reinterpret_cast<uint8_t*>(at(tails)),
                          int64_t{kTailSlots} * 2 * hd * 4, 0, at(latent), hd});
        });
        const auto lat = t.in(random.bf16(m * hd)), key = t.in(random.bf16(m * s.index_dim)),
                   norm = t.in(random.bf16(s.index_dim));
        const auto freq = t.in(random.f32(s.rope_dim / 2));
        for (const bool all : {true, false}) {
          t.check("write_entries", [&](Ops ops, At at) {
            ops.write_entries({at.rows(c.count, n), at(lat), at(key), at(norm), at(freq), at(slot), at(position),
                               all ? nullptr : at(c.write), c.view(at), s.rope_dim, 1e-6f});
          });
        }
      }
    }
  }
}

void select_twins(Device& device, Random& random, const Sizes& s) {
  for (const int n : kRowCounts) {
    for (const int ratio : {1, 2}) {
      Twin t(device);
      const int m = n + 2, pages = 20, entries = 64 / ratio * pages, block = 8;
      CacheTwin c(t, random, s, ratio, pages, n);
      const auto q = t.in(random.bf16(int64_t{m} * s.index_heads * s.index_dim)), w = t.in(random.bf16(m * s.index_heads));
      // Every third block; those not visible yet come last and are cut off by the row's own position.
      std::vector<int32_t> given(static_cast<size_t>(m * s.candidate_blocks), -1);
      for (size_t i = 0; i < given.size(); ++i) {
        const int b = static_cast<int>(i) % s.candidate_blocks;
        if (3 * b * block < entries) given[i] = 3 * b;
      }
      const auto candidates = t.in(given), selected = t.out<int32_t>(m * s.top_k);
      const auto scratch = t.scratch<float>(int64_t{t.scratch_rows()} * entries), scores = t.out<float>(int64_t{m} * entries);
      for (const auto mode : {SelectMode::kAll, SelectMode::kWithinCandidates, SelectMode::kPublishCandidates}) {
        t.check("select, mode " + std::to_string(static_cast<int>(mode)), [&](Ops ops, At at) {
          ops.select({at.rows(c.count, n), at(q), at(w), at(c.slots), at(c.positions), c.view(at), mode, at(selected),
                      at(candidates), at(scratch), t.scratch_rows(), entries, at(scores), s.index_heads, s.top_k,
                      s.candidate_blocks, block});
        });
      }
    }
  }
}

// Apart, because a race checker takes minutes for the release's sizes.
TEST_P(ConformanceCache, Select) { select_twins(device(), random, kTinySizes); }
TEST_P(ConformanceCache, SelectRelease) { select_twins(device(), random, kReleaseSizes); }

TEST_P(ConformanceCache, Attention) {
  for (const Sizes& s : {kTinySizes, kReleaseSizes}) {
    for (const int n : kRowCounts) {
      for (const int ratio : {1, 2}) {
        Twin t(device());
        const int m = n + 2, pages = 20, hd = s.head_dim;
        CacheTwin c(t, random, s, ratio, pages, n);
        const auto q = t.in(random.bf16(int64_t{m} * s.heads * hd));
        std::vector<WindowSpan> spans;
        std::vector<int32_t> selected;
        for (int r = 0; r < m; ++r) {
          const int begin = random.below(1000), batch = random.below(CacheTwin::kBatch);
          spans.push_back({begin, begin + random.below(129), batch, std::min(CacheTwin::kBatch, batch + random.below(9))});
          if (r == 1) spans.back() = {0, 0, 0, 0};
          const int taken = random.below(s.top_k + 1), limit = 64 / ratio * pages;
          for (int i = 0; i < s.top_k; ++i) selected.push_back(i < taken ? i * limit / s.top_k : -1);
        }
        const auto span = t.in(spans);
        const auto codes = t.in(random.e4m3(CacheTwin::kBatch * hd)), scales = t.in(random.e8m0(CacheTwin::kBatch * hd / 32));
        const auto chosen = t.in(selected);
        const auto sink = t.in(random.f32(s.heads));
        const auto o = t.out<Bf16>(int64_t{m} * s.heads * hd);
        for (const bool window_only : {false, true}) {
          t.check("attention", [&](Ops ops, At at) {
            ops.attention({at.rows(c.count, n), at(q), at(span), at(c.slots), at(codes), at(scales), at(c.states), c.state_bytes,
                           0, CacheTwin::kRing * hd, CacheTwin::kRing, window_only ? nullptr : at(chosen),
                           window_only ? 0 : s.top_k, c.view(at), at(sink), at(o), s.heads, hd});
          });
        }
      }
    }
  }
}

// Copies in and out, small ones and such as cross the bus beside other work, between pages that are written again and again: the
// host sees what was there when its copy was asked for.
TEST_P(ConformanceCache, CopiesKeepTheirOrder) {
  constexpr int kBuffers = 3, kRounds = 200;
  constexpr size_t kBytes = size_t{3} << 20;
  struct Landed {
    std::vector<uint8_t> want, got;
  };
  std::vector<Buffer> buffers;
  std::vector<std::vector<uint8_t>> model(kBuffers, std::vector<uint8_t>(kBytes));
  for (int i = 0; i < kBuffers; ++i) {
    auto buffer = device().allocate(kBytes);
    ASSERT_TRUE(buffer.ok());
    buffers.push_back(*std::move(buffer));
  }
  std::vector<std::vector<uint8_t>> sent;  // untouched until the end
  std::deque<Landed> landed;
  for (int round = 0; round < kRounds; ++round) {
    const auto to = static_cast<size_t>(random.below(kBuffers)), from = static_cast<size_t>(random.below(kBuffers));
    const size_t bytes = round % 20 == 0 ? kBytes : static_cast<size_t>(1 + random.below(100'000));
    const auto at = static_cast<size_t>(random.below(static_cast<int>(kBytes - bytes) + 1));
    switch (random.below(3)) {
      case 0:
        sent.emplace_back(bytes, static_cast<uint8_t>(random.word()));
        device().upload(buffers[to].as<uint8_t>(at), sent.back().data(), bytes);
        std::copy(sent.back().begin(), sent.back().end(), model[to].begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        if (to == from) break;
        device().copy(buffers[to].as<uint8_t>(at), buffers[from].as<uint8_t>(at), bytes);
        std::copy_n(model[from].begin() + static_cast<std::ptrdiff_t>(at), bytes,
                    model[to].begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        landed.push_back({{&model[from][at], &model[from][at] + bytes}, std::vector<uint8_t>(bytes)});
        device().download(landed.back().got.data(), buffers[from].as<uint8_t>(at), bytes);
    }
    if (round % 7 != 0) continue;
    ASSERT_TRUE(device().wait(device().record()).ok());
    for (const Landed& l : landed) ASSERT_TRUE(l.got == l.want) << "round " << round;
    landed.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceCache, testing::Values("delayed", "cuda", "portable", "eager"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer
