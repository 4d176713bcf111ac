// text/token_index.h - the byte strings of a vocabulary, by id and back.
//
// Threads: const after filling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "core/types.h"

namespace deepinfer {

// The byte strings of tokens by id.
class TokenBytes {
 public:
  void reserve(size_t tokens, size_t bytes) { places_.reserve(tokens), blob_.reserve(bytes); }
  // Not empty. `id` must not be in use; ids may come in any order.
  void add(TokenId id, std::string_view bytes);
  bool has(TokenId id) const { return static_cast<size_t>(id) < places_.size() && places_[static_cast<size_t>(id)].length > 0; }
  size_t size() const { return places_.size(); }
  std::string_view operator[](TokenId id) const {
    const Place& place = places_[static_cast<size_t>(id)];
    return {blob_.data() + place.begin, place.length};
  }

 private:
  struct Place {
    uint32_t begin = 0;
    uint32_t length = 0;  // 0 = not in use
  };
  std::string blob_;
  HugeVector<Place> places_;
};

// Finds the token that has given bytes. A slot holds the first eight of them, so most searches touch one cache line;
// callers with many searches prefetch a few ahead: loading a tokenizer is bound by memory latency.
class TokenIndex {
 public:
  void reserve(size_t tokens);
  // False when a token with the same bytes is there already. REQUIRES: less than the reserved number so far.
  bool add(const TokenBytes& tokens, TokenId id);
  // The id, or -1.
  TokenId find(const TokenBytes& tokens, std::string_view bytes) const;
  void prefetch(std::string_view bytes) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash_of(bytes) & mask_]);
  }

 private:
  struct Slot {
    uint64_t head = 0;
    uint32_t length = 0;
    TokenId id = -1;
  };
  static uint64_t head_of(std::string_view bytes);
  static uint64_t hash_of(std::string_view bytes);
  // The slot of these bytes, or the empty one where they belong.
  size_t place_of(const TokenBytes& tokens, std::string_view bytes) const;

  HugeVector<Slot> slots_;  // open addressing, at most half full
  uint64_t mask_ = 0;
};

}  // namespace deepinfer
