#include "api/json_body.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/utf8.h"

namespace deepinfer {

namespace {

constexpr int kDepth = 128;

// Walks the body once and says what the reference would say, and where. Positions follow it too: most errors point one
// byte past the offending one.
class BodyChecker {
 public:
  explicit BodyChecker(std::string_view text) : text_(text) {}

  Status check() {
    if (value(kDepth)) {
      space();
      if (at_ == text_.size()) return {};
      peek_fail("trailing characters");
    }
    const std::string_view before = text_.substr(0, where_);
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    return corrupt(fmt::format("invalid JSON request: {} at line {} column {}", reason_, line, where_ - line_start));
  }

 private:
  bool fail(const char* reason) {
    reason_ = reason;
    where_ = at_;
    return false;
  }
  bool peek_fail(const char* reason) {
    reason_ = reason;
    where_ = std::min(text_.size(), at_ + 1);
    return false;
  }
  bool end() const { return at_ >= text_.size(); }
  char peek() const { return end() ? '\0' : text_[at_]; }
  void space() {
    while (!end() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }

  bool value(int depth) {
    space();
    if (end()) return peek_fail("EOF while parsing a value");
    switch (peek()) {
      case '{': return nested(depth, &BodyChecker::object);
      case '[': return nested(depth, &BodyChecker::array);
      case '"': ++at_; return string();
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: break;
    }
    if (peek() == '-' || (peek() >= '0' && peek() <= '9')) return number();
    return peek_fail("expected value");
  }

  bool nested(int depth, bool (BodyChecker::*body)(int)) {
    if (depth - 1 == 0) return peek_fail("recursion limit exceeded");
    ++at_;
    return (this->*body)(depth - 1);
  }

  bool word(std::string_view expected) {
    for (const char letter : expected) {
      if (end()) return fail("EOF while parsing a value");
      if (text_[at_++] != letter) return fail("expected ident");
    }
    return true;
  }

  bool object(int depth) {
    for (bool first = true;; first = false) {
      space();
      if (end()) return peek_fail("EOF while parsing an object");
      if (peek() == '}') return ++at_, true;
      if (!first) {
        if (peek() != ',') return peek_fail("expected `,` or `}`");
        ++at_;
        space();
      }
      if (end()) return peek_fail("EOF while parsing a value");
      if (peek() == '}') return peek_fail("trailing comma");
      if (peek() != '"') return peek_fail("key must be a string");
      ++at_;
      if (!string()) return false;
      space();
      if (end()) return peek_fail("EOF while parsing an object");
      if (peek() != ':') return peek_fail("expected `:`");
      ++at_;
      if (!value(depth)) return false;
    }
  }

  bool array(int depth) {
    for (bool first = true;; first = false) {
      space();
      if (end()) return peek_fail("EOF while parsing a list");
      if (peek() == ']') return ++at_, true;
      if (!first) {
        if (peek() != ',') return peek_fail("expected `,` or `]`");
        ++at_;
        space();
        if (end()) return peek_fail("EOF while parsing a value");
        if (peek() == ']') return peek_fail("trailing comma");
      }
      if (!value(depth)) return false;
    }
  }

  bool digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start;
  }

  bool number() {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
      if (peek() >= '0' && peek() <= '9') return peek_fail("invalid number");
    } else if (!digits()) {
      if (end()) return fail("EOF while parsing a value");
      ++at_;
      return fail("invalid number");
    }
    if (peek() == '.') {
      ++at_;
      if (!digits()) return peek_fail(end() ? "EOF while parsing a value" : "invalid number");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (end()) return fail("EOF while parsing a value");
      if (!digits()) {
        ++at_;
        return fail("invalid number");
      }
    }
    const std::string text(text_.substr(start, at_ - start));
    if (!std::isfinite(std::strtod(text.c_str(), nullptr))) return fail("number out of range");
    return true;
  }

  bool string() {
    const size_t start = at_;
    while (true) {
      if (end()) return fail("EOF while parsing a string");
      const auto byte = static_cast<unsigned char>(text_[at_++]);
      if (byte == '"') break;
      if (byte < 0x20) return fail("control character (\\u0000-\\u001F) found while parsing a string");
      if (byte == '\\' && !escape()) return false;
    }
    if (!is_valid_utf8(text_.substr(start, at_ - start))) return fail("invalid unicode code point");
    return true;
  }

  bool escape() {
    if (end()) return fail("EOF while parsing a string");
    const char letter = text_[at_++];
    if (letter == 'u') return unicode_escape();
    if (std::string_view("\"\\/bfnrt").find(letter) == std::string_view::npos) return fail("invalid escape");
    return true;
  }

  bool unicode_escape() {
    uint32_t code = 0;
    if (!hex4(code)) return false;
    if (code < 0xD800 || code > 0xDFFF) return true;
    if (code >= 0xDC00) return fail("lone leading surrogate in hex escape");
    for (const char expected : {'\\', 'u'}) {
      if (end()) return fail("EOF while parsing a string");
      if (text_[at_++] != expected) return fail("unexpected end of hex escape");
    }
    if (!hex4(code)) return false;
    if (code < 0xDC00 || code > 0xDFFF) return fail("lone leading surrogate in hex escape");
    return true;
  }

  bool hex4(uint32_t& code) {
    if (at_ + 4 > text_.size()) {
      at_ = text_.size();
      return fail("EOF while parsing a string");
    }
    const char* begin = text_.data() + at_;
    at_ += 4;
    const auto [stop, status] = std::from_chars(begin, begin + 4, code, 16);
    if (status != std::errc() || stop != begin + 4) return fail("invalid escape");
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  const char* reason_ = "";
  size_t where_ = 0;
};

}  // namespace

Result<Json> parse_json_body(std::string_view body) {
  DI_CHECK_OK(BodyChecker(body).check());
  DI_TRY(Json json, Json::parse(body));
  json.merge_duplicate_keys();
  return json;
}

}  // namespace deepinfer
