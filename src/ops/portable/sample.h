// ops/portable/sample.h - one draw from one row of logits (determinism.md sections 4 rule 6 and 6).
//
// Order: bias, penalties, mask, temperature, top-k, top-p, min-p, Gumbel argmax; or, against a draft, rejection. A logit that is
// not finite can never be drawn. Kept sets are prefixes of (logit descending, id ascending). Probabilities add up as integers of
// 2^-40 of the largest one, so that sums have no order and top-p needs no sort. Cost at 129k tokens: one pass for argmax, one
// more for a draw (noise is made only for tokens that can still win), four each for top-k and top-p. Host body; a GPU implements
// the same rules its own way.
#pragma once

#include "ops/portable/dot.h"
#include "ops/portable/random.h"
#include "ops/portable/select.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

inline constexpr int kDrawLanes = 64;             // of passes over a row: enough to hide the latency of a maximum
inline constexpr float kNever = -3.40282347e38f;  // stands for "cannot be drawn" in the row's working copy

// Floats of scratch of one row.
DI_BODY int64_t sample_scratch(const SampleParams& p) { return (p.draft_logits ? 4 : 2) * int64_t{p.vocab}; }

DI_BODY bool better(float a, int64_t ia, float b, int64_t ib) { return a > b || (a == b && ia < ib); }

DI_BODY void apply_bias_and_penalties(const SampleParams& p, const SampleRow& s, float* z) {
  for (int i = s.bias_begin; i < s.bias_end; ++i) z[p.bias_ids[i]] += p.bias_values[i];
  for (int i = s.history_begin; i < s.history_end; ++i) {
    const int32_t* entry = p.history + int64_t{i} * 3;  // token, count in the answer, count in the prompt
    float& value = z[entry[0]];
    if (entry[1] + entry[2] > 0) value = value > 0.0f ? value / s.repetition_penalty : value * s.repetition_penalty;
    value -= s.frequency_penalty * static_cast<float>(entry[1]);
    if (entry[1] > 0) value -= s.presence_penalty;
  }
}

// Whether all of a row can be drawn as it is: no bias, no history, no mask, nothing that is not finite.
DI_BODY bool is_plain(const SampleParams& p, int64_t row) {
  const SampleRow& s = p.settings[row];
  if (s.bias_begin != s.bias_end || s.history_begin != s.history_end || p.masks) return false;
  const float* logits = p.logits + row * p.vocab;
  uint32_t most[kDrawLanes] = {};
  int32_t i = 0;
  for (; i + kDrawLanes <= p.vocab; i += kDrawLanes) {
    for (int l = 0; l < kDrawLanes; ++l) {
      const uint32_t magnitude = float_bits(logits[i + l]) & 0x7FFFFFFFu;
      most[l] = most[l] < magnitude ? magnitude : most[l];
    }
  }
  for (; i < p.vocab; ++i) most[0] |= is_finite32(logits[i]) ? 0 : 0x7F800000u;
  for (int l = 1; l < kDrawLanes; ++l) most[0] = most[0] < most[l] ? most[l] : most[0];
  return most[0] < 0x7F800000u;
}

// The row after bias, penalties and mask, kNever where nothing can be drawn: the row itself, or written to scratch.
DI_BODY const float* prepare_row(const SampleParams& p, int64_t row, float* z) {
  const float* logits = p.logits + row * p.vocab;
  if (is_plain(p, row)) return logits;
  for (int i = 0; i < p.vocab; ++i) z[i] = logits[i];
  apply_bias_and_penalties(p, p.settings[row], z);
  for (int i = 0; i < p.vocab; ++i) z[i] = is_finite32(z[i]) ? z[i] : kNever;
  if (!p.masks) return z;
  const uint32_t* mask = p.masks + row * p.mask_words;
  for (int i = 0; i < p.vocab; ++i) z[i] = mask[i >> 5] >> (i & 31) & 1 ? z[i] : kNever;
  return z;
}

