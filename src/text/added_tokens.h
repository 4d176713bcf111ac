// text/added_tokens.h - finds control tokens written out in a text.
//
// Leftmost match, longest first. Tokens marked `normalized` are looked for in what the others left, as the file format
// has it. Threads: const after build.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/types.h"
#include "text/byte_trie.h"
#include "text/tokenizer_file.h"

namespace deepinfer {

class AddedTokens {
 public:
  struct Match {
    size_t begin, end;
    TokenId id;
  };
  static constexpr int kPasses = 2;

  AddedTokens() = default;
  static Result<AddedTokens> build(std::span<const AddedToken> tokens);

  std::optional<Match> find(std::string_view text, size_t from, int pass) const;
  // The token of exactly this text, or -1.
  TokenId id_of(std::string_view text) const;

 private:
  struct Pass {
    ByteTrie trie;  // values: id + 1
    bool starts[256] = {};
    bool empty = true;
  };
  Pass passes_[kPasses];
};

}  // namespace deepinfer
