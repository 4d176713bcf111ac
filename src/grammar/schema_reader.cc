#include "grammar/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

constexpr size_t kMaxSchemas = 50'000;

}  // namespace

Error SchemaReader::refuse(const std::string& path, std::string_view word, std::string_view why) {
  return unsupported(fmt::format("JSON Schema keyword '{}' at #{} cannot be enforced: {}", word, path, why));
}
Error SchemaReader::fault(const std::string& path, std::string_view word, std::string_view why) {
  return invalid_argument(fmt::format("JSON Schema keyword '{}' at #{}: {}", word, path, why));
}

Result<SchemaId> SchemaReader::read_document(const Json& root) {
  declared_ = !root.at("$schema").is_null() || options_.draft;
  draft_ = root.at("$schema").is_null() && options_.draft ? *options_.draft : schema_draft(root);
  const Json& dialect = root.at("$schema");
  if (dialect.is_string() && dialect.as_string().find("json-schema.org/") == std::string::npos) {
    return refuse("", "$schema", fmt::format("'{}' is no dialect known here", dialect.as_string()));
  }
  refs_.index(root, draft_);
  DI_TRY(const SchemaId out, read(root, ""));
  for (const Deferred& deferred : deferred_) {
    const Rx names = shapes_.scalars(deferred.names_schema).text;
    algebra_.define(deferred.name, algebra_.atom({.kind = SchemaAtom::Kind::kEveryKey,
                                                  .keys = {.name = std::nullopt, .text = outside(names)},
                                                  .value = kNoValue}));
  }
  return out;
}

Result<SchemaId> SchemaReader::read(const Json& schema, const std::string& path) {
  if (schema.is_bool()) return schema.as_bool() ? kAnyValue : kNoValue;
  if (!schema.is_object()) {
    return invalid_argument(
        fmt::format("the JSON Schema at #{} must be an object or a boolean, not {}", path, schema.kind_name()));
  }
  if (const auto found = known_.find(&schema); found != known_.end()) {
    recursive_.insert(found->second);
    return found->second;
  }
  if (known_.size() > kMaxSchemas) return too_large("the JSON Schema has too many parts");
  const SchemaId name = algebra_.name();
  known_[&schema] = name;
  DI_TRY(const SchemaId meaning, read_object(schema, path));
  algebra_.define(name, meaning);
  // What leads to itself goes by its name everywhere, so that equal parts of a schema are seen to be equal: with a choice of
  // all definitions in each of them, there are as many values as definitions and not their square.
  return known_[&schema] = recursive_.contains(name) ? name : meaning;
}

Result<SchemaId> SchemaReader::read_object(const Json& schema, const std::string& path) {
  std::vector<SchemaId> parts;
  const Place at{schema, path, parts};
  for (const auto& [word, value] : schema.members()) places_.try_emplace(word, path);
  DI_CHECK_OK(read_reference(at));
  if (draft_ <= SchemaDraft::kDraft7 && schema.at("$ref").is_string() && (declared_ || schema.size() == 1))
    return algebra_.all_of(parts);
  DI_CHECK_OK(read_refused(at));
  DI_CHECK_OK(read_type(at));
  DI_CHECK_OK(read_values(at));
  DI_CHECK_OK(read_strings(at));
  DI_CHECK_OK(read_numbers(at));
  DI_CHECK_OK(read_objects(at));
  DI_CHECK_OK(read_items(at));
  DI_CHECK_OK(read_contains(at));
  DI_CHECK_OK(read_combinations(at));
  DI_CHECK_OK(read_condition(at));
  DI_CHECK_OK(read_unevaluated(at));
  return algebra_.all_of(std::move(parts));
}