// First index of the largest value; the value kNever means none.
DI_BODY int32_t argmax_row(const float* z, int32_t n) {
  float top[kDrawLanes];
  for (int l = 0; l < kDrawLanes; ++l) top[l] = kNever;
  int32_t i = 0;
  for (; i + kDrawLanes <= n; i += kDrawLanes) {
    for (int l = 0; l < kDrawLanes; ++l) top[l] = max32(top[l], z[i + l]);
  }
  for (; i < n; ++i) top[0] = max32(top[0], z[i]);
  for (int l = 1; l < kDrawLanes; ++l) top[0] = max32(top[0], top[l]);
  if (top[0] <= kNever) return -1;
  // By blocks first: the compiler makes one comparison of each.
  for (i = 0; i + kDrawLanes <= n; i += kDrawLanes) {
    int hits = 0;
    for (int l = 0; l < kDrawLanes; ++l) hits |= z[i + l] == top[0];
    if (hits != 0) break;
  }
  while (z[i] != top[0]) ++i;
  return i;
}

// log of sum_i exp((z_i - top) / T).
DI_BODY float log_sum(const float* z, int32_t n, float top, float temperature) {
  return log32(sum_of(n, [=](int i) { return exp32((z[i] - top) / temperature); }));
}

DI_BODY void fill_logprobs(const SampleRow& s, const float* z, int32_t n, float top, SampleResult& result) {
  result.num_top = 0;
  result.logprob = 0.0f;
  if (s.num_logprobs < 0 || result.token < 0) return;
  const float temperature = s.temperature > 0.0f ? s.temperature : 1.0f;
  const float norm = log_sum(z, n, top, temperature);
  result.logprob = (z[result.token] - top) / temperature - norm;
  const int wanted = s.num_logprobs < kMaxTopLogprobs ? s.num_logprobs : kMaxTopLogprobs;
  float values[kMaxTopLogprobs];
  int count = 0;
  for (int32_t i = 0; wanted > 0 && i < n; ++i) {
    if (z[i] <= kNever || (count == wanted && z[i] <= values[count - 1])) continue;
    int at = count < wanted ? count++ : count - 1;
    for (; at > 0 && values[at - 1] < z[i]; --at) {
      values[at] = values[at - 1];
      result.top_tokens[at] = result.top_tokens[at - 1];
    }
    values[at] = z[i];
    result.top_tokens[at] = i;
  }
  result.num_top = count;
  for (int i = 0; i < count; ++i) result.top_logprobs[i] = (values[i] - top) / temperature - norm;
}

// exp((z - top) / T) in units of 2^-40.
DI_BODY uint64_t mass_of(float e) { return static_cast<uint64_t>(e * 1099511627776.0f); }

// Tokens that a prefix of mass `target` can hold, in order: their logits to `z_out`, their probabilities to the front of `e`. All
// others, lighter than a token's share of what the prefix leaves out, weigh less than that together.
DI_BODY int64_t heavy_tokens(const float* z, float* e, int32_t n, uint64_t total, uint64_t target, float* z_out) {
  const float least = static_cast<float>((total - target) / static_cast<uint64_t>(n)) * 0x1p-40f * 0.999f;
  int64_t count = 0;
  for (int32_t begin = 0; begin < n; begin += kDrawLanes) {
    const int32_t end = begin + kDrawLanes < n ? begin + kDrawLanes : n;
    int any = 0;
    for (int32_t i = begin; i < end; ++i) any |= e[i] >= least;
    for (int32_t i = begin; any != 0 && i < end; ++i) {
      const float logit = z[i], weight = e[i];
      z_out[count] = logit, e[count] = weight;
      count += weight >= least;
    }
  }
  return count;
}

