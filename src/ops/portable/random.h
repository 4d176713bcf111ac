// ops/portable/random.h - counter-based random numbers: Philox4x32-10 and the Gumbel noise of a token (determinism.md
// section 6). No state: a draw is a function of (seed, position, stream, token).
#pragma once

#include "ops/portable/math.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

struct PhiloxBlock {
  uint32_t word[4];
};

struct PhiloxKey {
  uint32_t low, high;
};

DI_BODY PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ key.low;
    const uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ key.high;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    c0 = n0;
    c2 = n2;
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// What is the same for all tokens of one draw.
struct DrawKey {
  uint64_t seed;
  int64_t position;
  uint32_t stream;
};

// The four words of tokens 4*block .. 4*block + 3.
DI_BODY PhiloxBlock draw_words(const DrawKey& key, uint32_t block) {
  const uint64_t position = static_cast<uint64_t>(key.position);
  return philox({{block, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), key.stream}},
                {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

// In (0, 1), exact in FP32.
DI_BODY float uniform_of(uint32_t word) { return (static_cast<float>(word >> 9) + 0.5f) * 1.1920929e-7f; }
DI_BODY float gumbel_of(uint32_t word) { return -log32(-log32(uniform_of(word))); }

// No draw exceeds this: -log(-log(1 - 2^-24)) = 16.6355.
inline constexpr float kLargestGumbel = 16.64f;

DI_BODY float gumbel(const DrawKey& key, int32_t token) {
  return gumbel_of(draw_words(key, static_cast<uint32_t>(token) >> 2).word[token & 3]);
}

// Seed of choice c of a request with several choices; c = 0 is the request's own seed.
DI_BODY uint64_t choice_seed(uint64_t seed, uint32_t choice) {
  if (choice == 0) return seed;
  const PhiloxBlock b = philox({{choice, 0, 0, 0xC0}}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (uint64_t{b.word[1]} << 32 | b.word[0]) & 0x7FFFFFFFFFFFFFFFu;
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
