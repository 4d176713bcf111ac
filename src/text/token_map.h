// text/token_map.h - which tokens Engram takes for the same word (model.md section 10).
//
// Tokens whose text is equal after folding (compatibility forms, accents, case, white space) share one class, numbered by
// first appearance. The model gets the map as data; the release's 129,280 tokens fall into 99,092 classes.
// Threads: pure function.
//
//   DI_TRY(TokenMap map, make_token_map(tokenizer, config.vocab_size));
//   if (map.num_classes != config.engram_compressed_vocab_size) ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct TokenMap {
  std::vector<int32_t> class_of;  // by token id
  int32_t num_classes = 0;
};

// For ids 0 to vocab_size - 1. Fails when the tokenizer has fewer tokens.
Result<TokenMap> make_token_map(const Tokenizer& tokenizer, int32_t vocab_size);

// The folded form of a text: NFKC, NFD, accents dropped, lower case, runs of space, tab, CR and LF to one space, none at
// the ends except for a text that is one lone space. Never empty: a text that folds to nothing stays as it is.
std::string fold_token_text(std::string_view text);

}  // namespace deepinfer
