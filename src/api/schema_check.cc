#include "api/schema_check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "recipe/python_json.h"

namespace deepinfer {

namespace {

// What the meta-schema says about a keyword's value.
enum class Shape {
  kSchema,
  kSchemaMap,
  kSchemaList,  // at least one
  kItems,       // a schema; in drafts up to 2019 also a list of them
  kString,
  kRegex,
  kBoolean,
  kNumber,
  kPositive,  // a number above zero
  kCount,     // a non-negative integer
  kAnyList,
  kNames,  // unique strings
  kNamesMap,
  kDependencies,  // schemas or lists of names
  kTypes,
  kReference,
};

struct Keyword {
  std::string_view name;
  Shape shape;
};

constexpr std::array<Keyword, 52> kKeywords{{
    {"type", Shape::kTypes},
    {"properties", Shape::kSchemaMap},
    {"patternProperties", Shape::kSchemaMap},
    {"additionalProperties", Shape::kSchema},
    {"unevaluatedProperties", Shape::kSchema},
    {"propertyNames", Shape::kSchema},
    {"required", Shape::kNames},
    {"dependentRequired", Shape::kNamesMap},
    {"dependentSchemas", Shape::kSchemaMap},
    {"dependencies", Shape::kDependencies},
    {"minProperties", Shape::kCount},
    {"maxProperties", Shape::kCount},
    {"items", Shape::kItems},
    {"prefixItems", Shape::kSchemaList},
    {"additionalItems", Shape::kSchema},
    {"unevaluatedItems", Shape::kSchema},
    {"contains", Shape::kSchema},
    {"minItems", Shape::kCount},
    {"maxItems", Shape::kCount},
    {"minContains", Shape::kCount},
    {"maxContains", Shape::kCount},
    {"uniqueItems", Shape::kBoolean},
    {"enum", Shape::kAnyList},
    {"examples", Shape::kAnyList},
    {"allOf", Shape::kSchemaList},
    {"anyOf", Shape::kSchemaList},
    {"oneOf", Shape::kSchemaList},
    {"not", Shape::kSchema},
    {"if", Shape::kSchema},
    {"then", Shape::kSchema},
    {"else", Shape::kSchema},
    {"minLength", Shape::kCount},
    {"maxLength", Shape::kCount},
    {"pattern", Shape::kRegex},
    {"format", Shape::kString},
    {"contentEncoding", Shape::kString},
    {"contentMediaType", Shape::kString},
    {"contentSchema", Shape::kSchema},
    {"minimum", Shape::kNumber},
    {"maximum", Shape::kNumber},
    {"exclusiveMinimum", Shape::kNumber},
    {"exclusiveMaximum", Shape::kNumber},
    {"multipleOf", Shape::kPositive},
    {"title", Shape::kString},
    {"description", Shape::kString},
    {"$comment", Shape::kString},
    {"$schema", Shape::kString},
    {"$id", Shape::kString},
    {"$anchor", Shape::kString},
    {"$ref", Shape::kReference},
    {"$defs", Shape::kSchemaMap},
    {"definitions", Shape::kSchemaMap},
}};

constexpr std::array<std::string_view, 7> kTypeNames{"array", "boolean", "integer", "null", "number", "object", "string"};

Error wrong(const Json& value, std::string_view what) {
  return invalid_argument(fmt::format("{} {}", compact_json(value), what));
}
Error wrong_type(const Json& value, std::string_view type) { return wrong(value, fmt::format("is not of type \"{}\"", type)); }

bool is_type_name(const Json& value) {
  return value.is_string() && std::find(kTypeNames.begin(), kTypeNames.end(), value.as_string()) != kTypeNames.end();
}

// Enough of a regular expression's grammar to refuse what no engine accepts: brackets, groups, dangling escapes and
// repetitions of nothing.
bool is_regex(std::string_view text) {
  int open_groups = 0;
  bool can_repeat = false;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '\\':
        if (++i >= text.size()) return false;
        can_repeat = true;
        break;
      case '[': {
        size_t end = i + 1;
        if (end < text.size() && text[end] == '^') ++end;
        if (end < text.size() && text[end] == ']') ++end;
        while (end < text.size() && text[end] != ']') end += text[end] == '\\' ? 2 : 1;
        if (end >= text.size()) return false;
        i = end;
        can_repeat = true;
        break;
      }
      case '(':
        ++open_groups;
        can_repeat = false;
        if (i + 1 < text.size() && text[i + 1] == '?') ++i;
        break;
      case ')':
        if (--open_groups < 0) return false;
        can_repeat = true;
        break;
      case '*':
      case '+':
      case '?':
        if (!can_repeat) return false;
        if (i + 1 < text.size() && (text[i + 1] == '?' || text[i + 1] == '+')) ++i;
        can_repeat = false;
        break;
      case '|': can_repeat = false; break;
      default: can_repeat = true;
    }
  }
  return open_groups == 0;
}

