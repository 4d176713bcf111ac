// text/tokenizer.h - text to token ids and back: the byte-level BPE of a checkpoint's tokenizer.json.
//
// Two ways to encode. encode() sees control tokens written out in the text ("<｜User｜>") and is for text one trusts;
// encode_content() never yields one, so what a user wrote cannot break the framing of a prompt.
// Promise: ids equal those of the reference implementation on the same file; any bytes may be encoded, valid UTF-8 or
// not, and decode to the same bytes; time is linear in the text, whatever it is. A file that is damaged or of a kind
// this code does not know gives an Error that names the place.
// Threads: const after parse(), use it from as many threads as you like.
//
//   DI_TRY(Tokenizer tokenizer, Tokenizer::parse(json));
//   std::vector<TokenId> ids = tokenizer.encode_content("Hello, world!");
//   std::string text = tokenizer.decode(ids);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

class Tokenizer {
 public:
  // `json` is the content of a tokenizer.json; `name` stands before every error message.
  static Result<Tokenizer> parse(std::string_view json, std::string_view name = "tokenizer.json");

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::vector<TokenId> encode(std::string_view text) const;
  std::vector<TokenId> encode_content(std::string_view text) const;
  // encode_content() onto the end of `ids`: prompts are made of many runs.
  void append_content(std::string_view text, std::vector<TokenId>& ids) const;

  // The tokens encode_content() begins with, whatever may follow the text: all but those of its last piece and the white space
  // behind it.
  void append_settled(std::string_view text, std::vector<TokenId>& ids) const;

  // Invalid UTF-8 becomes U+FFFD; ids that no token has add nothing (contains() tells).
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;
  std::string decode_bytes(std::span<const TokenId> ids, bool skip_special = false) const;

  // Ids are 0 to vocab_size() - 1 without gaps, added tokens included.
  int32_t vocab_size() const;
  bool contains(TokenId id) const { return id >= 0 && id < vocab_size(); }
  // What a token adds to a text. REQUIRES for all four: contains(id).
  std::string_view token_bytes(TokenId id) const;
  // As the file spells it: byte-level tokens in the byte alphabet ("Ġthe"), added tokens as they are.
  std::string token_spelling(TokenId id) const;
  bool is_added(TokenId id) const;
  // Dropped by skip_special. Turn markers are added tokens, but most files do not call them special.
  bool is_special(TokenId id) const;
  // The added token of exactly this text.
  std::optional<TokenId> added_token(std::string_view text) const;
  // The added token, else the ordinary token with these bytes.
  std::optional<TokenId> token_id(std::string_view text) const;

  // encode_content() by the textbook: repeated merges of lowest rank through a priority queue. For tests and checks.
  std::vector<TokenId> encode_content_by_rank(std::string_view text) const;

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);

  std::unique_ptr<const Tables> tables_;
};

}  // namespace deepinfer
