// Attention and selection on every kernel set against their definition: bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/test_values.h"

namespace deepinfer {
namespace {

// Pages, states and rows that several operations read.
struct Cache {
  PageView view{};
  std::vector<uint8_t> pages, states, batch_codes, batch_scales;
  std::vector<int32_t> table;
  int64_t state_bytes = 0, ring_codes_bytes = 0;
  int ring_slots = 0;
};

Cache random_cache(Random& random, int head_dim, int index_dim, int ratio, int slots, int pages_per_slot, int batch) {
  Cache c;
  const int entries = 64 / ratio;
  c.view.section = {0, ratio, entries, 0, entries * head_dim / 2, 0, 0};
  c.view.section.index_codes = c.view.section.main_scales + entries * head_dim / 16;
  c.view.section.index_scales = c.view.section.index_codes + entries * index_dim / 2;
  c.view.page_bytes = c.view.section.index_scales + entries * index_dim / 32;
  for (int page = 0; page < slots * pages_per_slot; ++page) {
    for (const auto& part : {random.bytes(entries * head_dim / 2), random.e4m3(entries * head_dim / 16),
                             random.bytes(entries * index_dim / 2), random.e8m0(entries * index_dim / 32)}) {
      c.pages.insert(c.pages.end(), part.begin(), part.end());
    }
    c.table.push_back(slots * pages_per_slot - 1 - page);
  }
  c.view.pages = c.pages.data();
  c.view.table = c.table.data();
  c.view.table_stride = pages_per_slot;
  c.view.head_dim = head_dim;
  c.view.index_dim = index_dim;
  c.ring_slots = 24;
  c.ring_codes_bytes = c.ring_slots * head_dim;
  c.state_bytes = c.ring_codes_bytes + c.ring_slots * head_dim / 32;
  for (int s = 0; s < slots; ++s) {
    for (const auto& part : {random.e4m3(c.ring_codes_bytes), random.e8m0(c.ring_slots * head_dim / 32)}) {
      c.states.insert(c.states.end(), part.begin(), part.end());
    }
  }
  c.batch_codes = random.e4m3(int64_t{batch} * head_dim);
  c.batch_scales = random.e8m0(int64_t{batch} * head_dim / 32);
  return c;
}

TEST(Cpu, AttentionEqualsDefinition) {
  const auto devices = all_devices();
  Random random(4);
  for (int trial = 0; trial < 24; ++trial) {
    const int head_dim = 32 * random.between(1, 5), heads = random.between(1, 9),
              rows = trial % 2 ? random.between(1, 3) : random.between(4, 30);
    const int top_k = random.between(1, 90);
    const Cache cache = random_cache(random, head_dim, 32, 1 + trial % 2, 2, 3, rows);
    const auto q = random.bf16(int64_t{rows} * heads * head_dim);
    const auto sink = random.f32(heads);
    std::vector<WindowSpan> spans;
    std::vector<int32_t> slots, selected;
    for (int r = 0; r < rows; ++r) {
      const int begin = random.below(100);
      spans.push_back({begin, begin + random.below(cache.ring_slots), 0, r + 1});
      if (trial % 5 == 0 && r == 0) spans.back() = {0, 0, 0, 0};
      slots.push_back(random.below(2));
      const int taken = random.below(top_k + 1), limit = 3 * cache.view.section.entries;
      for (int i = 0; i < top_k; ++i) selected.push_back(i < taken ? std::min(limit - 1, i * limit / top_k) : -1);
    }
    const int32_t count = rows;
    AttentionParams p = {};
    p.rows = {&count, rows};
    p.q = q.data();
    p.spans = spans.data();
    p.slots = slots.data();
    p.batch_codes = cache.batch_codes.data();
    p.batch_scales = cache.batch_scales.data();
    p.states = cache.states.data();
    p.state_bytes = cache.state_bytes;
    p.ring_codes_bytes = cache.ring_codes_bytes;
    p.ring_slots = cache.ring_slots;
    p.selected = trial % 4 == 3 ? nullptr : selected.data();
    p.top_k = top_k;
    p.view = cache.view;
    p.sink = sink.data();
    p.heads = heads;
    p.head_dim = head_dim;
    std::vector<Bf16> want(q.size());
    for (int r = 0; r < rows; ++r) {
      const int64_t n = num_slots(p, r);
      std::vector<float> kv(static_cast<size_t>(n * head_dim)), scores(static_cast<size_t>(n));
      for (int64_t j = 0; j < n; ++j) load_slot(p, r, j, &kv[static_cast<size_t>(j * head_dim)]);
      for (int h = 0; h < heads; ++h) {
        const Bf16* query = &q[static_cast<size_t>((r * heads + h) * head_dim)];
        for (int64_t j = 0; j < n; ++j) {
          const float* row = &kv[static_cast<size_t>(j * head_dim)];
          scores[static_cast<size_t>(j)] =
              dot_of(
                  head_dim, [=](int i) { return to_float(query[i]); }, [=](int i) { return row[i]; }) *
              attention_scale(head_dim);
        }
        const float factor =
            n == 0 ? 0.0f : softmax_with_sink(scores.data(), window_slots(p, r), n, sink[static_cast<size_t>(h)]);
        for (int d = 0; d < head_dim; ++d) {
          float sum = 0;
          for (int64_t j = 0; j < n; ++j)
            sum = fma32(scores[static_cast<size_t>(j)], kv[static_cast<size_t>(j * head_dim + d)], sum);
          want[static_cast<size_t>((r * heads + h) * head_dim + d)] = to_bf16(sum * factor);
        }
      }
    }
    for (const auto& device : devices) {
      std::vector<Bf16> got(q.size());
      p.o = got.data();
      device->ops().attention(p);
      EXPECT_TRUE(same_bits(got, want)) << describe(*device) << " rows " << rows << " heads " << heads << " dim " << head_dim;
    }
  }
}

TEST(Cpu, SelectEqualsDefinition) {
  const auto devices = all_devices();
  Random random(5);
  for (int trial = 0; trial < 36; ++trial) {
    const int dim = trial % 3 == 0 ? 32 * random.between(1, 4) : 128, heads = random.between(1, 9),
              rows = trial % 2 ? random.between(1, 3) : random.between(4, 20);
    const int ratio = 1 + trial % 2, pages = 4, entries = 64 / ratio * pages, top_k = random.between(1, 50);
    Cache cache = random_cache(random, 32, dim, ratio, 2, pages, 1);
    auto q = random.bf16(int64_t{rows} * heads * dim);
    const auto w = random.bf16(int64_t{rows} * heads);
    if (trial % 3 != 0) {
      // As index_query leaves them, with scales near enough for whole numbers or not: blocks of keys spread over `spread`
      // binades.
      const int spread = 1 + trial % 11;
      for (size_t i = 0; i < q.size(); i += 32) {
        const float scale = trial % 7 == 1 && random.below(9) == 0 ? 0.0f : std::exp2(static_cast<float>(random.below(4) - 3));
        for (size_t j = i; j < i + 32; ++j) q[j] = to_bf16(e2m1_to_float(static_cast<uint8_t>(random.word() & 15)) * scale);
      }
      for (int page = 0; page < 2 * pages; ++page) {
        uint8_t* scales = cache.pages.data() + page * cache.view.page_bytes + cache.view.section.index_scales;
        for (int i = 0; i < cache.view.section.entries * dim / 32; ++i)
          scales[i] = static_cast<uint8_t>(120 + random.below(spread));
      }
    }
    std::vector<int32_t> slots, positions;
    for (int r = 0; r < rows; ++r) {
      slots.push_back(random.below(2));
      positions.push_back(random.below(64 * pages));
    }
    const int32_t count = rows, block = 8, blocks = random.between(1, 40);
    for (const auto mode : {SelectMode::kAll, SelectMode::kPublishCandidates, SelectMode::kWithinCandidates}) {
      // Candidates to read: every second block that has a visible entry.
      std::vector<int32_t> given(static_cast<size_t>(rows * blocks), -1);
      for (int r = 0; r < rows; ++r) {
        const int visible = (positions[static_cast<size_t>(r)] + 1) / ratio;
        for (int b = 0; b < blocks && 2 * b * block < visible; ++b) given[static_cast<size_t>(r * blocks + b)] = 2 * b;
      }
      std::vector<float> want(static_cast<size_t>(rows * entries), -INFINITY);
      SelectParams p = {};
      p.rows = {&count, rows};
      p.q = q.data();
      p.w = w.data();
      p.slots = slots.data();
      p.positions = positions.data();
      p.view = cache.view;
      p.mode = mode;
      p.max_entries = entries;
      p.heads = heads;
      p.top_k = top_k;
      p.candidate_blocks = blocks;
      p.candidate_block = block;
      p.candidates = given.data();
      for (int r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < num_listed(p, r); ++i) {
          const int64_t entry = listed_entry(p, r, i);
          want[static_cast<size_t>(r * entries + entry)] = index_score(p, r, entry);
        }
      }
      for (const auto& device : devices) {
        std::vector<float> scratch(static_cast<size_t>(device->parallelism() * entries)), got(want.size());
        std::vector<int32_t> selected(static_cast<size_t>(rows * top_k)), candidates = given;
        p.selected = selected.data();
        p.candidates = candidates.data();
        p.score_scratch = scratch.data();
        p.scratch_rows = device->parallelism();
        p.scores_out = got.data();
        device->ops().select(p);
        EXPECT_TRUE(same_bits(got, want)) << describe(*device) << " rows " << rows << " mode " << static_cast<int>(mode);
        for (int r = 0; r < rows; ++r) {
          // The rule, by sorting.
          std::vector<int32_t> order;
          const float* row = &want[static_cast<size_t>(r * entries)];
          for (int j = 0; j < entries; ++j) {
            if (row[j] > -INFINITY) order.push_back(j);
          }
          std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
          order.resize(std::min(order.size(), static_cast<size_t>(top_k)));
          std::sort(order.begin(), order.end());
          order.resize(static_cast<size_t>(top_k), -1);
          EXPECT_TRUE(std::equal(order.begin(), order.end(), selected.begin() + r * top_k)) << describe(*device);
        }
      }
    }
  }
}

TEST(Cpu, VisionAttentionEqualsDefinition) {
  const auto devices = all_devices();
  Random random(6);
  for (int trial = 0; trial < 6; ++trial) {
    const int n = random.between(1, 60), heads = random.between(1, 3), dim = 16 * random.between(1, 5);
    const auto qkv = random.bf16(int64_t{n} * 3 * heads * dim);
    const int32_t count = n;
    VisionAttentionParams p = {};
    p.rows = {&count, n};
    p.qkv = qkv.data();
    p.heads = heads;
    p.dim = dim;
    std::vector<Bf16> want(static_cast<size_t>(n * heads * dim));
    for (int r = 0; r < n; ++r) {
      for (int h = 0; h < heads; ++h) {
        std::vector<float> scores(static_cast<size_t>(n));
        const Bf16* query = vision_part(p, r, 0, h);
        for (int j = 0; j < n; ++j) {
          const Bf16* key = vision_part(p, j, 1, h);
          scores[static_cast<size_t>(j)] =
              dot_of(
                  dim, [=](int i) { return to_float(query[i]); }, [=](int i) { return to_float(key[i]); }) *
              attention_scale(dim);
        }
        const float factor = softmax(scores.data(), n);
        for (int d = 0; d < dim; ++d) {
          float sum = 0;
          for (int j = 0; j < n; ++j) sum = fma32(scores[static_cast<size_t>(j)], to_float(vision_part(p, j, 2, h)[d]), sum);
          want[static_cast<size_t>((r * heads + h) * dim + d)] = to_bf16(sum * factor);
        }
      }
    }
    for (const auto& device : devices) {
      std::vector<Bf16> got(want.size());
      p.o = got.data();
      device->ops().vision_attention(p);
      EXPECT_TRUE(same_bits(got, want)) << describe(*device);
    }
  }
}

}  // namespace
}  // namespace deepinfer
