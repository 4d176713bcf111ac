// Bodies of rows in each set's registers against the portable ones: bit for bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/test_values.h"

namespace deepinfer {
namespace {

// Values with every kind of edge: zeros, infinities, NaN, numbers below and above what e4m3 holds.
std::vector<Bf16> edges(Random& random, int64_t n) {
  std::vector<Bf16> out = random.bf16(n);
  const uint16_t odd[] = {0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x43E0, 0x43E8, 0x7F7F, 0x3C00, 0x3B80};
  for (int64_t i = 0; i < n; i += 1 + random.below(40)) out[static_cast<size_t>(i)] = {odd[random.below(11)]};
  return out;
}

TEST(CpuRows, QuantiseAsThePortableBody) {
  Random random(11);
  constexpr int kRows = 40, kWidth = 96;
  const auto x = edges(random, kRows * kWidth), up = edges(random, kRows * kWidth);
  const int32_t count = kRows;
  std::vector<uint8_t> want[2] = {std::vector<uint8_t>(x.size()), std::vector<uint8_t>(x.size())},
                       want_scales[2] = {want[0], want[0]};
  QuantizeParams plain = {{&count, kRows}, x.data(), want[0].data(), want_scales[0].data(), kWidth};
  SwigluQuantizeParams gated = {{&count, kRows},       x.data(), up.data(), nullptr, nullptr, nullptr, 0, want[1].data(),
                                want_scales[1].data(), kWidth,   7.0f};
  for (int r = 0; r < kRows; ++r) quantize_row(plain, r), swiglu_quantize_row(gated, r);
  for (const auto& device : all_devices()) {
    std::vector<uint8_t> got[2] = {std::vector<uint8_t>(x.size()), std::vector<uint8_t>(x.size())}, scales[2] = {got[0], got[0]};
    plain.codes = got[0].data(), plain.scales = scales[0].data();
    gated.codes = got[1].data(), gated.scales = scales[1].data();
    device->ops().quantize(plain);
    device->ops().swiglu_quantize(gated);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(same_bits(got[i], want[i])) << describe(*device) << " " << i;
      EXPECT_TRUE(same_bits(scales[i], want_scales[i])) << describe(*device) << " " << i;
    }
  }
}

TEST(CpuRows, CollapseAndNormAsThePortableBody) {
  Random random(13);
  constexpr int kRows = 7, kStreams = 4;
  for (const int hidden : {8, 16, 176}) {
    const auto x = random.bf16(int64_t{kRows} * kStreams * hidden), weight = random.bf16(hidden);
    const auto pre = random.f32(kRows * kStreams);
    std::vector<Bf16> want(static_cast<size_t>(kRows * hidden)), want_collapsed = want;
    const int32_t count = kRows;
    CollapseNormParams p = {{&count, kRows},       x.data(), pre.data(), weight.data(), want.data(),
                            want_collapsed.data(), hidden,   kStreams,   1e-6f};
    for (int r = 0; r < kRows; ++r) collapse_norm_row(p, r);
    for (const auto& device : all_devices()) {
      std::vector<Bf16> got(want.size()), collapsed = got;
      p.u = got.data(), p.collapsed = collapsed.data();
      device->ops().collapse_norm(p);
      EXPECT_TRUE(same_bits(got, want) && same_bits(collapsed, want_collapsed)) << describe(*device) << " " << hidden;
    }
  }
}

// The noise of every token, taken plainly.
int32_t plain_draw(const std::vector<float>& logits, const SampleRow& s) {
  int32_t token = -1;
  float best = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i) {
    const float value = logits[static_cast<size_t>(i)] / s.temperature + gumbel({s.seed, s.position, s.stream}, i);
    if (token < 0 || value > best) token = i, best = value;
  }
  return token;
}

TEST(CpuRows, DrawsLeaveOutOnlyWhatCannotWin) {
  Random random(12);
  const auto devices = all_devices();
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> logits(static_cast<size_t>(1 + random.below(700)));
    const float wide = std::exp2(static_cast<float>(random.below(12) - 6));
    for (float& z : logits) z = random.value() * wide;
    SampleRow s = {};
    s.seed = random.word(), s.position = int64_t{random.word()} << trial % 20, s.stream = static_cast<uint32_t>(trial % 2);
    s.temperature = 0.05f + uniform_of(random.word()) * 2, s.top_p = 1, s.repetition_penalty = 1, s.num_logprobs = -1;
    const int32_t want = plain_draw(logits, s), count = 1;
    for (const auto& device : devices) {
      if (device->parallelism() > 1) continue;
      std::vector<float> scratch(2 * logits.size());
      SampleResult result = {};
      SampleParams p = {};
      p.rows = {&count, 1}, p.logits = logits.data(), p.settings = &s, p.scratch = scratch.data(), p.scratch_rows = 1;
      p.results = &result, p.vocab = static_cast<int32_t>(logits.size());
      device->ops().sample(p);
      EXPECT_EQ(result.token, want) << describe(*device) << " " << trial;
    }
  }
}

