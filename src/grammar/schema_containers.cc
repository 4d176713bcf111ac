// The keywords of grammar/schema_reader.h for objects and arrays.
#include <fmt/format.h>

#include "grammar/schema_reader.h"

namespace deepinfer {

using Atom = SchemaAtom::Kind;

Status SchemaReader::read_objects(const Place& at) {
  if (const Json* map = at.schema.find("properties")) {
    if (!map->is_object()) return fault(at.path, "properties", "must be an object");
    for (const auto& [name, schema] : map->members()) {
      DI_TRY(const SchemaId value, child(at, "properties/" + name, schema));
      at.parts.push_back(algebra_.atom({.kind = Atom::kEveryKey, .keys = {.name = name}, .value = value}));
    }
  }
  DI_CHECK_OK(read_additional(at));
  // In draft 3 `required` was a boolean of the property itself; schemas that mix it in mean nothing by it here.
  if (const Json* list = at.schema.find("required"); list && !list->is_bool()) {
    if (!list->is_array()) return fault(at.path, "required", "must be a list of names");
    for (const Json& name : list->items()) {
      if (!name.is_string()) return fault(at.path, "required", "must be a list of names");
      at.parts.push_back(has_key(name.as_string()));
    }
  }
  DI_TRY(const auto low, count(at, "minProperties"));
  DI_TRY(const auto high, count(at, "maxProperties"));
  if (low || high) {
    at.parts.push_back(
        algebra_.atom({.kind = Atom::kNumKeys, .keys = {}, .low = low.value_or(0), .high = high.value_or(kUnbounded)}));
  }
  if (const Json* names = at.schema.find("propertyNames"); names && draft_ >= SchemaDraft::kDraft6) {
    DI_TRY(const SchemaId schema, child(at, "propertyNames", *names));
    deferred_.push_back({algebra_.name(), schema});
    at.parts.push_back(deferred_.back().name);
  }
  for (const char* word : {"dependentRequired", "dependentSchemas"}) {
    if (draft_ >= SchemaDraft::k2019) DI_CHECK_OK(read_dependencies(at, word));
  }
  // Later drafts split it into the two above and call it a note; who writes it means it.
  return read_dependencies(at, "dependencies");
}

// patternProperties, and additionalProperties for all names that neither it nor `properties` speaks of.
Status SchemaReader::read_additional(const Place& at) {
  std::vector<Rx> spoken;
  const Json& properties = at.schema.at("properties");
  for (const auto& [name, schema] : properties.members()) spoken.push_back(arena_.literal(name));
  if (const Json* map = at.schema.find("patternProperties")) {
    if (!map->is_object()) return fault(at.path, "patternProperties", "must be an object");
    for (const auto& [text, schema] : map->members()) {
      DI_TRY(const Rx names, pattern(at, "patternProperties", text));
      DI_TRY(const SchemaId value, child(at, "patternProperties/" + text, schema));
      at.parts.push_back(algebra_.atom({.kind = Atom::kEveryKey, .keys = {.name = std::nullopt, .text = names}, .value = value}));
      spoken.push_back(names);
    }
  }
  const Json* rest = at.schema.find("additionalProperties");
  if (!rest) return {};
  DI_TRY(const SchemaId value, child(at, "additionalProperties", *rest));
  const Rx names = outside(arena_.alternate(std::move(spoken)));
  at.parts.push_back(algebra_.atom({.kind = Atom::kEveryKey, .keys = {.name = std::nullopt, .text = names}, .value = value}));
  return {};
}

Status SchemaReader::read_dependencies(const Place& at, const char* word) {
  const Json* map = at.schema.find(word);
  if (!map) return {};
  if (!map->is_object()) return fault(at.path, word, "must be an object");
  for (const auto& [name, wanted] : map->members()) {
    SchemaId then = kAnyValue;
    if (wanted.is_array()) {
      std::vector<SchemaId> all;
      for (const Json& other : wanted.items()) {
        if (!other.is_string()) return fault(at.path, word, "must list names");
        all.push_back(has_key(other.as_string()));
      }
      then = algebra_.all_of(std::move(all));
    } else if (wanted.is_string()) {
      then = has_key(wanted.as_string());
    } else {
      DI_TRY(then, child(at, fmt::format("{}/{}", word, name), wanted));
    }
    // Values that are no objects have no keys: `then` speaks of objects only in the first form, of all in the second.
    const SchemaId object = algebra_.types(kObjectType);
    at.parts.push_back(algebra_.any_of({algebra_.negate(object), algebra_.negate(has_key(name)), then}));
  }
  return {};
}

Status SchemaReader::read_items(const Place& at) {
  const auto every = [&](SchemaId value, int64_t low, int64_t high) {
    at.parts.push_back(algebra_.atom({.kind = Atom::kEveryItem, .keys = {}, .value = value, .low = low, .high = high}));
  };
  const Json* items = at.schema.find("items");
  const bool as_list = items && items->is_array();
  if (as_list && draft_ == SchemaDraft::k2020 && declared_)
    return fault(at.path, "items", "must be a schema: 2020-12 lists them in prefixItems");
  if (as_list && at.schema.find("prefixItems") && draft_ == SchemaDraft::k2020)
    return fault(at.path, "items", "must be a schema where prefixItems lists the first ones");
  const Json* prefix = as_list ? items : draft_ == SchemaDraft::k2020 ? at.schema.find("prefixItems") : nullptr;
  const Json* rest = as_list ? at.schema.find("additionalItems") : items;
  int64_t begin = 0;
  if (prefix) {
    if (!prefix->is_array()) return fault(at.path, "prefixItems", "must be a list of schemas");
    for (const Json& schema : prefix->items()) {
      DI_TRY(const SchemaId value, child(at, fmt::format("{}/{}", as_list ? "items" : "prefixItems", begin), schema));
      every(value, begin, begin + 1);
      ++begin;
    }
  }
  if (rest) {
    DI_TRY(const SchemaId value, child(at, as_list ? "additionalItems" : "items", *rest));
    every(value, begin, kUnbounded);
  }
  DI_TRY(const auto low, count(at, "minItems"));
  DI_TRY(const auto high, count(at, "maxItems"));
  if (low || high) {
    at.parts.push_back(
        algebra_.atom({.kind = Atom::kNumItems, .keys = {}, .low = low.value_or(0), .high = high.value_or(kUnbounded)}));
  }
  const Json& unique = at.schema.at("uniqueItems");
  if (unique.is_bool() && unique.as_bool()) at.parts.push_back(algebra_.atom({.kind = Atom::kUnique, .keys = {}}));
  return {};
}

Status SchemaReader::read_contains(const Place& at) {
  const Json* schema = at.schema.find("contains");
  if (!schema || draft_ == SchemaDraft::kDraft4) return {};
  DI_TRY(const SchemaId value, child(at, "contains", *schema));
  int64_t low = 1, high = kUnbounded;
  if (draft_ >= SchemaDraft::k2019) {
    DI_TRY(const auto min, count(at, "minContains"));
    DI_TRY(const auto max, count(at, "maxContains"));
    low = min.value_or(1);
    high = max.value_or(kUnbounded);
  }
  if (low == 0 && high == kUnbounded) return {};
  at.parts.push_back(low > high ? algebra_.types(kAllTypes & ~kArrayType)
                                : algebra_.atom({.kind = Atom::kCount, .keys = {}, .value = value, .low = low, .high = high}));
  return {};
}

namespace {

// Parts of a schema whose effect on what counts as evaluated depends on the value.
constexpr const char* kConditional[] = {"anyOf", "oneOf", "if", "not", "dependentSchemas", "$dynamicRef", "$recursiveRef"};

}  // namespace

// What a schema takes in whole: the parts of allOf and the target of $ref.
Result<std::vector<const Json*>> SchemaReader::included_schemas(const Json& schema) {
  std::vector<const Json*> included;
  if (schema.at("allOf").is_array()) {
    for (const Json& part : schema.at("allOf").items()) included.push_back(&part);
  }
  if (schema.at("$ref").is_string()) {
    DI_TRY(const Json* target, refs_.resolve(schema, schema.at("$ref").as_string()));
    included.push_back(target);
  }
  return included;
}

Result<std::optional<Rx>> SchemaReader::evaluated_keys(const Json& schema, const std::string& path, int depth) {
  const std::optional<Rx> unknown;
  if (!schema.is_object()) return std::optional<Rx>(kNothing);
  if (depth > 20) return unknown;
  for (const char* word : kConditional) {
    if (schema.find(word)) return unknown;
  }
  if (schema.find("additionalProperties") || (depth > 0 && schema.find("unevaluatedProperties")))
    return std::optional<Rx>(shapes_.any_text());
  std::vector<Rx> keys;
  for (const auto& [name, value] : schema.at("properties").members()) keys.push_back(arena_.literal(name));
  for (const auto& [text, value] : schema.at("patternProperties").members()) {
    std::vector<SchemaId> none;
    DI_TRY(const Rx rx, pattern(Place{schema, path, none}, "patternProperties", text));
    keys.push_back(rx);
  }
  DI_TRY(const auto included, included_schemas(schema));
  for (const Json* part : included) {
    DI_TRY(const std::optional<Rx> more, evaluated_keys(*part, path, depth + 1));
    if (!more) return unknown;
    keys.push_back(*more);
  }
  return std::optional<Rx>(arena_.alternate(std::move(keys)));
}

// How many leading items are evaluated; kUnbounded for all.
Result<std::optional<int64_t>> SchemaReader::evaluated_items(const Json& schema, const std::string& path, int depth) {
  const std::optional<int64_t> unknown;
  if (!schema.is_object()) return std::optional<int64_t>(0);
  if (depth > 20) return unknown;
  for (const char* word : kConditional) {
    if (schema.find(word)) return unknown;
  }
  if (schema.find("contains") && draft_ == SchemaDraft::k2020) return unknown;
  const Json& items = schema.at("items");
  if (items.is_object() || items.is_bool() || schema.find("additionalItems") || (depth > 0 && schema.find("unevaluatedItems"))) {
    return std::optional<int64_t>(kUnbounded);
  }
  auto out = static_cast<int64_t>(items.is_array() ? items.size() : schema.at("prefixItems").size());
  DI_TRY(const auto included, included_schemas(schema));
  for (const Json* part : included) {
    DI_TRY(const std::optional<int64_t> more, evaluated_items(*part, path, depth + 1));
    if (!more) return unknown;
    out = std::max(out, *more);
  }
  return std::optional<int64_t>(out);
}

Status SchemaReader::read_unevaluated(const Place& at) {
  if (draft_ < SchemaDraft::k2019) return {};
  constexpr const char* kWhy = "which parts count as evaluated depends on the value";
  if (const Json* schema = at.schema.find("unevaluatedProperties"); schema && !(schema->is_bool() && schema->as_bool())) {
    DI_TRY(const SchemaId value, child(at, "unevaluatedProperties", *schema));
    DI_TRY(const std::optional<Rx> keys, evaluated_keys(at.schema, at.path, 0));
    if (!keys) return refuse(at.path, "unevaluatedProperties", kWhy);
    at.parts.push_back(
        algebra_.atom({.kind = Atom::kEveryKey, .keys = {.name = std::nullopt, .text = outside(*keys)}, .value = value}));
  }
  if (const Json* schema = at.schema.find("unevaluatedItems"); schema && !(schema->is_bool() && schema->as_bool())) {
    DI_TRY(const SchemaId value, child(at, "unevaluatedItems", *schema));
    DI_TRY(const std::optional<int64_t> items, evaluated_items(at.schema, at.path, 0));
    if (!items) return refuse(at.path, "unevaluatedItems", kWhy);
    if (*items != kUnbounded) {
      at.parts.push_back(
          algebra_.atom({.kind = Atom::kEveryItem, .keys = {}, .value = value, .low = *items, .high = kUnbounded}));
    }
  }
  return {};
}

}  // namespace deepinfer
