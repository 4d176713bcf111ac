#include "text/token_index.h"

#include <bit>
#include <cstring>

namespace deepinfer {

void TokenBytes::add(TokenId id, std::string_view bytes) {
  if (static_cast<size_t>(id) >= places_.size()) places_.resize(static_cast<size_t>(id) + 1);
  places_[static_cast<size_t>(id)] = {static_cast<uint32_t>(blob_.size()), static_cast<uint32_t>(bytes.size())};
  blob_ += bytes;
}

// The first eight bytes; of shorter strings all of them, in an order that needs no loop.
uint64_t TokenIndex::head_of(std::string_view bytes) {
  const auto load = [&](auto word, size_t at) {
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    return uint64_t{word};
  };
  if (bytes.size() >= 8) return load(uint64_t{}, 0);
  if (bytes.size() >= 4) return load(uint32_t{}, 0) | load(uint32_t{}, bytes.size() - 4) << 32;
  if (bytes.empty()) return 0;
  return load(uint8_t{}, 0) | load(uint8_t{}, bytes.size() / 2) << 8 | load(uint8_t{}, bytes.size() - 1) << 16;
}

uint64_t TokenIndex::hash_of(std::string_view bytes) {
  uint64_t hash = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += 8) {
    hash = (hash ^ head_of(bytes.substr(at))) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

void TokenIndex::reserve(size_t tokens) {
  slots_.resize(std::bit_ceil(2 * tokens + 2));
  mask_ = slots_.size() - 1;
}

size_t TokenIndex::place_of(const TokenBytes& tokens, std::string_view bytes) const {
  const uint64_t head = head_of(bytes);
  for (size_t at = hash_of(bytes) & mask_;; at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    if (slot.id < 0) return at;
    if (slot.head == head && slot.length == bytes.size() && (bytes.size() <= 8 || tokens[slot.id] == bytes)) return at;
  }
}

bool TokenIndex::add(const TokenBytes& tokens, TokenId id) {
  const std::string_view bytes = tokens[id];
  Slot& slot = slots_[place_of(tokens, bytes)];
  if (slot.id >= 0) return false;
  slot = {head_of(bytes), static_cast<uint32_t>(bytes.size()), id};
  return true;
}

TokenId TokenIndex::find(const TokenBytes& tokens, std::string_view bytes) const {
  return slots_.empty() ? -1 : slots_[place_of(tokens, bytes)].id;
}

}  // namespace deepinfer