class SchemaChecker {
 public:
  explicit SchemaChecker(const Json& root) : root_(root) {}

  Status schema(const Json& value) {
    if (value.is_bool()) return {};
    if (!value.is_object()) return wrong(value, "is not of types \"boolean\", \"object\"");
    for (const auto& [key, member] : value.members()) {
      const auto keyword =
          std::find_if(kKeywords.begin(), kKeywords.end(), [&name = key](const Keyword& k) { return k.name == name; });
      if (keyword != kKeywords.end()) DI_CHECK_OK(check(keyword->shape, member));
    }
    return {};
  }

 private:
  Status check(Shape shape, const Json& value) {
    switch (shape) {
      case Shape::kSchema: return schema(value);
      case Shape::kSchemaMap: return schema_map(value);
      case Shape::kSchemaList: return schema_list(value);
      case Shape::kItems: return value.is_array() && old_draft() ? schema_list(value) : schema(value);
      case Shape::kString: return value.is_string() ? Status{} : wrong_type(value, "string");
      case Shape::kRegex:
        if (!value.is_string()) return wrong_type(value, "string");
        return is_regex(value.as_string()) ? Status{} : wrong(value, "is not a \"regex\"");
      case Shape::kBoolean: return value.is_bool() ? Status{} : wrong_type(value, "boolean");
      case Shape::kNumber: return value.is_number() ? Status{} : wrong_type(value, "number");
      case Shape::kPositive: return positive(value);
      case Shape::kCount: return count(value);
      case Shape::kAnyList: return value.is_array() ? Status{} : wrong_type(value, "array");
      case Shape::kNames: return names(value);
      case Shape::kNamesMap: return names_map(value);
      case Shape::kDependencies: return dependencies(value);
      case Shape::kTypes: return types(value);
      case Shape::kReference: return reference(value);
    }
    return {};
  }

  bool old_draft() const {
    const Json& draft = root_.at("$schema");
    return draft.is_string() && draft.as_string().find("2020-12") == std::string::npos;
  }

  Status schema_map(const Json& value) {
    if (!value.is_object()) return wrong_type(value, "object");
    for (const auto& [key, member] : value.members()) DI_CHECK_OK(schema(member));
    return {};
  }

  Status schema_list(const Json& value) {
    if (!value.is_array()) return wrong_type(value, "array");
    if (value.size() == 0) return wrong(value, "has less than 1 item");
    for (const Json& item : value.items()) DI_CHECK_OK(schema(item));
    return {};
  }

  static Status positive(const Json& value) {
    if (!value.is_number()) return wrong_type(value, "number");
    if (std::strtod(value.number_text().c_str(), nullptr) > 0) return {};
    return wrong(value, "is less than or equal to the minimum of 0");
  }

  static Status count(const Json& value) {
    if (!value.is_number()) return wrong_type(value, "integer");
    const double number = std::strtod(value.number_text().c_str(), nullptr);
    if (number != static_cast<double>(static_cast<int64_t>(std::clamp(number, -1e15, 1e15)))) return wrong_type(value, "integer");
    return number < 0 ? wrong(value, "is less than the minimum of 0") : Status{};
  }

