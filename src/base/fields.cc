#include "base/fields.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/nearest.h"

namespace deepinfer {
namespace {

Error wrong(const Field& field, std::string_view text, std::string_view expected) {
  return invalid_argument(fmt::format("--{} is {}, not '{}'", field.name, expected, text.substr(0, 100)));
}

std::string range_text(const Field& field, const char* kind) {
  const bool low = std::isfinite(field.min), high = std::isfinite(field.max);
  if (low && high) return fmt::format("{} from {} to {}", kind, field.min, field.max);
  if (low) return fmt::format("{} of at least {}", kind, field.min);
  return kind;
}

template <class T>
Status set_number(const Field& field, std::string_view text, T& target) {
  const char* kind = std::is_integral_v<T> ? "a whole number" : "a number";
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc() && end == text.data() + text.size();
  if (!whole || !(static_cast<double>(value) >= field.min && static_cast<double>(value) <= field.max)) {
    return wrong(field, text, range_text(field, kind));
  }
  target = value;
  return {};
}

Status set_bool(const Field& field, std::string_view text, bool& target) {
  if (text == "true" || text == "1" || text == "on") return target = true, Status();
  if (text == "false" || text == "0" || text == "off") return target = false, Status();
  return wrong(field, text, "on or off");
}

Status set_string(const Field& field, std::string_view text, std::string& target) {
  bool known = field.choices.empty();
  std::string all;
  for (const std::string& choice : field.choices) {
    known |= choice == text;
    all += (all.empty() ? "" : ", ") + choice;
  }
  if (!known) {
    Error error = wrong(field, text, "one of " + all);
    error.message += did_you_mean(text, field.choices);
    return error;
  }
  target = text;
  return {};
}

struct Setter {
  const Field& field;
  std::string_view text;
  Status operator()(bool* target) const { return set_bool(field, text, *target); }
  Status operator()(std::string* target) const { return set_string(field, text, *target); }
  Status operator()(std::optional<std::string>* target) const { return set_string(field, text, target->emplace()); }
  Status operator()(std::optional<float>* target) const {
    float value = 0;
    DI_CHECK_OK(set_number(field, text, value));
    *target = value;
    return {};
  }
  template <class T>
  Status operator()(T* target) const {
    return set_number(field, text, *target);
  }
};

struct Printer {
  std::string operator()(const bool* target) const { return *target ? "on" : "off"; }
  std::string operator()(const std::string* target) const { return *target; }
  std::string operator()(const std::optional<std::string>* target) const { return target->value_or(""); }
  std::string operator()(const std::optional<float>* target) const { return *target ? fmt::format("{}", **target) : ""; }
  template <class T>
  std::string operator()(const T* target) const {
    return fmt::format("{}", *target);
  }
};

}  // namespace

Status set_field(const Field& field, std::string_view text) { return std::visit(Setter{field, text}, field.target); }

std::string field_text(const Field& field) { return std::visit(Printer{}, field.target); }

}  // namespace deepinfer
