// grammar/test_vocabulary.h - what the tests of this room are held to: a token for each byte.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grammar/vocabulary.h"

namespace deepinfer {

inline std::shared_ptr<const Vocabulary> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return Vocabulary::create(tokens);
}

}  // namespace deepinfer