// What is left of a row by top-k and top-p. e[i] is the token's probability relative to the largest one; with `room` (n floats)
// it is used up.
DI_BODY Cut truncate(const SampleRow& s, const float* z, float* e, int32_t n, float* room) {
  const auto key = [=](int64_t i) { return ordered_bits(z[i]); };
  const auto drawable = [=](int64_t i) { return uint64_t{z[i] > kNever}; };
  Cut cut = {0, int64_t{n}};
  uint64_t count = 0;
  for (int64_t i = 0; s.top_k > 0 && i < n; ++i) count += drawable(i);
  if (s.top_k > 0 && static_cast<uint64_t>(s.top_k) < count) cut = find_cut(n, static_cast<uint64_t>(s.top_k), key, drawable);
  if (s.top_p >= 1.0f) return cut;
  // Above the cut all count, at the cut the first `ties`; as these weigh the same, which ones they are does not matter here.
  uint64_t total = 0, at_cut = 0;
  if (cut.key == 0) {
    for (int64_t i = 0; i < n; ++i) total += mass_of(e[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t mass = mass_of(e[i]);
      total += key(i) > cut.key ? mass : 0;
      at_cut = key(i) == cut.key ? mass : at_cut;
    }
    total += at_cut * static_cast<uint64_t>(cut.ties);
  }
  const double wanted = static_cast<double>(s.top_p) * static_cast<double>(total);
  uint64_t target = static_cast<uint64_t>(wanted);
  target += static_cast<double>(target) < wanted;
  target = target < 1 ? 1 : target > total ? total : target;
  const uint32_t floor = cut.key;
  const float* heavy = room ? room : z;
  const int64_t heavies = room ? heavy_tokens(z, e, n, total, target, room) : n;
  const auto heavy_key = [=](int64_t i) { return ordered_bits(heavy[i]); };
  const Cut narrow = find_cut(heavies, target, heavy_key, [=](int64_t i) { return heavy_key(i) >= floor ? mass_of(e[i]) : 0; });
  return narrow.key > cut.key || narrow.ties < cut.ties ? narrow : cut;
}

inline constexpr int kDrawChunk = 64;  // tokens whose words are made together, so that the loops vectorise

// The words of kDrawChunk tokens from token 4 * block up: words[i][b] is token 4 * (block + b) + i. Gives the largest. Sets of
// CPU kernels have their own.
struct SerialWords {
  DI_BODY uint32_t operator()(const DrawKey& key, uint32_t block, uint32_t (*words)[kDrawChunk / 4]) const {
    uint32_t most = 0;
    for (uint32_t b = 0; b < kDrawChunk / 4; ++b) {
      const PhiloxBlock made = draw_words(key, block + b);
      for (int i = 0; i < 4; ++i) {
        words[i][b] = made.word[i];
        most = most < made.word[i] ? made.word[i] : most;
      }
    }
    return most;
  }
};

DI_BODY float chunk_top(const float* z, int32_t n) {
  if (n < kDrawChunk) {
    float top = z[0];
    for (int32_t i = 1; i < n; ++i) top = max32(top, z[i]);
    return top;
  }
  float top[kLanes];
  for (int l = 0; l < kLanes; ++l) top[l] = max32(max32(z[l], z[l + 16]), max32(z[l + 32], z[l + 48]));
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) top[l] = max32(top[l], top[l + half]);
  }
  return top[0];
}

// No smaller word gives a token of logit / T `largest` noise that reaches `best`: noise g needs 1 - u <= -log(u) <= e^-g. The
// power is taken from FP32's bits, never too small, for 2^x <= 1 + x within a binade; the slack is what roundings can do.
DI_BODY uint32_t least_word(float best, float largest) {
  const float slack = 3e-5f + 4e-7f * (abs32(best) + abs32(largest));
  const float gap = best - largest - slack;
  if (!(gap > 0.0f)) return 0;
  const float power = bits_float(static_cast<uint32_t>((127.0f - gap * 1.44269504f) * 8388608.0f));
  const float least = 8388608.0f * (1.0f - power) - 2.0f;
  return least > 0.0f ? static_cast<uint32_t>(least) << 9 : 0;
}

