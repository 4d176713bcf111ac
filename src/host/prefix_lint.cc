#include "host/prefix_lint.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"

namespace deepinfer {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
// Of a date, a time, a number, an id.
bool in_value(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == ':' || c == '.' || c == '/' || c == '_' || c == '+';
}

// What of `text` holds the place `at`, as long as it is made of such characters.
std::string_view around(std::string_view text, size_t at, bool (*belongs)(char)) {
  size_t begin = std::min(at, text.size()), end = begin;
  while (begin > 0 && belongs(text[begin - 1])) --begin;
  while (end < text.size() && belongs(text[end])) ++end;
  return text.substr(begin, end - begin);
}

std::string_view line_at(std::string_view text, size_t at) {
  return around(text, at, [](char c) { return c != '\n'; });
}

// Digits become 9 and letters of hexadecimal numbers with digits stay: "2026-11-30" has the shape "9999-99-99".
bool has_shape(std::string_view value, std::string_view shape) {
  for (size_t at = 0; at + shape.size() <= value.size(); ++at) {
    const auto fits = [&](size_t i) { return shape[i] == '9' ? is_digit(value[at + i]) : value[at + i] == shape[i]; };
    size_t i = 0;
    while (i < shape.size() && fits(i)) ++i;
    if (i == shape.size()) return true;
  }
  return false;
}

bool is_day_or_month(std::string_view word) {
  constexpr std::array<std::string_view, 19> kNames = {"mon", "tue", "wed", "thu", "fri", "sat", "sun", "jan", "feb", "mar",
                                                       "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"};
  std::string lower(word.substr(0, 3));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return word.size() >= 3 && word.size() <= 9 && std::find(kNames.begin(), kNames.end(), lower) != kNames.end();
}

// "" when it is nothing that changes by itself.
std::string_view kind_of_value(std::string_view value) {
  const auto digits = static_cast<size_t>(std::count_if(value.begin(), value.end(), is_digit));
  const auto hex = static_cast<size_t>(std::count_if(value.begin(), value.end(), is_hex));
  for (const std::string_view shape : {"9999-99-99", "9999/99/99", "99/99/9999", "99.99.9999"}) {
    if (has_shape(value, shape)) return "a date";
  }
  if (has_shape(value, "9:99")) return "a time";
  if (is_day_or_month(value)) return "a date";
  if (digits > 0 && hex >= 12 && value.size() - hex <= 4 + value.size() / 4) return hex == digits ? "a number" : "an id";
  if (digits >= 4 && digits * 2 >= value.size() && value.size() > 6) return "an id";
  return digits > 0 && digits == value.size() ? "a number" : "";
}

std::optional<PrefixHint> volatile_value(std::string_view here, std::string_view there, size_t at) {
  const std::string_view mine = around(here, at, in_value), other = around(there, at, in_value);
  const std::string_view kind = kind_of_value(mine);
  if (kind.empty() || kind != kind_of_value(other)) return std::nullopt;
  return PrefixHint{"volatile value",
                    fmt::format("{} changes here ({} was {}): put it behind what stays the same, or leave it out", kind,
                                mine.substr(0, 40), other.substr(0, 40))};
}

bool same_without_spaces(std::string_view a, std::string_view b) {
  constexpr size_t kEnough = 24;
  size_t i = 0, j = 0, same = 0;
  while (true) {
    while (i < a.size() && is_space(a[i])) ++i;
    while (j < b.size() && is_space(b[j])) ++j;
    if (i == a.size() || j == b.size()) return same >= kEnough;
    if (a[i++] != b[j++]) return false;
    ++same;
  }
}

// The innermost object around `at` that ends within the text.
std::optional<Json> object_around(std::string_view text, size_t at) {
  for (size_t begin = std::min(at + 1, text.size()); begin-- > 0;) {
    if (text[begin] != '{') continue;
    int depth = 0;
    bool quoted = false;
    for (size_t end = begin; end < text.size(); ++end) {
      const char c = text[end];
      if (quoted && c == '\\') {
        ++end;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && c == '{') {
        ++depth;
      } else if (!quoted && c == '}' && --depth == 0) {
        auto parsed = Json::parse(text.substr(begin, end + 1 - begin));
        if (parsed && end >= at) return *std::move(parsed);
        break;
      }
    }
  }
  return std::nullopt;
}

std::string sorted(const Json& json) {
  if (json.is_array()) {
    std::string out = "[";
    for (const Json& item : json.items()) out += sorted(item) + ',';
    return out + ']';
  }
  if (!json.is_object()) return json.dump();
  std::vector<std::string> members;
  for (const auto& [name, value] : json.members()) members.push_back(Json(name).dump() + ':' + sorted(value));
  std::sort(members.begin(), members.end());
  std::string out = "{";
  for (const std::string& member : members) out += member + ',';
  return out + '}';
}

bool has_line(std::string_view text, std::string_view line) {
  for (size_t at = text.find(line); at != std::string_view::npos; at = text.find(line, at + 1)) {
    if (line_at(text, at) == line) return true;
  }
  return false;
}

// A whole line of one side stands further down on the other.
std::optional<PrefixHint> other_order(std::string_view here, std::string_view there, size_t at) {
  constexpr size_t kLeast = 8;
  const std::string_view mine = line_at(here, at), other = line_at(there, at);
  const auto later = [&](std::string_view text, std::string_view line) {
    const size_t end = text.find('\n', at);
    return line.size() >= kLeast && end != std::string_view::npos && has_line(text.substr(end + 1), line);
  };
  if (mine == other || (!later(there, mine) && !later(here, other))) return std::nullopt;
  if (mine.starts_with("{\"name\":"))
    return PrefixHint{"order of tools", "the same tools come in another order: sort them, by name for example"};
  return PrefixHint{"order of lines", "the same lines come in another order: sort them"};
}

}  // namespace

std::optional<PrefixHint> lint_prefix(std::string_view before, std::string_view here, std::string_view there) {
  const std::string mine = std::string(before) + std::string(here), other = std::string(before) + std::string(there);
  const size_t at = static_cast<size_t>(std::mismatch(mine.begin(), mine.end(), other.begin(), other.end()).first - mine.begin());
  if (at == mine.size() || at == other.size()) return std::nullopt;
  const bool json = mine.find_first_of("{[") != std::string::npos;
  if (json && same_without_spaces(std::string_view(mine).substr(at), std::string_view(other).substr(at)))
    return PrefixHint{"spaces in JSON", "the same JSON is written with other spaces or lines: write it the same way each time"};
  const auto one = object_around(mine, at), two = object_around(other, at);
  if (one && two && sorted(*one) == sorted(*two))
    return PrefixHint{"order of keys", "the same JSON has its keys in another order: sort them"};
  if (auto hint = other_order(mine, other, at)) return hint;
  return volatile_value(mine, other, at);
}

}  // namespace deepinfer