Status SchemaReader::read_reference(const Place& at) {
  const Json* ref = at.schema.find("$ref");
  if (!ref || ref->is_object()) return {};  // a property named $ref, seen from a pointer
  if (!ref->is_string()) return fault(at.path, "$ref", "must be a string");
  const Result<const Json*> target = refs_.resolve(at.schema, ref->as_string());
  if (!target) return refuse(at.path, "$ref", target.error().message);
  DI_TRY(const SchemaId id, read(**target, at.path + "/$ref"));
  at.parts.push_back(id);
  return {};
}

Status SchemaReader::read_refused(const Place& at) {
  for (const SchemaKeyword& keyword : schema_keywords()) {
    if (keyword.use != SchemaKeyword::Use::kRefused || !at.schema.find(keyword.name)) continue;
    return refuse(at.path, keyword.name, keyword.remark);
  }
  return {};
}

Result<SchemaId> SchemaReader::child(const Place& at, std::string_view word, const Json& schema) {
  return read(schema, fmt::format("{}/{}", at.path, word));
}

Result<std::vector<SchemaId>> SchemaReader::children(const Place& at, std::string_view word, const Json& list) {
  if (!list.is_array() || list.size() == 0) return fault(at.path, word, "must be a list that is not empty");
  std::vector<SchemaId> out;
  for (size_t i = 0; i < list.size(); ++i) {
    DI_TRY(const SchemaId id, child(at, fmt::format("{}/{}", word, i), list[i]));
    out.push_back(id);
  }
  return out;
}

Status SchemaReader::read_combinations(const Place& at) {
  for (const char* word : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = at.schema.find(word);
    if (!list) continue;
    DI_TRY(std::vector<SchemaId> parts, children(at, word, *list));
    const char kind = word[1];
    at.parts.push_back(kind == 'l'      ? algebra_.all_of(std::move(parts))
                       : word[0] == 'a' ? algebra_.any_of(std::move(parts))
                                        : algebra_.one_of(std::move(parts)));
  }
  if (const Json* inner = at.schema.find("not")) {
    DI_TRY(const SchemaId id, child(at, "not", *inner));
    at.parts.push_back(algebra_.negate(id));
  }
  return {};
}

Status SchemaReader::read_condition(const Place& at) {
  const Json* condition = at.schema.find("if");
  if (!condition || draft_ < SchemaDraft::kDraft7) return {};
  DI_TRY(const SchemaId when, child(at, "if", *condition));
  SchemaId then = kAnyValue, otherwise = kAnyValue;
  if (const Json* branch = at.schema.find("then")) {
    DI_TRY(then, child(at, "then", *branch));
  }
  if (const Json* branch = at.schema.find("else")) {
    DI_TRY(otherwise, child(at, "else", *branch));
  }
  if (then == kAnyValue && otherwise == kAnyValue) return {};
  // "when and then" is shorter to say as "then" where both branches may hold.
  const SchemaId met = otherwise == kAnyValue ? then : algebra_.all_of({when, then});
  at.parts.push_back(algebra_.any_of({met, algebra_.all_of({algebra_.negate(when), otherwise})}));
  return {};
}

std::string SchemaReader::first_place(const std::string& keyword) const {
  if (const auto found = places_.find(keyword); found != places_.end())
    return fmt::format("'{}' (first at #{})", keyword, found->second);
  // Others that lead to the same conditions.
  static const std::map<std::string, std::vector<const char*>> kKin{
      {"allOf", {"oneOf", "anyOf", "not", "if", "dependentSchemas", "dependencies", "patternProperties", "properties"}},
      {"items", {"prefixItems", "additionalItems", "unevaluatedItems", "not"}}};
  if (const auto kin = kKin.find(keyword); kin != kKin.end()) {
    for (const char* other : kin->second) {
      if (places_.contains(other)) return fmt::format("'{}' (first at #{})", other, places_.at(other));
    }
  }
  return fmt::format("'{}' (in what # leads to)", keyword);
}

Rx SchemaReader::outside(Rx text) {
  if (text == kNothing) return shapes_.any_text();
  return text == shapes_.any_text() ? kNothing : arena_.intersect({shapes_.any_text(), arena_.complement(text)});
}