  static Status names(const Json& value) {
    if (!value.is_array()) return wrong_type(value, "array");
    std::vector<std::string> seen;
    for (const Json& item : value.items()) {
      if (!item.is_string()) return wrong_type(item, "string");
      seen.push_back(item.as_string());
    }
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) return wrong(value, "has non-unique elements");
    return {};
  }

  static Status names_map(const Json& value) {
    if (!value.is_object()) return wrong_type(value, "object");
    for (const auto& [key, member] : value.members()) DI_CHECK_OK(names(member));
    return {};
  }

  Status dependencies(const Json& value) {
    if (!value.is_object()) return wrong_type(value, "object");
    for (const auto& [key, member] : value.members()) DI_CHECK_OK(member.is_array() ? names(member) : schema(member));
    return {};
  }

  static Status types(const Json& value) {
    bool valid = is_type_name(value);
    if (value.is_array()) valid = value.size() > 0 && std::all_of(value.items().begin(), value.items().end(), is_type_name);
    if (valid && value.is_array()) valid = names(value).ok();
    return valid ? Status{} : wrong(value, "is not valid under any of the schemas listed in the 'anyOf' keyword");
  }

  Status reference(const Json& value) {
    if (!value.is_string()) return wrong_type(value, "string");
    const std::string& target = value.as_string();
    if (target.empty() || target == "#") return {};
    if (target[0] != '#')
      return invalid_argument(fmt::format("Resource '{}' is not present in a registry and is not fetched", target));
    if (target[1] != '/') return anchor_exists(root_, target.substr(1)) ? Status{} : missing_anchor(target);
    return resolve(target.substr(1)) ? Status{} : invalid_argument(fmt::format("Pointer '{}' does not exist", target.substr(1)));
  }

  static Error missing_anchor(const std::string& target) {
    return invalid_argument(fmt::format("Anchor '{}' does not exist", target.substr(1)));
  }

  static bool anchor_exists(const Json& value, const std::string& name) {
    for (const char* key : {"$anchor", "$dynamicAnchor"}) {
      if (value.at(key).is_string() && value.at(key).as_string() == name) return true;
    }
    for (const Json& item : value.items()) {
      if (anchor_exists(item, name)) return true;
    }
    for (const auto& [key, member] : value.members()) {
      if (anchor_exists(member, name)) return true;
    }
    return false;
  }

  static std::string unescape(std::string_view token) {
    std::string out;
    for (size_t i = 0; i < token.size(); ++i) {
      if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
        out += token[++i] == '0' ? '~' : '/';
      } else if (token[i] == '%' && i + 2 < token.size()) {
        unsigned code = 0;
        const auto [end, status] = std::from_chars(token.data() + i + 1, token.data() + i + 3, code, 16);
        if (status != std::errc() || end != token.data() + i + 3) return std::string(token);
        out += static_cast<char>(code);
        i += 2;
      } else {
        out += token[i];
      }
    }
    return out;
  }

  bool resolve(std::string_view pointer) const {
    const Json* at = &root_;
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const size_t end = std::min(pointer.find('/'), pointer.size());
      const std::string token = unescape(pointer.substr(0, end));
      pointer.remove_prefix(end);
      if (at->is_array()) {
        size_t index = 0;
        const auto [stop, status] = std::from_chars(token.data(), token.data() + token.size(), index);
        if (status != std::errc() || stop != token.data() + token.size() || index >= at->size()) return false;
        at = &at->items()[index];
      } else {
        at = at->find(token);
        if (!at) return false;
      }
    }
    return true;
  }

  const Json& root_;
};

}  // namespace

Status check_schema(const Json& schema) { return SchemaChecker(schema).schema(schema); }

Status check_tool_schema(std::string_view function, const Json& schema) {
  const auto fault = [&](std::string_view detail) {
    return invalid_argument(fmt::format("Invalid schema for function '{}': {}", function, detail));
  };
  if (const Status valid = check_schema(schema); !valid) return fault(valid.error().message);
  const Json& type = schema.at("type");
  if (type.is_string() && type.as_string() == "object") return {};
  return fault(fmt::format("schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.", compact_json(type)));
}

}  // namespace deepinfer