// Rows of draws with everything that a request can ask for, over logits of which many are the same.
struct Draws {
  static constexpr int kRows = 4, kVocab = 20003, kWords = (kVocab + 31) / 32;
  std::vector<float> logits;
  std::vector<SampleRow> settings = std::vector<SampleRow>(kRows);
  std::vector<int32_t> bias_ids, history;
  std::vector<float> bias_values;
  std::vector<uint32_t> masks;

  Draws(Random& random, int trial) {
    const float wide = trial % 4 == 3 ? 0.25f : 1.0f;
    for (int i = 0; i < kRows * kVocab; ++i) logits.push_back(std::round((random.value() + random.value()) * wide * 8) / 8);
    for (int i = 0; trial % 3 == 2 && i < kRows * kWords; ++i) masks.push_back(random.word() | random.word());
    for (SampleRow& s : settings) {
      s.seed = random.word(), s.position = random.below(1 << 20), s.stream = static_cast<uint32_t>(random.below(2));
      s.temperature = random.below(8) == 0 ? 0.0f : 0.3f + uniform_of(random.word());
      s.top_p = random.below(2) ? uniform_of(random.word()) : 1.0f;
      s.min_p = random.below(3) ? 0.0f : uniform_of(random.word()) * 0.5f;
      s.top_k = random.below(2) ? random.between(1, random.below(2) ? 60 : kVocab) : 0;
      s.repetition_penalty = 1.0f, s.num_logprobs = random.between(-1, kMaxTopLogprobs);
      s.bias_begin = static_cast<int32_t>(bias_ids.size());
      for (int i = random.below(3) * 40; i > 0; --i) bias_ids.push_back(i * 401), bias_values.push_back(random.value());
      s.bias_end = static_cast<int32_t>(bias_ids.size());
      s.history_begin = s.history_end = static_cast<int32_t>(history.size() / 3);
      if (random.below(2)) continue;
      s.frequency_penalty = 0.25f, s.presence_penalty = 0.5f, s.repetition_penalty = 1.25f;
      for (int i = 0; i < 50; ++i) history.insert(history.end(), {i * 397, random.below(3), random.below(2)});
      s.history_end += 50;
    }
  }
  template <class Body>
  std::vector<SampleResult> run(Body body) const {
    std::vector<float> scratch(2 * kRows * kVocab);
    std::vector<SampleResult> results(kRows);
    const int32_t count = kRows;
    SampleParams p = {};
    p.rows = {&count, kRows}, p.logits = logits.data(), p.settings = settings.data(), p.vocab = kVocab;
    p.bias_ids = bias_ids.data(), p.bias_values = bias_values.data(), p.history = history.data();
    p.masks = masks.empty() ? nullptr : masks.data(), p.mask_words = kWords;
    p.scratch = scratch.data(), p.scratch_rows = kRows, p.results = results.data();
    body(p);
    return results;
  }
};

TEST(CpuRows, DrawsWithEverySettingAsThePortableBody) {
  Random random(14);
  const auto devices = all_devices();
  for (int trial = 0; trial < 16; ++trial) {
    const Draws draws(random, trial);
    const auto want = draws.run([](const SampleParams& p) {
      for (int r = 0; r < Draws::kRows; ++r) sample_row(p, r, p.scratch);
    });
    for (const auto& device : devices) {
      const auto got = draws.run([&](const SampleParams& p) { device->ops().sample(p); });
      EXPECT_TRUE(same_bits(got, want)) << describe(*device) << " " << trial;
    }
  }
}

// Scales whose factor, times 256 for codes that become numbers through FP16, is beyond FP32.
TEST(CpuRows, DequantisesEveryScaleAsThePortableBody) {
  Random random(15);
  const auto codes = random.e4m3(256 * kScaleBlock);
  std::vector<uint8_t> scales(256);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(i);
  std::vector<float> want(codes.size()), got(codes.size());
  const auto bits = [](const std::vector<float>& x) {
    std::vector<uint32_t> out;
    for (const float value : x) out.push_back(std::isnan(value) ? 0x7FC00000 : float_bits(value));
    return out;
  };
  dequantize_q8(codes.data(), scales.data(), static_cast<int>(codes.size()), want.data());
  for (const cpu::Kernels* set : {&cpu::kAvx2Kernels, &cpu::kAvx512Kernels, &cpu::kAvx512GfniKernels}) {
    if (!set->supported()) continue;
    set->q8_row(codes.data(), scales.data(), static_cast<int>(codes.size()), got.data());
    EXPECT_EQ(bits(got), bits(want)) << set->isa;
  }
}

}  // namespace
}  // namespace deepinfer
