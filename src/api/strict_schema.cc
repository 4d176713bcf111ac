#include "api/strict_schema.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "api/decode.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

const std::vector<std::string_view> kTypes{"object", "string", "number", "integer", "boolean", "array", "null"};
const std::vector<std::string_view> kListTypes{"string", "number", "integer", "boolean", "null"};
const std::vector<std::string_view> kFormats{"email", "hostname", "ipv4", "ipv6", "uuid"};

// First the shape is read, as the reference reads it (decode errors, first one wins); then the rules are checked.
class StrictReader {
 public:
  explicit StrictReader(bool lenient) : lenient_(lenient) {}

  Result<Json> node(const Json& json) {
    if (json.is_object()) {
      if (const Json* type = json.find("type")) return type->is_array() ? type_list(json, *type) : typed(json);
      if (const Json* list = json.find("anyOf")) return any_of(json, *list);
      if (const Json* target = json.find("$ref")) return reference(*target);
    }
    return decode_error("one of `type`, `anyOf`, `$ref` field is required");
  }

 private:
  // A node whose `type` is one word.
  Result<Json> typed(const Json& json) {
    size_t type = 0;
    DI_CHECK_OK(read_tag(json, "JsonSchema", "type", kTypes, type));
    Json out = Json::object();
    out.set("type", kTypes[type]);
    switch (type) {
      case 0: return object(json, std::move(out));
      case 1: return string(json, std::move(out));
      case 2: return number(json, std::move(out), false);
      case 3: return number(json, std::move(out), true);
      case 5: return array(json, std::move(out));
      default: DI_CHECK_OK(copy_description(json, out)); return out;
    }
  }

  Result<Json> object(const Json& json, Json out) {
    Json properties = Json::object();
    Json definitions;
    std::optional<std::vector<std::string>> names;
    std::optional<bool> additional;
    std::optional<std::string> description;
    DI_CHECK_OK(decode_struct(json, "ObjectSchema",
                              {optional("properties", [&](const Json& map) { return node_map(map, properties); }),
                               optional("additionalProperties", into(additional, read_bool)),
                               optional("required", [&](const Json& list) { return read_names(list, names); }),
                               optional("description", into(description, read_string)),
                               optional("$def", [&](const Json& map) { return node_map(map, definitions); })}));
    Json listed = Json::array();
    for (const auto& [name, member] : properties.members()) listed.push_back(name);
    Json given = Json::array();
    if (names) {
      for (const std::string& name : *names) given.push_back(name);
    } else {
      given = listed;
    }
    out.set("properties", std::move(properties));
    out.set("additionalProperties", additional.value_or(false));
    out.set("required", std::move(given));
    if (description) out.set("description", *description);
    if (!definitions.is_null()) out.set("$def", std::move(definitions));
    return out;
  }

  Result<Json> string(const Json& json, Json out) {
    std::optional<std::string> description, pattern;
    std::optional<size_t> format;
    Json values;
    DI_CHECK_OK(
        decode_struct(json, "StringSchema",
                      {optional("description", into(description, read_string)), optional("pattern", into(pattern, read_string)),
                       optional("format", [&](const Json& v) { return read_variant(v, kFormats, format.emplace()); }),
                       optional("enum", [&](const Json& list) {
                         values = Json::array();
                         return read_list(list, [&](const Json& item) -> Status {
                           if (!item.is_string()) return invalid_type(item, "a string");
                           values.push_back(item);
                           return {};
                         });
                       })}));
    if (description) out.set("description", *description);
    if (pattern) out.set("pattern", *pattern);
    if (format) out.set("format", kFormats[*format]);
    if (!values.is_null()) out.set("enum", std::move(values));
    return out;
  }

  Result<Json> number(const Json& json, Json out, bool integer) {
    DI_CHECK_OK(copy_description(json, out));
    for (const char* key : {"const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
      const Json& value = json.at(key);
      if (value.is_null()) continue;
      if (integer) {
        DI_CHECK_OK(check_int64(value));
      } else if (!value.is_number()) {
        return invalid_type(value, "f64");
      }
      out.set(key, value);
    }
    return out;
  }

  Result<Json> array(const Json& json, Json out) {
    Json items;
    std::optional<std::string> description;
    DI_CHECK_OK(decode_struct(json, "ArraySchema",
                              {required("items",
                                        [&](const Json& item) -> Status {
                                          DI_TRY(items, node(item));
                                          return {};
                                        }),
                               optional("description", into(description, read_string))}));
    out.set("items", std::move(items));
    if (description) out.set("description", *description);
    return out;
  }

  Result<Json> type_list(const Json& json, const Json& types) {
    Json names = Json::array();
    for (const Json& type : types.items()) {
      size_t index = 0;
      if (const Status read = read_variant(type, kListTypes, index); !read) return within_field("type", read.error());
      names.push_back(kListTypes[index]);
    }
    Json out = Json::object();
    out.set("type", std::move(names));
    DI_CHECK_OK(copy_description(json, out));
    return out;
  }

  // The members of anyOf must have a type each, as in the reference.
  Result<Json> any_of(const Json& json, const Json& list) {
    Json members = Json::array();
    if (!list.is_array()) return within_field("anyOf", invalid_type(list, "a sequence"));
    for (const Json& item : list.items()) {
      const bool refers = lenient_ && !item.find("type") && item.at("$ref").is_string();
      Result<Json> member = refers                       ? reference(item.at("$ref"))
                            : item.at("type").is_array() ? type_list(item, item.at("type"))
                                                         : typed(item);
      if (!member) return within_field("anyOf", member.error());
      members.push_back(*std::move(member));
    }
    Json out = Json::object();
    out.set("anyOf", std::move(members));
    DI_CHECK_OK(copy_description(json, out));
    return out;
  }

  static Result<Json> reference(const Json& target) {
    if (!target.is_string()) return within_field("$ref", invalid_type(target, "a string"));
    Json out = Json::object();
    out.set("$ref", target);
    return out;
  }

  Status node_map(const Json& map, Json& out) {
    if (!map.is_object()) return invalid_type(map, "a map");
    out = Json::object();
    for (const auto& [name, member] : map.members()) {
      DI_TRY(Json read, node(member));
      out.set(name, std::move(read));
    }
    return {};
  }

  static Status read_names(const Json& list, std::optional<std::vector<std::string>>& out) {
    out.emplace();
    return read_list(list, [&](const Json& item) -> Status {
      std::string name;
      DI_CHECK_OK(read_string(item, name));
      out->push_back(std::move(name));
      return {};
    });
  }

  static Status copy_description(const Json& json, Json& out) {
    const Json& description = json.at("description");
    if (description.is_null()) return {};
    if (!description.is_string()) return invalid_type(description, "a string");
    out.set("description", description);
    return {};
  }

  static Status check_int64(const Json& value) {
    if (!value.is_number() || !is_exact_integer(value)) return invalid_type(value, "i64");
    if (value.to_int64("")) return {};
    return decode_error(fmt::format("invalid value: integer `{}`, expected i64", value.number_text()));
  }

  const bool lenient_;
};

class StrictRules {
 public:
  explicit StrictRules(StrictUse use) : use_(use) {}

