// base/nearest.h - "did you mean": the known name closest to a mistyped one.
//
//   nearest_name("temprature", {"temperature", "top-p"})  ->  "temperature"
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

// Edit distance where a swap of neighbours counts once.
int edit_distance(std::string_view a, std::string_view b);

// The closest of `names`, or "" when none is near enough to be meant (more than about a third of the letters differ).
std::string nearest_name(std::string_view word, std::span<const std::string> names);

// "; did you mean NEAREST?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> names, std::string_view prefix = "");

}  // namespace deepinfer
