#include "recipe/python_json.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

namespace deepinfer {

namespace {

struct Style {
  const char* item_separator;
  const char* key_separator;
  int smallest_fixed_exponent;  // below it the number is written with an exponent
  int exponent_digits;          // at least so many
};

constexpr Style kPython{", ", ": ", -4, 2};
constexpr Style kCompact{",", ":", -5, 1};

std::string exponent_text(int exponent, int digits) {
  return fmt::format("e{}{:0{}}", exponent < 0 ? '-' : '+', std::abs(exponent), digits);
}

std::string fixed_text(const std::string& digits, int exponent) {
  const int count = static_cast<int>(digits.size());
  if (exponent < 0) return "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (exponent + 1 >= count) return digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return digits.substr(0, static_cast<size_t>(exponent + 1)) + "." + digits.substr(static_cast<size_t>(exponent + 1));
}

std::string number_text(double value, const Style& style) {
  char buffer[40] = {};
  const auto [end, status] = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t mark = text.find('e');
  std::string digits(1, text[0]);
  if (mark > 2) digits += text.substr(2, mark - 2);
  const int exponent = std::atoi(text.data() + mark + 1);
  if (exponent >= style.smallest_fixed_exponent && exponent <= 15) return out + fixed_text(digits, exponent);
  out += digits[0];
  if (digits.size() > 1) out += "." + digits.substr(1);
  return out + exponent_text(exponent, style.exponent_digits);
}

void append_value(std::string& out, const Json& value, const Style& style);

void append_object(std::string& out, const Json& value, const Style& style) {
  out += '{';
  bool first = true;
  for (const auto& [key, member] : value.members()) {
    if (!first) out += style.item_separator;
    first = false;
    append_json_string(out, key);
    out += style.key_separator;
    append_value(out, member, style);
  }
  out += '}';
}

void append_value(std::string& out, const Json& value, const Style& style) {
  switch (value.kind()) {
    case Json::Kind::kNull: out += "null"; return;
    case Json::Kind::kBool: out += value.as_bool() ? "true" : "false"; return;
    case Json::Kind::kString: append_json_string(out, value.as_string()); return;
    case Json::Kind::kNumber:
      out +=
          is_exact_integer(value) ? value.number_text() : number_text(std::strtod(value.number_text().c_str(), nullptr), style);
      return;
    case Json::Kind::kObject: append_object(out, value, style); return;
    case Json::Kind::kArray: break;
  }
  out += '[';
  for (size_t i = 0; i < value.size(); ++i) {
    if (i) out += style.item_separator;
    append_value(out, value[i], style);
  }
  out += ']';
}

std::string write(const Json& value, const Style& style) {
  Json merged = value;
  merged.merge_duplicate_keys();
  std::string out;
  append_value(out, merged, style);
  return out;
}

}  // namespace

bool is_exact_integer(const Json& number) {
  const std::string& text = number.number_text();
  if (!number.is_integer() || text == "-0") return false;
  const char* end = text.data() + text.size();
  uint64_t large = 0;
  int64_t signed_value = 0;
  if (const auto [at, status] = std::from_chars(text.data(), end, large); status == std::errc() && at == end) return true;
  const auto [at, status] = std::from_chars(text.data(), end, signed_value);
  return status == std::errc() && at == end;
}

bool numbers_fit_double(const Json& value) {
  if (value.is_number()) return is_exact_integer(value) || std::isfinite(std::strtod(value.number_text().c_str(), nullptr));
  for (const Json& item : value.items()) {
    if (!numbers_fit_double(item)) return false;
  }
  for (const auto& [key, member] : value.members()) {
    if (!numbers_fit_double(member)) return false;
  }
  return true;
}

std::string python_json(const Json& value) { return write(value, kPython); }
std::string compact_json(const Json& value) { return write(value, kCompact); }
std::string python_number(double value) { return number_text(value, kPython); }

}  // namespace deepinfer
