// grammar/vocabulary.h - the tokens a constrained answer is made of, sorted for masks.
//
// Most tokens are plain text that any JSON string may hold, of characters that a pattern's `.` takes. They lie in slices by their
// number of characters: where the answer stands inside a string of enough room, a whole slice is allowed with one pass over a bit
// set and only the remaining tokens (quotes, escapes, control characters, cut characters) are looked at one by one. Threads:
// const after create(); shared by all constraints of a tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/token_trie.h"
#include "text/tokenizer.h"

namespace deepinfer {

class Vocabulary {
 public:
  struct Slice {
    int32_t max_chars = 0;  // of the longest token; kept 0 for the tokens that are in no slice
    std::vector<uint32_t> mask;
    TokenTrie trie;
  };

  // Added tokens (turn markers and the like) are never part of a constrained answer. `tokenizer` must outlive this.
  static std::shared_ptr<const Vocabulary> create(const Tokenizer& tokenizer) { return create(tokenizer, {}); }
  // But those spelled as in `markup`, which then count as text.
  static std::shared_ptr<const Vocabulary> create(const Tokenizer& tokenizer, const std::vector<std::string_view>& markup);
  // Of tokens given by their bytes, id by id; empty bytes are never allowed. For tests.
  static std::shared_ptr<const Vocabulary> create(const std::vector<std::string>& tokens);

  int32_t size() const { return static_cast<int32_t>(begins_.size()) - 1; }
  size_t num_words() const { return (begins_.size() - 1 + 31) / 32; }
  // Empty for tokens that are never allowed.
  std::string_view bytes(TokenId token) const {
    const auto i = static_cast<size_t>(token);
    return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }
  // The token that `text` goes on with behind `before` when both are tokenized together, whatever follows; -1 where that is not
  // settled, or no token begins behind `before`.
  TokenId settled_token(std::string_view before, std::string_view text) const;
  // The first one holds the tokens of no slice.
  const std::vector<Slice>& slices() const { return slices_; }
  size_t max_depth() const { return max_depth_; }
  // Adds the tokens of all slices with at most so many characters.
  void allow_plain(int32_t chars, std::span<uint32_t> words) const;

 private:
  void build();

  std::string bytes_;
  std::vector<uint32_t> begins_;
  std::vector<Slice> slices_;
  size_t max_depth_ = 0;
  std::vector<std::vector<uint32_t>> plain_up_to_;       // sets by number of characters, for the first few
  std::vector<std::pair<int32_t, TokenId>> plain_long_;  // characters and token of the others, in that order
  const Tokenizer* tokenizer_ = nullptr;
  std::vector<std::string_view> markup_;  // as the tokenizer spells it
};

}  // namespace deepinfer
