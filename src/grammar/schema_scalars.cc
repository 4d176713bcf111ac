// The keywords of grammar/schema_reader.h for single values: type, enum, const, strings, numbers.
#include <fmt/format.h>

#include "grammar/char_class.h"
#include "grammar/number_text.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_reader.h"

namespace deepinfer {

Result<SchemaId> SchemaReader::type(const Place& at, const Json& name) {
  const std::string_view word = name.is_string() ? std::string_view(name.as_string()) : std::string_view();
  if (word == "null") return algebra_.types(kNullType);
  if (word == "boolean") return algebra_.types(kFalseType | kTrueType);
  if (word == "string") return algebra_.types(kStringType);
  if (word == "array") return algebra_.types(kArrayType);
  if (word == "object") return algebra_.types(kObjectType);
  if (word == "number") return algebra_.types(kNumberType);
  if (word == "integer") {
    const Rx text = integer_number(arena_, draft_ != SchemaDraft::kDraft4);
    return algebra_.all_of({algebra_.types(kNumberType),
                            algebra_.atom({.kind = SchemaAtom::Kind::kNumber, .text = text, .keys = {}, .integral = true})});
  }
  return fault(at.path, "type", fmt::format("{} is no type", name.dump()));
}

Status SchemaReader::read_type(const Place& at) {
  const Json* types = at.schema.find("type");
  if (!types) return {};
  std::vector<SchemaId> parts;
  if (types->is_array()) {
    for (const Json& name : types->items()) {
      DI_TRY(const SchemaId id, type(at, name));
      parts.push_back(id);
    }
  } else {
    DI_TRY(const SchemaId id, type(at, *types));
    parts.push_back(id);
  }
  at.parts.push_back(algebra_.any_of(std::move(parts)));
  return {};
}

SchemaId SchemaReader::constant(const Json& value) { return constants({value}); }

SchemaId SchemaReader::constants(const std::vector<Json>& values) {
  uint32_t types = 0;
  bool integral = true;
  std::vector<Rx> texts, numbers;
  std::vector<SchemaId> parts;
  using Atom = SchemaAtom::Kind;
  for (const Json& value : values) {
    switch (value.kind()) {
      case Json::Kind::kNull: types |= kNullType; break;
      case Json::Kind::kBool: types |= value.as_bool() ? kTrueType : kFalseType; break;
      case Json::Kind::kString: texts.push_back(arena_.literal(value.as_string())); break;
      case Json::Kind::kNumber:
        if (const auto decimal = parse_decimal(value.number_text())) {
          numbers.push_back(number_equal(arena_, *decimal));
          integral &= decimal->fraction.empty();
        } else {
          shapes_.fail("", fmt::format("the constant {} has too many digits", value.number_text()));
        }
        break;
      case Json::Kind::kArray: {
        const auto size = static_cast<int64_t>(value.size());
        std::vector<SchemaId> all{algebra_.types(kArrayType),
                                  algebra_.atom({.kind = Atom::kNumItems, .keys = {}, .low = size, .high = size})};
        for (int64_t i = 0; i < size; ++i) {
          all.push_back(algebra_.atom(
              {.kind = Atom::kEveryItem, .keys = {}, .value = constant(value[static_cast<size_t>(i)]), .low = i, .high = i + 1}));
        }
        parts.push_back(algebra_.all_of(std::move(all)));
        break;
      }
      case Json::Kind::kObject: {
        std::vector<SchemaId> all{algebra_.types(kObjectType)};
        std::vector<Rx> names;
        for (const auto& [name, member] : value.members()) {
          all.push_back(has_key(name, constant(member)));
          names.push_back(arena_.literal(name));
        }
        all.push_back(algebra_.atom({.kind = Atom::kEveryKey,
                                     .keys = {.name = std::nullopt, .text = outside(arena_.alternate(names))},
                                     .value = kNoValue}));
        parts.push_back(algebra_.all_of(std::move(all)));
        break;
      }
    }
  }
  if (types != 0) parts.push_back(algebra_.types(types));
  if (!texts.empty()) {
    parts.push_back(
        algebra_.all_of({algebra_.types(kStringType),
                         algebra_.atom({.kind = Atom::kText, .text = arena_.alternate(std::move(texts)), .keys = {}})}));
  }
  if (!numbers.empty()) {
    const Rx text = arena_.alternate(std::move(numbers));
    parts.push_back(algebra_.all_of(
        {algebra_.types(kNumberType), algebra_.atom({.kind = Atom::kNumber, .text = text, .keys = {}, .integral = integral})}));
  }
  return algebra_.any_of(std::move(parts));
}

Status SchemaReader::read_values(const Place& at) {
  if (const Json* list = at.schema.find("enum")) {
    if (!list->is_array()) return fault(at.path, "enum", "must be a list");
    at.parts.push_back(constants(list->items()));
  }
  if (const Json* value = at.schema.find("const"); value && draft_ != SchemaDraft::kDraft4) at.parts.push_back(constant(*value));
  if (!shapes_.problem().empty()) return refuse(at.path, at.schema.find("enum") ? "enum" : "const", shapes_.problem());
  return {};
}

Result<Rx> SchemaReader::pattern(const Place& at, std::string_view word, const std::string& text) {
  Result<Rx> rx = parse_regex(arena_, text, RegexUse::kSearch);
  if (!rx && rx.error().code == ErrorCode::kInvalidArgument) return fault(at.path, word, rx.error().message);
  if (!rx) return refuse(at.path, word, rx.error().message);
  if (arena_.exhausted()) return refuse(at.path, word, "the expression is too complex");
  return rx;
}

Status SchemaReader::read_strings(const Place& at) {
  const auto add = [&](Rx text) {
    at.parts.push_back(algebra_.atom({.kind = SchemaAtom::Kind::kText, .text = text, .keys = {}}));
  };
  DI_TRY(const auto low, count(at, "minLength"));
  DI_TRY(const auto high, count(at, "maxLength"));
  constexpr int64_t kMaxLength = 1'000'000'000;
  if (low.value_or(0) > 10'000) return refuse(at.path, "minLength", "it is above 10,000");
  if (low.value_or(0) > 0 || (high && *high <= kMaxLength)) {
    const bool bounded = high && *high <= kMaxLength;
    if (bounded && *high < low.value_or(0)) {
      add(kNothing);
    } else {
      add(arena_.repeat(utf8(arena_, CodePointSet::any()), static_cast<int32_t>(low.value_or(0)),
                        bounded ? static_cast<int32_t>(*high) : kNoLimit));
    }
  }
  if (const Json* text = at.schema.find("pattern")) {
    if (!text->is_string()) return fault(at.path, "pattern", "must be a string");
    DI_TRY(const Rx rx, pattern(at, "pattern", text->as_string()));
    add(rx);
  }
  DI_TRY(const std::optional<Rx> encoded, contents(at));
  if (encoded) add(*encoded);
  if (const Json* format = at.schema.find("format"); format && format->is_string() && options_.assert_formats) {
    const auto [known, added] = formats_.try_emplace(format->as_string());
    if (added)
      known->second = format_text(arena_, format->as_string());  // an address takes a millisecond, some schemas name fifty
    const std::optional<Rx> rx = known->second;
    if (rx) add(*rx);
    if (!rx && is_standard_format(format->as_string()))
      return refuse(at.path, "format", fmt::format("the format '{}' is not known here", format->as_string()));
  }
  return {};
}

// Conditions in draft 7, notes before and since.
Result<std::optional<Rx>> SchemaReader::contents(const Place& at) {
  const Json &encoding = at.schema.at("contentEncoding"), &media = at.schema.at("contentMediaType");
  if (draft_ != SchemaDraft::kDraft7) return std::optional<Rx>();
  if (media.is_string() && media.as_string().find("json") != std::string::npos)
    return refuse(at.path, "contentMediaType", "what stands inside a string is not looked into");
  const std::string name = encoding.is_string() ? encoding.as_string() : "binary";
  if (name == "7bit" || name == "8bit" || name == "binary") return std::optional<Rx>();
  if (name != "base64") return refuse(at.path, "contentEncoding", fmt::format("'{}' is not known here", name));
  DI_TRY(const Rx text, pattern(at, "contentEncoding", "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"));
  return std::optional<Rx>(text);
}

Status SchemaReader::read_bound(const Place& at, const char* word, const char* exclusive, bool is_low) {
  const auto add = [&](const char* name, const Json& value, bool strictly) -> Status {
    const auto decimal = value.is_number() ? parse_decimal(value.number_text()) : std::nullopt;
    if (!value.is_number()) return fault(at.path, name, "must be a number");
    if (!decimal) return refuse(at.path, name, "it has too many digits");
    const Rx text = is_low ? number_at_least(arena_, *decimal, strictly) : number_at_most(arena_, *decimal, strictly);
    at.parts.push_back(algebra_.atom({.kind = SchemaAtom::Kind::kNumber, .text = text, .keys = {}}));
    return {};
  };
  const Json* strict = at.schema.find(exclusive);
  const bool flag = strict && strict->is_bool() && strict->as_bool();  // draft 4
  if (const Json* value = at.schema.find(word)) DI_CHECK_OK(add(word, *value, flag));
  if (strict && !strict->is_bool()) DI_CHECK_OK(add(exclusive, *strict, true));
  return {};
}

Status SchemaReader::read_numbers(const Place& at) {
  DI_CHECK_OK(read_bound(at, "minimum", "exclusiveMinimum", true));
  DI_CHECK_OK(read_bound(at, "maximum", "exclusiveMaximum", false));
  const Json* divisor = at.schema.find("multipleOf");
  if (!divisor) return {};
  const auto decimal = divisor->is_number() ? parse_decimal(divisor->number_text()) : std::nullopt;
  if (!divisor->is_number() || (decimal && (decimal->negative || decimal->zero()))) {
    return fault(at.path, "multipleOf", "must be a number above 0");
  }
  const auto text = decimal ? number_multiple(arena_, *decimal) : std::nullopt;
  if (!text) return refuse(at.path, "multipleOf", "the divisor has more than nine digits");
  at.parts.push_back(algebra_.atom({.kind = SchemaAtom::Kind::kNumber, .text = *text, .keys = {}}));
  return {};
}

}  // namespace deepinfer
