#include "api/profile.h"

#include <fmt/format.h>

namespace deepinfer {

const char* profile_name(Profile profile) { return profile == Profile::kOfficial ? "official" : "open"; }

Result<Profile> parse_profile(std::string_view name) {
  if (name == "official") return Profile::kOfficial;
  if (name == "open") return Profile::kOpen;
  return invalid_argument(fmt::format("unknown profile '{}': use official or open", name));
}

ProfileRules profile_rules(Profile profile) {
  if (profile == Profile::kOfficial) return {};
  return {true, true, true, true, true, true, true, true, true, true, true, true};
}

}  // namespace deepinfer
