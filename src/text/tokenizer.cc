#include "text/tokenizer.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"

namespace deepinfer {
namespace {

enum Flag : uint8_t { kByteLevel = 1, kAdded = 2, kSpecial = 4 };

}  // namespace

struct Tokenizer::Tables {
  TokenBytes bytes;
  TokenIndex index;
  std::vector<uint8_t> flags;
  AddedTokens added;
  Pretokenizer pretokenizer;
  Bpe bpe;

  void append_content(std::string_view text, std::vector<TokenId>& ids, Bpe::Scratch& scratch) const {
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    while (at < end) {
      const uint8_t* const piece_end = pretokenizer.next_piece(at, end);
      bpe.encode(at, static_cast<size_t>(piece_end - at), ids, scratch);
      at = piece_end;
    }
  }

  // Cuts out the added tokens of this pass and hands what lies between to the next one.
  void append(std::string_view text, int pass, std::vector<TokenId>& ids, Bpe::Scratch& scratch) const {
    if (pass == AddedTokens::kPasses) return append_content(text, ids, scratch);
    size_t from = 0;
    while (const auto match = added.find(text, from, pass)) {
      append(text.substr(from, match->begin - from), pass + 1, ids, scratch);
      ids.push_back(match->id);
      from = match->end;
    }
    append(text.substr(from), pass + 1, ids, scratch);
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view name) {
  const auto named = [&](Error error) {
    error.message = fmt::format("{}: {}", name, error.message);
    return error;
  };
  auto file = read_tokenizer_file(json);
  if (!file) return named(file.error());
  auto tables = std::make_unique<Tables>();
  tables->bytes = std::move(file->bytes);
  tables->index = std::move(file->index);
  const size_t size = tables->bytes.size();
  tables->flags.resize(size);
  std::vector<std::string_view> pieces(size);
  for (size_t id = 0; id < size; ++id) {
    if (!file->byte_level[id]) continue;
    tables->flags[id] = kByteLevel;
    pieces[id] = tables->bytes[static_cast<TokenId>(id)];
  }
  for (const AddedToken& token : file->added) {
    tables->flags[static_cast<size_t>(token.id)] |= token.special ? kAdded | kSpecial : kAdded;
  }
  auto added = AddedTokens::build(file->added);
  if (!added) return named(added.error());
  tables->added = *std::move(added);
  auto bpe = Bpe::build(pieces, file->merges, file->ignore_merges);
  if (!bpe) return named(bpe.error());
  tables->bpe = *std::move(bpe);
  return Tokenizer(std::move(tables));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 16);
  Bpe::Scratch scratch;
  tables_->append(text, 0, ids, scratch);
  return ids;
}

std::vector<TokenId> Tokenizer::encode_content(std::string_view text) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 16);
  append_content(text, ids);
  return ids;
}

void Tokenizer::append_content(std::string_view text, std::vector<TokenId>& ids) const {
  Bpe::Scratch scratch;
  tables_->append_content(text, ids, scratch);
}

void Tokenizer::append_settled(std::string_view text, std::vector<TokenId>& ids) const {
  const auto* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = begin + text.size();
  const Pretokenizer& pieces = tables_->pretokenizer;
  // What a piece is depends on the text from its start, and one ends where the next begins unless both are white space.
  const uint8_t* last = begin;
  for (const uint8_t *at = begin, *next; at < end; at = next) {
    next = pieces.next_piece(at, end);
    if (!pieces.blank(at, next)) last = at;
  }
  Bpe::Scratch scratch;
  for (const uint8_t *at = begin, *next; at < last; at = next) {
    next = pieces.next_piece(at, end);
    tables_->bpe.encode(at, static_cast<size_t>(next - at), ids, scratch);
  }
}

std::vector<TokenId> Tokenizer::encode_content_by_rank(std::string_view text) const {
  std::vector<TokenId> ids;
  Bpe::Scratch scratch;
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = at + text.size();
  while (at < end) {
    const uint8_t* const piece_end = tables_->pretokenizer.next_piece(at, end);
    tables_->bpe.merge_by_rank(at, static_cast<size_t>(piece_end - at), ids, scratch);
    at = piece_end;
  }
  return ids;
}

std::string Tokenizer::decode_bytes(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  for (const TokenId id : ids) {
    if (contains(id) && !(skip_special && is_special(id))) out += token_bytes(id);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes = decode_bytes(ids, skip_special);
  return is_valid_utf8(bytes) ? bytes : to_valid_utf8(bytes);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(tables_->flags.size()); }
std::string_view Tokenizer::token_bytes(TokenId id) const { return tables_->bytes[id]; }
bool Tokenizer::is_added(TokenId id) const { return (tables_->flags[static_cast<size_t>(id)] & kAdded) != 0; }
bool Tokenizer::is_special(TokenId id) const { return (tables_->flags[static_cast<size_t>(id)] & kSpecial) != 0; }

std::string Tokenizer::token_spelling(TokenId id) const {
  const bool spelled = (tables_->flags[static_cast<size_t>(id)] & kByteLevel) != 0;
  return spelled ? spell_bytes(token_bytes(id)) : std::string(token_bytes(id));
}

std::optional<TokenId> Tokenizer::added_token(std::string_view text) const {
  const TokenId id = tables_->added.id_of(text);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<TokenId> Tokenizer::token_id(std::string_view text) const {
  if (const auto id = added_token(text)) return id;
  const TokenId id = tables_->index.find(tables_->bytes, text);
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace deepinfer
