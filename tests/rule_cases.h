// tests/rule_cases.h - the cases that a rule of the engine draws (oracle_rules.md): how many, and from which seed.
//
// RC_PARAMS, the variable of the other properties, sets both: "max_success=1000 seed=7" draws 2,000 cases (rules draw twice as
// many worlds as a property has cases; 200 without it) from seed 7 on. A case that fails says how to run it alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace deepinfer {

struct RuleCases {
  int64_t count = 200;
  uint32_t seed = 1;
};

inline RuleCases rule_cases(const char* parameters = std::getenv("RC_PARAMS")) {
  RuleCases cases;
  const auto number = [&](std::string_view name, int64_t otherwise) {
    const std::string_view text = parameters ? parameters : "";
    const size_t at = text.find(name);
    return at == std::string_view::npos ? otherwise : std::strtoll(text.data() + at + name.size(), nullptr, 10);
  };
  cases.count = 2 * number("max_success=", cases.count / 2);
  cases.seed = static_cast<uint32_t>(number("seed=", cases.seed));
  return cases;
}

// body(seed of the case), until one fails.
template <class Body>
void for_each_case(Body body) {
  const RuleCases cases = rule_cases();
  for (int64_t i = 0; i < cases.count && !testing::Test::HasFailure(); ++i) {
    const uint32_t seed = cases.seed + static_cast<uint32_t>(i);
    SCOPED_TRACE("again: RC_PARAMS=\"max_success=1 seed=" + std::to_string(seed) + "\"");
    body(seed);
  }
}

}  // namespace deepinfer