// A draw over the kept set; `first` is the row's argmax and always in it. `e` is read for min-p only. Logarithms are taken only
// of words that can win, a few hundred of a row; words only of chunks that can.
template <class Words = SerialWords>
DI_BODY int32_t draw(const SampleRow& s, const float* z, const float* e, int32_t n, int32_t first, Cut cut, Words words_of = {}) {
  const DrawKey key = {s.seed, s.position, s.stream};
  int32_t token = first;
  float best = z[first] / s.temperature + gumbel(key, first);
  for (int32_t begin = 0; begin < n; begin += kDrawChunk) {
    const int32_t end = begin + kDrawChunk < n ? begin + kDrawChunk : n;
    const float top = chunk_top(z + begin, end - begin);
    if (top <= kNever || (cut.key > 0 && ordered_bits(top) < cut.key)) continue;
    const float largest = top / s.temperature;
    uint32_t words[4][kDrawChunk / 4], least = 0xFFFFFFFFu;
    bool can_win = largest + kLargestGumbel >= best;
    if (can_win) {
      least = least_word(best, largest);
      can_win = words_of(key, static_cast<uint32_t>(begin / 4), words) >= least;
    }
    if (!can_win) {
      for (int32_t i = begin; cut.key > 0 && i < end; ++i) cut.ties -= ordered_bits(z[i]) == cut.key;
      continue;
    }
    for (int32_t i = begin; i < end; ++i) {
      const uint32_t k = ordered_bits(z[i]), word = words[i & 3][(i - begin) >> 2];
      if (z[i] <= kNever || k < cut.key || (k == cut.key && cut.ties-- <= 0) || word < least) continue;
      if (s.min_p > 0.0f && e[i] < s.min_p) continue;
      const float value = z[i] / s.temperature + gumbel_of(word);
      if (better(value, i, best, token)) {
        best = value;
        token = i;
      }
    }
  }
  return token;
}

// ---- rejection (speculation.md section 2): the target's distribution whatever was drafted, not the path of the coupled draw

inline constexpr uint32_t kAcceptStream = 2, kResidualStream = 3;
inline constexpr double kLeastDraftProbability = 1e-8;

DI_BODY void relative_probabilities(const SampleRow& s, const float* z, float* e, int32_t n, float top) {
  const float temperature = s.temperature;
  for (int32_t i = 0; i < n; ++i) e[i] = exp32((z[i] - top) / temperature);
}

// Leaves in `e` the relative probabilities of what can be drawn, 0 elsewhere, and gives the sum of their masses.
DI_BODY uint64_t kept_masses(const SampleRow& s, const float* z, float* e, int32_t n, float top) {
  relative_probabilities(s, z, e, n, top);
  Cut cut = {0, 0};
  if (s.top_k > 0 || s.top_p < 1.0f) cut = truncate(s, z, e, n, nullptr);
  uint64_t total = 0;
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t k = ordered_bits(z[i]);
    const bool kept = z[i] > kNever && k >= cut.key && (k > cut.key || cut.ties-- > 0) && e[i] >= s.min_p;
    e[i] = kept ? e[i] : 0.0f;
    total += mass_of(e[i]);
  }
  return total;
}

struct Overlap {
  const float *target, *draft;  // kept_masses() of both
  double target_total, draft_total;
  DI_BODY double target_at(int32_t i) const { return static_cast<double>(mass_of(target[i])) / target_total; }
  DI_BODY double draft_at(int32_t i) const { return static_cast<double>(mass_of(draft[i])) / draft_total; }
  DI_BODY double more_at(int32_t i) const {
    const double more = target_at(i) - draft_at(i);
    return more > 0.0 ? more : 0.0;
  }
};

