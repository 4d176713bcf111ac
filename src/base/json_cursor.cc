#include "base/json_cursor.h"

#include <immintrin.h>

#include <bit>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"

namespace deepinfer {

bool JsonCursor::fail(std::string reason) {
  if (!failed_) {
    failed_ = true;
    failed_at_ = at_;
    reason_ = std::move(reason);
    at_ = text_.size();
  }
  return false;
}

Error JsonCursor::error() const {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < failed_at_ && i < text_.size(); ++i) {
    column = text_[i] == '\n' ? 1 : column + 1;
    line += text_[i] == '\n';
  }
  return corrupt(fmt::format("line {} column {}: {}", line, column, reason_));
}

void JsonCursor::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
}

bool JsonCursor::expect(char wanted) {
  if (at_ < text_.size() && text_[at_] == wanted) return ++at_, true;
  if (failed_) return false;
  skip_space();
  if (at_ >= text_.size()) return fail("unexpected end of the JSON text");
  if (text_[at_] != wanted) return fail(fmt::format("expected '{}'", wanted));
  ++at_;
  return true;
}

char JsonCursor::peek() {
  if (failed_) return 0;
  skip_space();
  if (at_ >= text_.size()) return 0;
  const char c = text_[at_];
  if (c == 'n') return '0';
  if (c == '-' || (c >= '0' && c <= '9')) return 'n';
  return c;
}

bool JsonCursor::open_object() { return expect('{') && (first_ = true); }
bool JsonCursor::open_array() { return expect('[') && (first_ = true); }

bool JsonCursor::next_member(std::string& key) { return member_follows() && read_string(key) && expect(':'); }

bool JsonCursor::next_raw_member(std::string_view& key, std::string& storage) {
  return member_follows() && read_raw_string(key, storage) && expect(':');
}

bool JsonCursor::member_follows() {
  if (failed_) return false;
  skip_space();
  const bool first = std::exchange(first_, false);
  if (at_ < text_.size() && text_[at_] == '}') return ++at_, false;
  return first || expect(',');
}

bool JsonCursor::next_item() {
  if (failed_) return false;
  skip_space();
  const bool first = std::exchange(first_, false);
  if (at_ < text_.size() && text_[at_] == ']') return ++at_, false;
  return first || expect(',');
}

// Where a string's plain part ends: at a quote, a backslash, a control character or the end. `wide` tells of bytes above 127.
size_t JsonCursor::plain_end(size_t at, bool& wide) const {
  while (at + 16 <= text_.size()) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text_.data() + at));
    const __m128i quote = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
    const auto stops = static_cast<uint32_t>(_mm_movemask_epi8(_mm_or_si128(quote, control)));
    const uint32_t before = stops == 0 ? 0xFFFFu : (stops & (0u - stops)) - 1;
    wide |= (static_cast<uint32_t>(_mm_movemask_epi8(bytes)) & before) != 0;
    if (stops != 0) return at + static_cast<size_t>(std::countr_zero(stops));
    at += 16;
  }
  for (; at < text_.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte == '"' || byte == '\\' || byte < 0x20) break;
    wide |= byte >= 0x80;
  }
  return at;
}

bool JsonCursor::read_raw_string(std::string_view& out, std::string& storage) {
  bool wide = false;
  return open_string(out, storage, wide);
}

bool JsonCursor::read_string(std::string& out) {
  std::string_view raw;
  bool wide = false;
  if (!open_string(raw, out, wide)) return false;
  if (wide && !is_valid_utf8(raw)) return fail("string is not valid UTF-8");
  if (raw.data() != out.data()) out.assign(raw);
  return true;
}

bool JsonCursor::open_string(std::string_view& out, std::string& storage, bool& wide) {
  if (!expect('"')) return false;
  const size_t from = at_;
  const size_t end = plain_end(from, wide);
  if (end >= text_.size() || text_[end] != '"') {
    if (!read_escaped(storage, from)) return false;
    out = storage;
    return true;
  }
  out = text_.substr(from, end - from);
  at_ = end + 1;
  return true;
}

// Strings with escapes are rare (one token in a thousand): the tree parser knows the rules.
bool JsonCursor::read_escaped(std::string& out, size_t from) {
  if (!skip_string()) return false;
  auto value = Json::parse(text_.substr(from - 1, at_ - from + 1));
  if (!value) {
    at_ = from;
    return fail("bad string: " + value.error().message);
  }
  out = value->as_string();
  return true;
}

bool JsonCursor::skip_string() {
  while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
  if (at_ >= text_.size()) return at_ = text_.size(), fail("unterminated string");
  ++at_;
  return true;
}

bool JsonCursor::read_int64(int64_t& out) {
  if (failed_) return false;
  skip_space();
  const char* end = text_.data() + text_.size();
  const auto [stop, code] = std::from_chars(text_.data() + at_, end, out);
  if (code == std::errc::result_out_of_range) return fail("integer too large");
  if (code != std::errc() || (stop < end && (*stop == '.' || *stop == 'e' || *stop == 'E'))) return fail("expected an integer");
  at_ = static_cast<size_t>(stop - text_.data());
  return true;
}

bool JsonCursor::skip_value(std::string_view& raw) {
  if (failed_) return false;
  first_ = false;
  skip_space();
  const size_t from = at_;
  int64_t depth = 0;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      if (!skip_string()) return false;
      --at_;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) break;
      if (depth == 0) {
        ++at_;
        break;
      }
    } else if (c == ',' && depth == 0) {
      break;
    }
  }
  if (depth > 0) return fail("unexpected end of the JSON text");
  raw = text_.substr(from, at_ - from);
  return !raw.empty() || fail("expected a value");
}

bool JsonCursor::finish() {
  if (failed_) return false;
  skip_space();
  return at_ == text_.size() || fail("unexpected text after the value");
}

}  // namespace deepinfer
