// base/fields.h - settings are plain structs with one visitor; command line, help and documents all come from it.
//
// A settings struct lists each field once: name, where it lives (the value there is the default), help and check.
//
//   struct RunSettings {
//     float temperature = 1;
//     std::string think = "off";
//     void visit(FieldVisitor visit) {
//       visit({.name = "temperature", .target = &temperature, .help = "0 = greedy", .value = "T", .min = 0, .max = 2});
//       visit({.name = "think", .target = &think, .help = "thinking", .choices = {"off", "low", "high", "max"}});
//     }
//   };
//   RunSettings settings;
//   for (const Field& field : fields_of(settings)) ...
//   DI_CHECK_OK(set_field(field, "0.7"));   // parses, checks, stores
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace deepinfer {

struct Field {
  using Target = std::variant<bool*, int32_t*, int64_t*, uint64_t*, float*, std::string*, std::optional<float>*,
                              std::optional<std::string>*>;

  std::string name;  // as in --name
  Target target;
  std::string help;
  std::string value = "";  // what help calls the value: "N", "DIR"
  char letter = 0;         // short form, -m
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // of a string; empty = any

  bool is_switch() const { return std::holds_alternative<bool*>(target); }
};

using FieldVisitor = FunctionRef<void(Field)>;

// Stores the value `text` stands for; an Error names the field, the text and what would be right.
Status set_field(const Field& field, std::string_view text);

// The current value as text; "" for an unset optional or an empty string.
std::string field_text(const Field& field);

template <class Settings>
std::vector<Field> fields_of(Settings& settings) {
  std::vector<Field> fields;
  settings.visit([&](Field field) { fields.push_back(std::move(field)); });
  return fields;
}

}  // namespace deepinfer
