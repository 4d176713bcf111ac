// grammar/char_class.h - sets of Unicode code points, and the UTF-8 that spells them.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/regex.h"

namespace deepinfer {

class CodePointSet {
 public:
  struct Range {
    uint32_t first, last;
  };

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges);
  static CodePointSet any() { return {{0, 0x10FFFF}}; }

  void add(uint32_t first, uint32_t last);
  void add(const CodePointSet& other);
  CodePointSet inverted() const;
  // Adds the other case of ASCII letters.
  void fold_ascii_case();
  const std::vector<Range>& ranges() const { return ranges_; }  // sorted, disjoint, not touching

 private:
  void normalise();
  std::vector<Range> ranges_;
};

// One character of the class, in UTF-8; surrogates are no characters.
Rx utf8(RegexArena& arena, const CodePointSet& chars);
// Any number of any characters.
Rx any_text(RegexArena& arena);

}  // namespace deepinfer
