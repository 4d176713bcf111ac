// base/json.h - JSON with exact numbers and kept key order.
//
// Numbers stay text until somebody asks for a type, so 1.0, -0.0, 1e400 and integers above 2^64 survive a round trip;
// objects keep the order of their keys. Meant for configs, headers, goldens and request bodies.
// Promise: any bytes give a value or an Error with line and column; depth and size are bounded; never throws.
// Threads: a Json is a plain value.
//
//   DI_TRY(Json config, Json::parse(text));
//   DI_TRY(int64_t layers, config.at("num_hidden_layers").to_int64("num_hidden_layers"));
//   for (const auto& [key, value] : config.members()) ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct JsonLimits {
  int max_depth = 256;
  bool allow_duplicate_keys = true;  // the last one wins in find()
};

class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : kind_(Kind::kBool), bool_(value) {}
  Json(int value) : Json(static_cast<int64_t>(value)) {}
  Json(int64_t value);
  Json(uint64_t value);
  Json(double value);  // shortest text that reads back to the same double; not finite becomes null
  Json(std::string value) : kind_(Kind::kString), text_(std::move(value)) {}
  Json(std::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}

  static Json array() { return Json(Kind::kArray); }
  static Json array(std::vector<Json> items);
  static Json object() { return Json(Kind::kObject); }
  static Json object(std::vector<Member> members);
  // `text` must be a number in JSON syntax; it is kept as it is.
  static Json number(std::string text);

  static Result<Json> parse(std::string_view text, const JsonLimits& limits = {});

  Kind kind() const { return kind_; }
  const char* kind_name() const;
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_number() const { return kind_ == Kind::kNumber; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  // A number written without fraction and exponent.
  bool is_integer() const;

  // Values of the matching kind. REQUIRES: the kind.
  bool as_bool() const { return bool_; }
  const std::string& as_string() const { return text_; }
  const std::string& number_text() const { return text_; }
  const std::vector<Json>& items() const { return items_; }
  std::vector<Json>& items() { return items_; }
  const std::vector<Member>& members() const { return members_; }
  std::vector<Member>& members() { return members_; }
  size_t size() const { return kind_ == Kind::kObject ? members_.size() : items_.size(); }

  // Object lookup: the last member of that name, or nullptr (also when this is no object).
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  // Like find, but a missing member reads as null.
  const Json& at(std::string_view key) const;
  // Past the end, and in what is no array: null.
  const Json& operator[](size_t index) const;
  void push_back(Json value) { items_.push_back(std::move(value)); }
  // Replaces the member of that name or appends it.
  void set(std::string key, Json value);
  // In every object, at any depth: a repeated key keeps its first place and its last value.
  void merge_duplicate_keys();

  // Checked conversions; `name` goes into the error message ("NAME must be an integer, got string").
  Result<int64_t> to_int64(std::string_view name) const;
  Result<double> to_double(std::string_view name) const;
  Result<bool> to_bool(std::string_view name) const;
  Result<std::string> to_string(std::string_view name) const;

  // Compact text, UTF-8 kept, numbers as written. indent > 0 pretty-prints with that many spaces.
  std::string dump(int indent = 0) const;

  bool operator==(const Json& other) const;  // object order does not matter, number text does

 private:
  explicit Json(Kind kind) : kind_(kind) {}
  friend class JsonParser;

  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  std::string text_;  // string value or number text
  std::vector<Json> items_;
  std::vector<Member> members_;
};

// Appends `text` as a quoted JSON string.
void append_json_string(std::string& out, std::string_view text);

}  // namespace deepinfer
