#include "model/engram_tables.h"

#include <array>
#include <limits>

#include <fmt/format.h>

namespace deepinfer {
namespace {

using U128 = unsigned __int128;

// The seeding of numpy's default generator: 32-bit words hashed into a pool of four, then drawn out again.
class SeedPool {
 public:
  explicit SeedPool(uint64_t entropy) {
    const std::array<uint32_t, 4> words = {static_cast<uint32_t>(entropy), static_cast<uint32_t>(entropy >> 32), 0, 0};
    uint32_t constant = 0x43b0d7e5;
    const auto hash = [&constant](uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ value >> 16;
    };
    for (size_t i = 0; i < 4; ++i) pool_[i] = hash(words[i]);
    for (size_t from = 0; from < 4; ++from) {
      for (size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hash(pool_[from]);
        pool_[to] = mixed ^ mixed >> 16;
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint64_t, 4> out{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t word = pool_[i % 4] ^ constant;
      constant *= 0x58f38ded;
      word *= constant;
      word ^= word >> 16;
      out[i / 2] |= uint64_t{word} << (i % 2 * 32);
    }
    return out;
  }

 private:
  std::array<uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR, 128-bit state).
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedPool(seed).state();
    increment_ = (U128{words[2]} << 64 | words[3]) << 1 | 1;
    step();
    state_ += U128{words[0]} << 64 | words[1];
    step();
  }

  uint64_t next() {
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64);
    const uint64_t folded = high ^ static_cast<uint64_t>(state_);
    const unsigned turn = static_cast<unsigned>(high >> 58);
    return folded >> turn | folded << (-turn & 63);
  }

  // Uniform in [0, bound), Lemire's multiplication with rejection. REQUIRES: bound > 2^32 (below that numpy draws 32 bits).
  uint64_t below(uint64_t bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (true) {
      const U128 product = U128{next()} * bound;
      if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  void step() {
    constexpr U128 kMultiplier = U128{2549297995355413924u} << 64 | 4865540595714422341u;
    state_ = state_ * kMultiplier + increment_;
  }
  U128 state_ = 0, increment_ = 0;
};

uint64_t power_mod(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t out = 1;
  for (base %= modulus; exponent; exponent >>= 1) {
    if (exponent & 1) out = static_cast<uint64_t>(U128{out} * base % modulus);
    base = static_cast<uint64_t>(U128{base} * base % modulus);
  }
  return out;
}

// Miller-Rabin with the bases 2, 3, 5, 7, 11: exact below 2^40. Trial division would take seconds near the largest
// engram_vocab_size a config may ask for.
bool is_prime(uint64_t n) {
  constexpr uint64_t kBases[] = {2, 3, 5, 7, 11};
  if (n < 2) return false;
  for (const uint64_t p : kBases) {
    if (n % p == 0) return n == p;
  }
  const int twos = __builtin_ctzll(n - 1);
  for (const uint64_t base : kBases) {
    uint64_t x = power_mod(base, (n - 1) >> twos, n);
    bool passes = x == 1 || x == n - 1;
    for (int i = 1; i < twos && !passes; ++i) {
      x = static_cast<uint64_t>(U128{x} * x % n);
      passes = x == n - 1;
    }
    if (!passes) return false;
  }
  return true;
}

}  // namespace

EngramTables compute_engram_tables(const ModelShape& shape) {
  EngramTables out;
  const uint64_t bound =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / static_cast<uint64_t>(shape.engram_compressed_vocab) / 2;
  auto candidate = static_cast<uint64_t>(shape.engram_vocab);
  for (const int32_t layer : shape.engram_layers) {
    Pcg64 random(uint64_t{10007} * static_cast<uint64_t>(layer));
    for (int32_t i = 0; i < shape.engram_ngram; ++i) out.multipliers.push_back(static_cast<int64_t>(2 * random.below(bound) + 1));
    int64_t rows = 0;
    for (int32_t c = 0; c < shape.engram_columns(); ++c, ++candidate) {
      while (!is_prime(candidate)) ++candidate;
      out.offsets.push_back(rows);
      out.primes.push_back(static_cast<int64_t>(candidate));
      rows += static_cast<int64_t>(candidate);
    }
    out.rows.push_back(rows);
  }
  return out;
}

Result<EngramTables> make_engram_tables(const ModelShape& shape) {
  EngramTables out = compute_engram_tables(shape);
  for (size_t i = 0; i < shape.engram_rows.size(); ++i) {
    if (out.rows[i] != shape.engram_rows[i]) {
      return corrupt(fmt::format(
          "config.json: engram_num_embeddings of layer {} is {}, but the primes from engram_vocab_size {} on sum to {}",
          shape.engram_layers[i], shape.engram_rows[i], shape.engram_vocab, out.rows[i]));
    }
  }
  return out;
}

}  // namespace deepinfer
