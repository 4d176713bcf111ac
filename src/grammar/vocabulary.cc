#include "grammar/vocabulary.h"

#include <algorithm>

#include "base/utf8.h"

namespace deepinfer {
namespace {

// Bounds of the slices in characters; the last has no end. Of the release's tokens 82 % have at most 8 characters.
constexpr int32_t kSliceChars[] = {8, 20, INT32_MAX};

// Tokens with more characters are listed: 3,000 of the release's.
constexpr int32_t kCountedChars = 20;

// Characters of a token that any JSON string may hold as it is; -1 for the others, and where one ends a line, which a pattern's
// `.` is not.
int32_t plain_chars(std::string_view bytes) {
  constexpr std::string_view kLineEnd = "\u2028", kParagraphEnd = "\u2029";
  if (!is_valid_utf8(bytes) || bytes.find(kLineEnd) != bytes.npos || bytes.find(kParagraphEnd) != bytes.npos) return -1;
  int32_t chars = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == '"' || byte == '\\') return -1;
    if ((byte & 0xC0) != 0x80) ++chars;
  }
  return chars;
}

}  // namespace

std::shared_ptr<const Vocabulary> Vocabulary::create(const Tokenizer& tokenizer, const std::vector<std::string_view>& markup) {
  auto out = std::make_shared<Vocabulary>();
  const auto counts = [&](std::string_view text) { return std::find(markup.begin(), markup.end(), text) != markup.end(); };
  out->tokenizer_ = &tokenizer;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    out->begins_.push_back(static_cast<uint32_t>(out->bytes_.size()));
    const bool is_markup = tokenizer.is_added(id) && counts(tokenizer.token_bytes(id));
    if (is_markup) out->markup_.push_back(tokenizer.token_bytes(id));
    if (is_markup || !tokenizer.is_added(id)) out->bytes_ += tokenizer.token_bytes(id);
  }
  out->begins_.push_back(static_cast<uint32_t>(out->bytes_.size()));
  out->build();
  return out;
}

std::shared_ptr<const Vocabulary> Vocabulary::create(const std::vector<std::string>& tokens) {
  auto out = std::make_shared<Vocabulary>();
  for (const std::string& token : tokens) {
    out->begins_.push_back(static_cast<uint32_t>(out->bytes_.size()));
    out->bytes_ += token;
  }
  out->begins_.push_back(static_cast<uint32_t>(out->bytes_.size()));
  out->build();
  return out;
}

// Markup is cut out first, as it is where texts are read; what may be the beginning of one is not settled.
TokenId Vocabulary::settled_token(std::string_view before, std::string_view text) const {
  if (!tokenizer_) return -1;
  const std::string all = std::string(before) + std::string(text);
  std::vector<TokenId> ids;
  size_t from = 0, open = all.size();
  for (size_t at = 0; at < all.size(); ++at) {
    const std::string_view rest = std::string_view(all).substr(at);
    const auto found = std::find_if(markup_.begin(), markup_.end(),
                                    [&](std::string_view mark) { return rest.starts_with(mark) || mark.starts_with(rest); });
    if (found == markup_.end()) continue;
    open = at;
    if (rest.size() < found->size()) break;
    tokenizer_->append_content(std::string_view(all).substr(from, at - from), ids);
    ids.push_back(*tokenizer_->added_token(*found));
    from = at + found->size();
    at = from - 1;
    open = all.size();
  }
  tokenizer_->append_settled(std::string_view(all).substr(from, open - from), ids);
  size_t end = 0;
  for (const TokenId id : ids) {
    if (end == before.size()) return id;
    if (end > before.size()) break;
    end += tokenizer_->token_bytes(id).size();
  }
  return -1;
}

void Vocabulary::build() {
  std::vector<std::vector<TokenTrie::Entry>> entries(std::size(kSliceChars) + 1);
  slices_.resize(entries.size());
  plain_up_to_.assign(kCountedChars + 1, std::vector<uint32_t>(num_words(), 0));
  for (Slice& slice : slices_) slice.mask.assign(num_words(), 0);
  for (TokenId token = 0; token < size(); ++token) {
    const std::string_view text = bytes(token);
    if (text.empty()) continue;
    const int32_t chars = plain_chars(text);
    size_t place = 0;
    if (chars >= 0) {
      for (place = 1; chars > kSliceChars[place - 1];) ++place;
    }
    entries[place].push_back({text, token});
    if (chars > kCountedChars) plain_long_.emplace_back(chars, token);
    for (int32_t most = chars; chars >= 0 && most <= kCountedChars; ++most) {
      plain_up_to_[static_cast<size_t>(most)][static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    slices_[place].max_chars = std::max(slices_[place].max_chars, chars);
    slices_[place].mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  std::sort(plain_long_.begin(), plain_long_.end());
  for (size_t i = 0; i < entries.size(); ++i) {
    slices_[i].trie = TokenTrie(std::move(entries[i]));
    max_depth_ = std::max(max_depth_, slices_[i].trie.max_depth());
  }
}

void Vocabulary::allow_plain(int32_t chars, std::span<uint32_t> words) const {
  const std::vector<uint32_t>& counted = plain_up_to_[static_cast<size_t>(std::min(chars, kCountedChars))];
  for (size_t word = 0; word < counted.size(); ++word) words[word] |= counted[word];
  for (const auto& [length, token] : plain_long_) {
    if (length > chars) break;
    words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
}

}  // namespace deepinfer