SchemaId SchemaReader::has_key(const std::string& name, SchemaId value) {
  return algebra_.atom({.kind = SchemaAtom::Kind::kSomeKey, .keys = {.name = name}, .value = value});
}

Result<std::optional<int64_t>> SchemaReader::count(const Place& at, const char* word) {
  const Json* value = at.schema.find(word);
  if (!value) return std::optional<int64_t>();
  std::string text = value->is_number() ? value->number_text() : "";
  if (const size_t point = text.find('.'); point != text.npos && text.find_first_not_of("0", point + 1) == text.npos)
    text.resize(point);
  const Result<int64_t> number = Json::number(text.empty() ? "x" : text).to_int64(word);
  if (text.empty() || !number || *number < 0) return fault(at.path, word, "must be an integer of at least 0");
  return std::optional<int64_t>(*number);
}

const std::vector<SchemaKeyword>& schema_keywords() {
  using Use = SchemaKeyword::Use;
  static const std::vector<SchemaKeyword> kTable{
      {"type", Use::kEnforced, "1.0 is an integer from draft 6 on, and written 1"},
      {"enum", Use::kEnforced, ""},
      {"const", Use::kEnforced, ""},
      {"properties", Use::kEnforced, "in any order, each at most once"},
      {"patternProperties", Use::kEnforced, ""},
      {"additionalProperties", Use::kEnforced, ""},
      {"propertyNames", Use::kEnforced, ""},
      {"required", Use::kEnforced, ""},
      {"dependentRequired", Use::kEnforced, ""},
      {"dependentSchemas", Use::kEnforced, ""},
      {"dependencies", Use::kEnforced, "in every draft"},
      {"minProperties", Use::kPartly, "above 1 only where names are fixed or that many are required"},
      {"maxProperties", Use::kEnforced, ""},
      {"items", Use::kEnforced, "as one schema, or as a list in drafts before 2020-12"},
      {"prefixItems", Use::kEnforced, ""},
      {"additionalItems", Use::kEnforced, ""},
      {"contains", Use::kEnforced, "with minContains and maxContains"},
      {"minItems", Use::kEnforced, ""},
      {"maxItems", Use::kEnforced, ""},
      {"uniqueItems", Use::kPartly, "only where at most one item fits"},
      {"minLength", Use::kEnforced, "counts code points"},
      {"maxLength", Use::kEnforced, "counts code points"},
      {"pattern", Use::kPartly, "no back references, look-behind, word borders, Unicode properties"},
      {"format", Use::kPartly, "the formats below; others are notes"},
      {"contentEncoding", Use::kPartly, "in draft 7 base64, in others a note"},
      {"contentMediaType", Use::kPartly, "in draft 7 JSON is refused; else a note"},
      {"minimum", Use::kEnforced, ""},
      {"maximum", Use::kEnforced, ""},
      {"exclusiveMinimum", Use::kEnforced, ""},
      {"exclusiveMaximum", Use::kEnforced, ""},
      {"multipleOf", Use::kPartly, "divisors of up to nine digits"},
      {"allOf", Use::kEnforced, ""},
      {"anyOf", Use::kEnforced, ""},
      {"oneOf", Use::kEnforced, "exactly one, also where alternatives overlap"},
      {"not", Use::kPartly, "unless it asks for some key of a pattern, or for equal items"},
      {"if", Use::kEnforced, "with then and else"},
      {"$ref", Use::kPartly, "inside the document, also recursive; nothing is fetched"},
      {"unevaluatedProperties", Use::kPartly, "where what is evaluated does not depend on the value"},
      {"unevaluatedItems", Use::kPartly, "where what is evaluated does not depend on the value"},
      {"$dynamicRef", Use::kRefused, "it depends on where the schema is used"},
      {"$recursiveRef", Use::kRefused, "it depends on where the schema is used"},
  };
  return kTable;
}

}  // namespace deepinfer
