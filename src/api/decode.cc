#include "api/decode.h"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "recipe/python_json.h"

namespace deepinfer {

namespace {

constexpr std::string_view kPrefix = "invalid request body: ";

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string describe(const Json& json) {
  switch (json.kind()) {
    case Json::Kind::kNull: return "null";
    case Json::Kind::kBool: return fmt::format("boolean `{}`", json.as_bool());
    case Json::Kind::kString: return "string " + quoted(json.as_string());
    case Json::Kind::kArray: return "sequence";
    case Json::Kind::kObject: return "map";
    case Json::Kind::kNumber: break;
  }
  if (is_exact_integer(json)) return fmt::format("integer `{}`", json.number_text());
  return fmt::format("floating point `{}`", compact_json(json));
}

}  // namespace

FieldRule required(std::string_view name, FieldReader read) { return {name, true, std::move(read)}; }

FieldRule optional(std::string_view name, FieldReader read) {
  return {name, false, [read = std::move(read)](const Json& json) { return json.is_null() ? Status{} : read(json); }};
}

Error decode_error(std::string text) { return invalid_argument(std::string(kPrefix) + std::move(text)); }

Error invalid_type(const Json& json, std::string_view expected) {
  return decode_error(fmt::format("invalid type: {}, expected {}", describe(json), expected));
}

Error unknown_variant(std::string_view value, const std::vector<std::string_view>& variants) {
  std::string list;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (i) list += variants.size() == 2 ? " or " : ", ";
    list += fmt::format("`{}`", variants[i]);
  }
  return decode_error(fmt::format("unknown variant `{}`, expected {}{}", value, variants.size() > 2 ? "one of " : "", list));
}

Error missing_field(std::string_view name) { return decode_error(fmt::format("missing field `{}`", name)); }

Error within_field(std::string_view name, const Error& error) {
  std::string_view reason = error.message;
  if (reason.substr(0, kPrefix.size()) == kPrefix) reason.remove_prefix(kPrefix.size());
  return decode_error(fmt::format("field `{}`: {}", name, reason));
}

Status decode_struct(const Json& json, std::string_view what, const std::vector<FieldRule>& fields, int num_elements) {
  if (json.is_array()) {
    const int count = num_elements ? num_elements : static_cast<int>(fields.size());
    return decode_error(
        fmt::format("invalid length {}, expected struct {} with {} element{}", json.size(), what, count, count == 1 ? "" : "s"));
  }
  if (!json.is_object()) return invalid_type(json, fmt::format("struct {}", what));
  for (const auto& [key, value] : json.members()) {
    for (const FieldRule& field : fields) {
      if (field.name == key) DI_CHECK_OK(field.read(value));
    }
  }
  for (const FieldRule& field : fields) {
    if (field.is_required && !json.find(field.name)) return missing_field(field.name);
  }
  return {};
}

Status read_string(const Json& json, std::string& out) {
  if (!json.is_string()) return invalid_type(json, "a string");
  out = json.as_string();
  return {};
}

Status read_bool(const Json& json, bool& out) {
  if (!json.is_bool()) return invalid_type(json, "a boolean");
  out = json.as_bool();
  return {};
}

Status read_unsigned(const Json& json, std::string_view type, uint64_t max, uint64_t& out) {
  if (!json.is_number() || !is_exact_integer(json)) return invalid_type(json, type);
  const std::string& text = json.number_text();
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (status == std::errc() && end == text.data() + text.size() && out <= max) return {};
  return decode_error(fmt::format("invalid value: {}, expected {}", describe(json), type));
}

Status read_f32(const Json& json, float& out) {
  if (!json.is_number()) return invalid_type(json, "f32");
  out = static_cast<float>(std::strtod(json.number_text().c_str(), nullptr));
  return {};
}

Status read_variant(const Json& json, const std::vector<std::string_view>& variants, size_t& out, std::string_view expected) {
  if (json.is_object()) return decode_error("invalid value: map, expected map with a single key");
  if (!json.is_string()) return invalid_type(json, expected);
  for (out = 0; out < variants.size(); ++out) {
    if (variants[out] == json.as_string()) return {};
  }
  return unknown_variant(json.as_string(), variants);
}

Status read_list(const Json& json, const FieldReader& read_item) {
  if (!json.is_array()) return invalid_type(json, "a sequence");
  for (const Json& item : json.items()) DI_CHECK_OK(read_item(item));
  return {};
}

Status read_tag(const Json& json, std::string_view what, std::string_view tag, const std::vector<std::string_view>& variants,
                size_t& out) {
  if (json.is_array()) return missing_field(tag);
  if (!json.is_object()) return invalid_type(json, fmt::format("internally tagged enum {}", what));
  const Json* value = json.find(tag);
  if (!value) return missing_field(tag);
  if (!value->is_string()) return invalid_type(*value, "variant identifier");
  for (out = 0; out < variants.size(); ++out) {
    if (variants[out] == value->as_string()) return {};
  }
  return unknown_variant(value->as_string(), variants);
}

Status read_logit_bias(const Json& json, std::vector<std::pair<TokenId, float>>& bias) {
  if (!json.is_object()) return invalid_type(json, "a map");
  for (const auto& [key, value] : json.members()) {
    auto& [token, amount] = bias.emplace_back();
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (status != std::errc() || end != key.data() + key.size() || token < 0) {
      return invalid_argument(fmt::format("Invalid logit_bias key '{}': expected a token id", key));
    }
    DI_CHECK_OK(read_f32(value, amount));
    if (!(amount >= -100.0f && amount <= 100.0f)) {
      return invalid_argument("Invalid logit_bias value, the valid range of logit_bias is [-100, 100]");
    }
  }
  return {};
}

}  // namespace deepinfer