  // Checks a node as read and puts objects into their final form.
  Status apply(Json& node, bool top) {
    if (node.at("type").is_string() && node.at("type").as_string() == "object") DI_CHECK_OK(apply_object(node, top));
    if (Json* items = node.find("items")) DI_CHECK_OK(apply(*items, false));
    if (Json* list = node.find("anyOf")) {
      for (Json& member : list->items()) DI_CHECK_OK(apply(member, false));
    }
    return {};
  }

 private:
  Status apply_object(Json& node, bool top) {
    if (node.at("additionalProperties").as_bool()) return invalid_argument("additionalProperties should not be true");
    Json& properties = *node.find("properties");
    const bool may_be_empty = top && use_ == StrictUse::kToolParameters;
    if (properties.size() == 0 && !may_be_empty) return invalid_argument("An object with no properties is not allowed.");
    Json names = Json::array();
    for (const auto& [name, member] : properties.members()) names.push_back(name);
    const Json& given = node.at("required");
    for (const Json& name : given.items()) {
      if (properties.find(name.as_string())) continue;
      return invalid_argument(fmt::format("Required property '{}' not found in object", name.as_string()));
    }
    for (const Json& name : names.items()) {
      if (std::find(given.items().begin(), given.items().end(), name) == given.items().end()) {
        return invalid_argument("Required properties must match all properties in the object");
      }
    }
    node.set("required", std::move(names));
    for (auto& [name, member] : properties.members()) DI_CHECK_OK(apply(member, false));
    if (Json* definitions = node.find("$def")) {
      for (auto& [name, member] : definitions->members()) DI_CHECK_OK(apply(member, false));
    }
    return {};
  }

  StrictUse use_;
};

}  // namespace

Result<Json> normalise_strict(const Json& schema, StrictUse use, bool lenient) {
  const bool tool = use == StrictUse::kToolParameters;
  Result<Json> node = StrictReader(lenient).node(schema);
  if (!node) {
    std::string_view reason = node.error().message;
    constexpr std::string_view kDecodePrefix = "invalid request body: ";
    if (reason.substr(0, kDecodePrefix.size()) == kDecodePrefix) reason.remove_prefix(kDecodePrefix.size());
    return invalid_argument(fmt::format("{}{}", tool ? "Invalid tool parameters schema : " : "Invalid json schema: ", reason));
  }
  if (!node->at("type").is_string() || node->at("type").as_string() != "object") {
    return invalid_argument(tool ? "The top level of the function parameters schema must be an object."
                                 : "The top level of the json schema must be an object.");
  }
  DI_CHECK_OK(StrictRules(use).apply(*node, true));
  return node;
}

Json strict_constraint(const Json& schema) {
  Json out = schema;
  if (!out.is_object()) return out;
  for (const char* word : {"properties", "$defs", "definitions", "$def"}) {
    Json* map = out.find(word);
    if (!map || !map->is_object()) continue;
    for (auto& [name, member] : map->members()) member = strict_constraint(member);
  }
  // Not `allOf`: its members are parts of one object, which would exclude each other if each was closed.
  for (const char* word : {"anyOf", "oneOf", "prefixItems"}) {
    Json* list = out.find(word);
    if (!list || !list->is_array()) continue;
    for (Json& member : list->items()) member = strict_constraint(member);
  }
  if (Json* items = out.find("items")) *items = strict_constraint(*items);
  if (!out.at("type").is_string() || out.at("type").as_string() != "object") return out;
  if (out.at("additionalProperties").is_null()) out.set("additionalProperties", false);
  if (!out.at("required").is_null()) return out;
  Json names = Json::array();
  for (const auto& [name, member] : out.at("properties").members()) names.push_back(name);
  out.set("required", std::move(names));
  return out;
}

}  // namespace deepinfer
