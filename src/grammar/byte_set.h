// grammar/byte_set.h - a set of byte values.
//
// Threads: a value.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer {

class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet range(int first, int last) {
    ByteSet out;
    for (int byte = first; byte <= last; ++byte) out.add(static_cast<uint8_t>(byte));
    return out;
  }
  static constexpr ByteSet all() { return range(0, 255); }

  constexpr void add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  constexpr bool has(uint8_t byte) const { return words_[byte >> 6] >> (byte & 63) & 1; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr ByteSet operator|(const ByteSet& other) const {
    ByteSet out;
    for (size_t i = 0; i < 4; ++i) out.words_[i] = words_[i] | other.words_[i];
    return out;
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    ByteSet out;
    for (size_t i = 0; i < 4; ++i) out.words_[i] = words_[i] & other.words_[i];
    return out;
  }
  constexpr ByteSet operator~() const {
    ByteSet out;
    for (size_t i = 0; i < 4; ++i) out.words_[i] = ~words_[i];
    return out;
  }
  constexpr bool has_all(const ByteSet& other) const { return (other & ~*this).empty(); }
  bool operator==(const ByteSet&) const = default;

  // Calls visit(byte) for every member, in order.
  template <class Visit>
  void each(Visit visit) const {
    for (size_t i = 0; i < 4; ++i) {
      for (uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) visit(static_cast<uint8_t>(i * 64 + std::countr_zero(rest)));
    }
  }
  const std::array<uint64_t, 4>& words() const { return words_; }
  static constexpr ByteSet of_words(const std::array<uint64_t, 4>& words) {
    ByteSet out;
    out.words_ = words;
    return out;
  }
  // The lowest member; of an empty set nothing that means anything.
  constexpr uint8_t first() const {
    for (size_t i = 0; i < 4; ++i) {
      if (words_[i] != 0) return static_cast<uint8_t>(i * 64 + std::countr_zero(words_[i]));
    }
    return 0;
  }

 private:
  std::array<uint64_t, 4> words_{};
};

// A partition of all bytes, made finer set by set.
class BytePartition {
 public:
  BytePartition() { sets_.reserve(16); }
  void split(const ByteSet& set) {
    for (size_t i = 0, count = sets_.size(); i < count; ++i) {
      const ByteSet inside = sets_[i] & set;
      if (inside.empty() || inside == sets_[i]) continue;
      sets_[i] = sets_[i] & ~set;
      sets_.push_back(inside);
    }
  }
  const std::vector<ByteSet>& sets() const { return sets_; }

 private:
  std::vector<ByteSet> sets_{ByteSet::all()};
};

}  // namespace deepinfer
