// host/prefix_lint.h - what usually breaks a prefix, seen where two prompts part.
//
// A cached prefix is worth nothing behind the first difference, and most first differences are of a few kinds that their sender
// can remove: a date, a time, a counter or an id near the beginning; tools or other lines in another order; JSON written with
// other spaces or with its keys in another order. This names the kind and says what to do. Promise: a guess from text alone;
// nothing is named when none of these fits. Threads: pure.
//
//   lint_prefix("Today is ", "2026-11-30. You are", "2026-11-29. You are")->name   // "volatile value"
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

struct PrefixHint {
  std::string_view name;  // stable: volatile value, order of tools, order of lines, order of keys, spaces in JSON
  std::string advice;     // a sentence for people
};

// `before` is common to both; `here` and `there` follow it, and differ from their first character or soon after it.
std::optional<PrefixHint> lint_prefix(std::string_view before, std::string_view here, std::string_view there);

}  // namespace deepinfer
