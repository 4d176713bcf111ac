// api/decode.h - typed fields out of a Json, with the error texts of the official service.
//
// Each request struct lists its fields; fields are read in the order they stand in the body and the first fault wins;
// then missing required fields are named in the struct's order. Unknown fields are ignored; null equals absent for
// optional fields. Texts: "missing field `X`", "unknown variant `v`, expected one of ...",
// "invalid type: T, expected E", "invalid value: integer `-1`, expected u32", all behind "invalid request body: ".
// Threads: pure functions.
//
//   DI_CHECK_OK(decode_struct(json, "ChatCompletionThinking", {required("type", [&](const Json& v) { ... })}));
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

using FieldReader = std::function<Status(const Json&)>;

struct FieldRule {
  std::string_view name;
  bool is_required = false;
  FieldReader read;
};

FieldRule required(std::string_view name, FieldReader read);
FieldRule optional(std::string_view name, FieldReader read);

// `what` is the struct's name in error texts; `num_elements` how many fields the reference's struct has.
Status decode_struct(const Json& json, std::string_view what, const std::vector<FieldRule>& fields, int num_elements = 0);

Error decode_error(std::string text);
Error invalid_type(const Json& json, std::string_view expected);
Error unknown_variant(std::string_view value, const std::vector<std::string_view>& variants);
Error missing_field(std::string_view name);
// The same error with "field `NAME`: " in front of its reason.
Error within_field(std::string_view name, const Error& error);

Status read_string(const Json& json, std::string& out);
Status read_bool(const Json& json, bool& out);
// An integer of `type` ("u8", "u32", "u64") of at most `max`.
Status read_unsigned(const Json& json, std::string_view type, uint64_t max, uint64_t& out);
Status read_f32(const Json& json, float& out);
// The index of a string among `variants`; `expected` names what stands there when the kind is wrong.
Status read_variant(const Json& json, const std::vector<std::string_view>& variants, size_t& out,
                    std::string_view expected = "string or map");
Status read_list(const Json& json, const FieldReader& read_item);

// {"TOKEN ID": bias in [-100, 100]}
Status read_logit_bias(const Json& json, std::vector<std::pair<TokenId, float>>& bias);

// The tag of an internally tagged enum: the object must have a string member `tag`, one of `variants`.
Status read_tag(const Json& json, std::string_view what, std::string_view tag, const std::vector<std::string_view>& variants,
                size_t& out);

template <class T>
FieldReader into(std::optional<T>& target, Status (*read)(const Json&, T&)) {
  return [&target, read](const Json& json) -> Status {
    T value{};
    DI_CHECK_OK(read(json, value));
    target = std::move(value);
    return {};
  };
}
template <class T>
FieldReader into(T& target, Status (*read)(const Json&, T&)) {
  return [&target, read](const Json& json) { return read(json, target); };
}

}  // namespace deepinfer
