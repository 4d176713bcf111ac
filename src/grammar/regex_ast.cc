#include "grammar/regex_ast.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr int kMaxDepth = 100;
constexpr int32_t kMaxCount = 100'000;

const CodePointSet kDigit{{'0', '9'}};
const CodePointSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointSet kSpace{{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePointSet kLineEnds{{10, 10}, {13, 13}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<RegexNode> whole() {
    DI_TRY(RegexNode out, alternatives(0));
    if (at_ < text_.size()) return fault("an unmatched ')'");
    return out;
  }

 private:
  using Kind = RegexNode::Kind;

  Error fault(std::string_view what) const {
    return invalid_argument(fmt::format("{} at offset {} of the regular expression '{}'", what, at_, text_.substr(0, 80)));
  }
  Error refused(std::string_view what) const {
    return unsupported(
        fmt::format("{} at offset {} of the regular expression '{}' cannot be enforced", what, at_, text_.substr(0, 80)));
  }
  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<RegexNode> alternatives(int depth) {
    if (depth > kMaxDepth) return fault("groups nested too deep");
    RegexNode out{.kind = Kind::kAlternate};
    do {
      DI_TRY(RegexNode branch, sequence(depth));
      out.children.push_back(std::move(branch));
    } while (take("|"));
    if (out.children.size() == 1) return std::move(out.children[0]);
    return out;
  }

  Result<RegexNode> sequence(int depth) {
    RegexNode out{.kind = Kind::kConcat};
    while (more() && peek() != '|' && peek() != ')') {
      DI_TRY(RegexNode part, atom(depth));
      DI_CHECK_OK(counts(part));
      out.children.push_back(std::move(part));
    }
    if (out.children.empty()) return RegexNode{};
    if (out.children.size() == 1) return std::move(out.children[0]);
    return out;
  }

  Result<RegexNode> atom(int depth) {
    switch (peek()) {
      case '^': ++at_; return RegexNode{.kind = Kind::kBegin};
      case '$': ++at_; return RegexNode{.kind = Kind::kEnd};
      case '(': return group(depth);
      case '[': return bracket();
      case '*':
      case '+':
      case '?': return fault("nothing to repeat");
      case '.': ++at_; return chars(kLineEnds.inverted());
      case '\\': return escape();
      default: return chars(literal_class());
    }
  }

  static RegexNode chars(CodePointSet set) { return RegexNode{.kind = Kind::kChars, .chars = std::move(set), .children = {}}; }

  CodePointSet literal_class() {
    const uint32_t c = next_code_point(text_, at_);
    return {{c, c}};
  }

  Result<RegexNode> group(int depth) {
    ++at_;
    Kind kind = Kind::kEmpty;
    if (take("?=")) {
      kind = Kind::kLookAhead;
    } else if (take("?!")) {
      kind = Kind::kNotAhead;
    } else if (text_.substr(at_, 3) == "?<=" || text_.substr(at_, 3) == "?<!") {
      return refused("look-behind");
    } else if (take("?<") || take("?P<")) {
      while (more() && peek() != '>') ++at_;
      if (!take(">")) return fault("a group name without '>'");
    } else if (take("?:")) {
    } else if (peek() == '?') {
      return refused("this kind of group");
    }
    DI_TRY(RegexNode inner, alternatives(depth + 1));
    if (!take(")")) return fault("a group without ')'");
    if (kind == Kind::kEmpty) return inner;
    RegexNode out{.kind = kind};
    out.children.push_back(std::move(inner));
    return out;
  }

  Status counts(RegexNode& part) {
    int32_t min = 0, max = 0;
    if (take("*")) {
      max = kNoLimit;
    } else if (take("+")) {
      min = 1;
      max = kNoLimit;
    } else if (take("?")) {
      max = 1;
    } else if (peek() == '{') {
      DI_TRY(const bool found, braces(min, max));
      if (!found) return fault("a '{' that begins no count");
    } else {
      return {};
    }
    take("?");  // lazy: the same texts
    if (part.kind != Kind::kChars && part.kind != Kind::kConcat && part.kind != Kind::kAlternate && part.kind != Kind::kRepeat &&
        part.kind != Kind::kEmpty) {
      return fault("a count of an anchor");
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') return fault("two counts in a row");
    RegexNode repeat{.kind = Kind::kRepeat, .chars = {}, .children = {}, .min = min, .max = max};
    repeat.children.push_back(std::move(part));
    part = std::move(repeat);
    return {};
  }

  Result<bool> braces(int32_t& min, int32_t& max) {
    ++at_;
    if (!number(min)) return false;
    max = min;
    if (take(",")) {
      max = kNoLimit;
      if (peek() != '}' && !number(max)) return false;
    }
    if (!take("}")) return false;
    if (max != kNoLimit && max < min) return fault("a count whose end lies before its beginning");
    if (min > kMaxCount || max > kMaxCount) return refused("a count above 100,000");
    return true;
  }

  bool number(int32_t& out) {
    const size_t begin = at_;
    int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9' && at_ < begin + 9; ++at_) value = value * 10 + (peek() - '0');
    out = static_cast<int32_t>(value);
    return at_ > begin;
  }

  Result<RegexNode> escape() {
    const char c = peek(1);
    if (c == 'b' || c == 'B') return refused("a word border");
    if (c >= '1' && c <= '9') return refused("a back reference");
    if (c == 'k') return refused("a back reference");
    DI_TRY(CodePointSet set, escaped_class());
    return chars(std::move(set));
  }

  // At a backslash: the class behind it, inside brackets or not.
  Result<CodePointSet> escaped_class() {
    ++at_;
    if (!more()) return fault("a backslash at the end");
    const char c = peek();
    switch (c) {
      case 'd': ++at_; return kDigit;
      case 'D': ++at_; return kDigit.inverted();
      case 'w': ++at_; return kWord;
      case 'W': ++at_; return kWord.inverted();
      case 's': ++at_; return kSpace;
      case 'S': ++at_; return kSpace.inverted();
      case 'p':
      case 'P': return refused("a Unicode property");
      case 't': ++at_; return CodePointSet{{9, 9}};
      case 'n': ++at_; return CodePointSet{{10, 10}};
      case 'v': ++at_; return CodePointSet{{11, 11}};
      case 'f': ++at_; return CodePointSet{{12, 12}};
      case 'r': ++at_; return CodePointSet{{13, 13}};
      case '0': ++at_; return CodePointSet{{0, 0}};
      case 'x': return hex(2);
      case 'u': return wide_hex();
      case 'c': return control();
      default: break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return refused(fmt::format("the escape \\{}", c));
    return literal_class();
  }

  Result<CodePointSet> control() {
    const char letter = static_cast<char>(peek(1) | 0x20);
    if (letter < 'a' || letter > 'z') return fault("\\c without a letter");
    at_ += 2;
    const auto code = static_cast<uint32_t>(letter - 'a' + 1);
    return CodePointSet{{code, code}};
  }

  bool hex_digits(size_t count, uint32_t& out) {
    out = 0;
    for (size_t i = 0; i < count; ++i) {
      const char c = peek(i);
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      out = out * 16 + static_cast<uint32_t>(digit);
    }
    at_ += count;
    return true;
  }

  Result<CodePointSet> hex(size_t count) {
    ++at_;
    uint32_t code = 0;
    if (!hex_digits(count, code)) return fault("an escape without its hexadecimal digits");
    return CodePointSet{{code, code}};
  }

  Result<CodePointSet> wide_hex() {
    ++at_;
    uint32_t code = 0;
    if (take("{")) {
      size_t count = 0;
      while (more() && peek(count) != '}' && count < 7) ++count;
      if (count == 0 || !hex_digits(count, code) || !take("}") || code > 0x10FFFF) return fault("a damaged \\u{...}");
      return CodePointSet{{code, code}};
    }
    if (!hex_digits(4, code)) return fault("an escape without its hexadecimal digits");
    if (code >= 0xD800 && code < 0xDC00 && peek() == '\\' && peek(1) == 'u') {
      const size_t back = at_;
      at_ += 2;
      uint32_t low = 0;
      if (hex_digits(4, low) && low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = back;
      }
    }
    return CodePointSet{{code, code}};
  }

  Result<RegexNode> bracket() {
    ++at_;
    const bool inverted = take("^");
    CodePointSet set;
    while (peek() != ']') {
      if (!more()) return fault("a '[' without ']'");
      DI_TRY(const CodePointSet first, member());
      const bool single = first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
      if (peek() != '-' || peek(1) == ']' || peek(1) == '\0' || !single) {
        set.add(first);
        continue;
      }
      ++at_;
      DI_TRY(const CodePointSet last, member());
      const uint32_t from = first.ranges()[0].first;
      if (last.ranges().size() != 1 || last.ranges()[0].first != last.ranges()[0].last) {
        // "a-\d": the hyphen stands for itself, as browsers read it.
        set.add(first);
        set.add('-', '-');
        set.add(last);
        continue;
      }
      if (last.ranges()[0].first < from) return fault("a range whose end lies before its beginning");
      set.add(from, last.ranges()[0].first);
    }
    ++at_;
    return chars(inverted ? set.inverted() : set);
  }

  Result<CodePointSet> member() {
    if (peek() != '\\') return literal_class();
    if (peek(1) == 'b') {
      at_ += 2;
      return CodePointSet{{8, 8}};
    }
    return escaped_class();
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<RegexNode> parse_regex_tree(std::string_view pattern) {
  if (!is_valid_utf8(pattern)) return invalid_argument("the regular expression is not valid UTF-8");
  return Parser(pattern).whole();
}

Rx pattern_dot(RegexArena& arena) { return utf8(arena, kLineEnds.inverted()); }

}  // namespace deepinfer