DI_BODY bool accept_draft(const SampleRow& s, const Overlap& overlap) {
  const double drafted = overlap.draft_at(s.draft);
  const double least = drafted > kLeastDraftProbability ? drafted : kLeastDraftProbability;
  const double u = uniform_of(draw_words({s.seed, s.position, kAcceptStream}, 0).word[0]);
  return u < overlap.target_at(s.draft) / least;
}

// In units of 2^-40, so that a sum has no order.
DI_BODY uint64_t residual_mass(const Overlap& overlap, int32_t i) {
  return static_cast<uint64_t>(overlap.more_at(i) * 1099511627776.0);
}
DI_BODY bool has_residual(uint64_t mass) { return static_cast<double>(mass) > kLeastDraftProbability * 1099511627776.0; }

// Logarithm of the weight of token i after a refusal: what the target has more than the draft, or all of it where hardly
// anything is left.
DI_BODY float residual_logit(const Overlap& overlap, bool more, int32_t i) {
  const double weight = more ? overlap.more_at(i) : overlap.target_at(i);
  return weight > 0.0 ? log32(static_cast<float>(weight)) : kNever;
}

DI_BODY bool has_draft(const SampleParams& p, const SampleRow& s) { return p.draft_logits && s.draft >= 0; }

// `first` is the target's argmax. scratch: 3 * vocab floats.
DI_BODY int32_t draw_by_rejection(const SampleParams& p, const SampleRow& s, const float* z, float* scratch, int32_t first) {
  const int32_t n = p.vocab;
  const float* logits = p.draft_logits + int64_t{s.draft_row} * n;
  float *target = scratch, *draft_z = scratch + n, *draft = scratch + 2 * int64_t{n};
  for (int32_t i = 0; i < n; ++i) draft_z[i] = is_finite32(logits[i]) ? logits[i] : kNever;
  const int32_t draft_first = argmax_row(draft_z, n);
  if (draft_first < 0) return first;
  const auto total = static_cast<double>(kept_masses(s, z, target, n, z[first]));
  const Overlap overlap = {target, draft, total, static_cast<double>(kept_masses(s, draft_z, draft, n, draft_z[draft_first]))};
  if (accept_draft(s, overlap)) return s.draft;
  uint64_t mass = 0;
  for (int32_t i = 0; i < n; ++i) mass += residual_mass(overlap, i);
  const bool more = has_residual(mass);
  int32_t token = first;
  float best = kNever;
  for (int32_t i = 0; i < n; ++i) {
    const float logit = residual_logit(overlap, more, i);
    if (logit <= kNever || logit + kLargestGumbel < best) continue;
    const float value = logit + gumbel({s.seed, s.position, kResidualStream}, i);
    if (better(value, i, best, token)) best = value, token = i;
  }
  return token;
}

// scratch: sample_scratch() floats; behind the row itself lie relative probabilities.
template <class Words = SerialWords>
DI_BODY void sample_row(const SampleParams& p, int64_t row, float* scratch, Words words = {}) {
  const SampleRow& s = p.settings[row];
  SampleResult& result = p.results[row];
  const float* z = prepare_row(p, row, scratch);
  const int32_t first = argmax_row(z, p.vocab);
  result.token = first;
  if (first >= 0 && s.temperature > 0.0f && has_draft(p, s)) {
    result.token = draw_by_rejection(p, s, z, scratch + p.vocab, first);
  } else if (first >= 0 && s.temperature > 0.0f) {
    float* e = scratch + p.vocab;
    if (s.top_p < 1.0f || s.min_p > 0.0f) relative_probabilities(s, z, e, p.vocab, z[first]);
    Cut cut = {0, 0};
    if (s.top_k > 0 || s.top_p < 1.0f) cut = truncate(s, z, e, p.vocab, z != scratch && !(s.min_p > 0.0f) ? scratch : nullptr);
    result.token = draw(s, z, e, p.vocab, first, cut, words);
  }
  fill_logprobs(s, z, p.vocab, first >= 0 ? z[first] : 0.0f, result);
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
