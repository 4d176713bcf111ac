// text/bpe.h - byte-pair merging of one piece, exactly as repeated lowest-rank merges would do it.
//
// Merging by rank needs a priority queue over the whole piece. A vocabulary whose every token has one merge, made of
// tokens of lower rank, allows a linear way: a sequence of tokens is the merged form if and only if no merge would have
// crossed a border between two neighbours, which only depends on the two. So encode() takes the longest token that may
// follow the last one, and goes back where none may (positions found dead are never tried again). Vocabularies that
// break the condition take merge_by_rank(), which is also what the tests compare with.
// Tokens are numbered inside: 0..255 are the bytes, then the products of merges by rank; tokens no merge makes come last.
// Threads: const after build; one Scratch per thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "base/result.h"
#include "core/types.h"
#include "text/byte_trie.h"

namespace deepinfer {

struct BpeMerge {
  TokenId left, right, product;
};

class Bpe {
 public:
  struct Scratch {
    std::vector<uint64_t> alive;                   // merge_linear: one bit a position
    std::vector<uint64_t> borders;                 // merge_linear: answers of may_adjoin, by a hash of the pair
    std::vector<int32_t> symbols, next, previous;  // merge_by_rank: a linked list over the bytes
    std::vector<uint64_t> queue;                   // merge_by_rank: rank and position
  };

  Bpe() = default;
  // `token_bytes[id]`: what a token stands for; empty for ids outside the byte-level vocabulary. `ignore_merges`: a
  // piece that is in the vocabulary is that token, whatever the merges say.
  static Result<Bpe> build(std::span<const std::string_view> token_bytes, std::span<const BpeMerge> merges, bool ignore_merges);

  // Appends the ids of a piece. REQUIRES: size > 0.
  void encode(const uint8_t* piece, size_t size, std::vector<TokenId>& out, Scratch& scratch) const {
    const ByteTrie::Match match = trie_.longest(piece, size);
    if (match.length == size || (match.whole != 0 && ignore_merges_)) {
      out.push_back(id_of_[static_cast<size_t>(match.whole < 0 ? -match.whole - 1 : match.whole - 1)]);
    } else if (linear_) {
      merge_linear(piece, size, match, out, scratch);
    } else {
      merge_by_rank(piece, size, out, scratch);
    }
  }

  // The same answer by the priority queue, for any vocabulary; O(n log n).
  void merge_by_rank(const uint8_t* piece, size_t size, std::vector<TokenId>& out, Scratch& scratch) const;
  bool is_linear() const { return linear_; }

 private:
  // Ranks of merges by pair: open addressing, at most half full, 8 bytes a slot. Nearly all searches are for pairs that
  // do not merge; a bit map small enough for the L2 cache answers those.
  class PairTable {
   public:
    static constexpr int kNumberBits = 21, kRankBits = 22;

    explicit PairTable(size_t pairs = 0);
    bool insert(int32_t left, int32_t right, int32_t rank);
    // Rank, or -1.
    int32_t find(int32_t left, int32_t right) const {
      const uint64_t key = key_of(left, right);
      const uint64_t hash = hash_of(key);
      const uint64_t bit = hash >> bit_shift_;
      if ((known_[bit / 64] >> (bit % 64) & 1) == 0) return -1;
      for (uint64_t at = hash >> shift_;; at = (at + 1) & mask_) {
        if (slots_[at] >> kRankBits == key) return static_cast<int32_t>(slots_[at] & kRankMask);
        if (slots_[at] == kEmpty) return -1;
      }
    }

   private:
    static constexpr uint64_t kEmpty = ~uint64_t{0};
    static constexpr uint64_t kRankMask = (uint64_t{1} << kRankBits) - 1;
    static uint64_t key_of(int32_t left, int32_t right) {
      return uint64_t{static_cast<uint32_t>(left)} << kNumberBits | static_cast<uint32_t>(right);
    }
    static uint64_t hash_of(uint64_t key) { return key * 0x9E3779B97F4A7C15ull; }

    HugeVector<uint64_t> slots_;   // pair in the upper bits, rank in the lower
    std::vector<uint64_t> known_;  // eight bits a merge
    uint64_t mask_ = 0;
    int shift_ = 63, bit_shift_ = 58;
  };
  // Says from the bytes around a place that no merge can cross it, which spares seven of eight walks of may_adjoin().
  // A merge whose parts have three bytes or more leaves a bit for the six bytes at its border, a shorter one for the two.
  class BorderFilter {
   public:
    explicit BorderFilter(size_t merges = 0);
    void add(std::string_view left, std::string_view right);
    // REQUIRES: 0 < at < size.
    bool crossable(const uint8_t* piece, size_t at, size_t size) const {
      const uint32_t pair = piece[at - 1] * 256u + piece[at];
      if ((short_[pair / 64] >> (pair % 64) & 1) != 0) return true;
      if (at < kSide || size - at < kSide) return false;
      const uint64_t bit = bit_of(piece + at - kSide);
      return (long_[bit / 64] >> (bit % 64) & 1) != 0;
    }

   private:
    static constexpr size_t kSide = 3;
    uint64_t bit_of(const uint8_t* around) const {
      uint64_t word = 0;
      std::memcpy(&word, around, 2 * kSide);
      return (word * 0x9E3779B97F4A7C15ull) >> shift_;
    }

    std::vector<uint64_t> short_, long_;
    int shift_ = 63;
  };
  struct Split {
    int32_t left, right;  // the token itself for bytes
  };

  Status number_tokens(std::span<const std::string_view> token_bytes, std::span<const BpeMerge> merges);
  Status number_products(std::span<const BpeMerge> merges, std::vector<int32_t>& number_of);
  std::vector<bool> find_reachable(std::span<const std::string_view> token_bytes) const;
  Status index_tokens(std::span<const std::string_view> token_bytes);
  bool may_adjoin(int32_t left, int32_t right) const { return pairs_.find(left, right) < 0 && border_stands(left, right); }
  bool border_stands(int32_t left, int32_t right) const;
  bool may_adjoin(int32_t left, int32_t right, Scratch& scratch) const;
  // The longest token at `at`, given the one found before elsewhere in the piece.
  void find_next(const uint8_t* piece, size_t size, size_t at, ByteTrie::Match& match, size_t& match_at) const;
  void merge_linear(const uint8_t* piece, size_t size, const ByteTrie::Match& first, std::vector<TokenId>& out,
                    Scratch& scratch) const;

  bool ignore_merges_ = false;
  bool linear_ = true;
  ByteTrie trie_;  // values: number + 1, negative when BPE never makes the token
  PairTable pairs_;
  BorderFilter filter_;
  std::vector<int32_t> product_of_;  // rank -> number
  HugeVector<Split> split_of_;       // number -> parts
  std::vector<int32_t> shorter_;     // number -> longest token that is a proper prefix of it and that BPE makes, or -1
  std::vector<int32_t> length_of_;   // number -> bytes it stands for
  std::vector<TokenId> id_of_;       // number -> id
};

}  // namespace deepinfer
