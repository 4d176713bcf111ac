#include "grammar/char_class.h"

#include <algorithm>

namespace deepinfer {
namespace {

ByteSet span_of(uint32_t first, uint32_t last) { return ByteSet::range(static_cast<int>(first), static_cast<int>(last)); }

// The code points first..last, all of `num_tail` continuation bytes, as lead prefix and tails: split where a tail is not
// complete (as in RFC 3629's table).
Rx tails(RegexArena& arena, uint32_t first, uint32_t last, int num_tail, uint32_t lead) {
  if (num_tail == 0) return arena.bytes(span_of(lead | first, lead | last));
  const int shift = 6 * num_tail;
  const uint32_t low = (1u << shift) - 1;
  const uint32_t head_first = first >> shift, head_last = last >> shift;
  const uint32_t mark = 0x80;
  if (head_first == head_last) {
    return arena.concat(arena.bytes(span_of(lead | head_first, lead | head_first)),
                        tails(arena, first & low, last & low, num_tail - 1, mark));
  }
  std::vector<Rx> parts;
  uint32_t from = head_first, to = head_last;
  if ((first & low) != 0) {
    parts.push_back(tails(arena, first, (head_first << shift) | low, num_tail, lead));
    ++from;
  }
  if ((last & low) != low) {
    parts.push_back(tails(arena, head_last << shift, last, num_tail, lead));
    --to;
  }
  if (from <= to) {
    parts.push_back(arena.concat(arena.bytes(span_of(lead | from, lead | to)), tails(arena, 0, low, num_tail - 1, mark)));
  }
  return arena.alternate(std::move(parts));
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<Range> ranges) : ranges_(ranges) { normalise(); }

void CodePointSet::add(uint32_t first, uint32_t last) {
  ranges_.push_back({first, last});
  normalise();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalise();
}

void CodePointSet::normalise() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> out;
  for (const Range& range : ranges_) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  ranges_ = std::move(out);
}

CodePointSet CodePointSet::inverted() const {
  CodePointSet out;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) out.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= 0x10FFFF) out.ranges_.push_back({next, 0x10FFFF});
  return out;
}

void CodePointSet::fold_ascii_case() {
  const std::vector<Range> before = ranges_;
  for (const Range& range : before) {
    for (uint32_t c = std::max(range.first, 0x41u); c <= std::min(range.last, 0x7Au); ++c) {
      if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) ranges_.push_back({c ^ 0x20, c ^ 0x20});
    }
  }
  normalise();
}

Rx utf8(RegexArena& arena, const CodePointSet& chars) {
  struct Length {
    uint32_t first, last;
    int num_tail;
    uint32_t lead;
  };
  constexpr Length kLengths[] = {
      {0, 0x7F, 0, 0}, {0x80, 0x7FF, 1, 0xC0}, {0x800, 0xD7FF, 2, 0xE0}, {0xE000, 0xFFFF, 2, 0xE0}, {0x10000, 0x10FFFF, 3, 0xF0}};
  std::vector<Rx> parts;
  for (const CodePointSet::Range& range : chars.ranges()) {
    for (const Length& length : kLengths) {
      const uint32_t first = std::max(range.first, length.first), last = std::min(range.last, length.last);
      if (first <= last) parts.push_back(tails(arena, first, last, length.num_tail, length.lead));
    }
  }
  return arena.alternate(std::move(parts));
}

Rx any_text(RegexArena& arena) { return arena.repeat(utf8(arena, CodePointSet::any()), 0, kNoLimit); }

}  // namespace deepinfer
