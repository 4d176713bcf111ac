#include "text/added_tokens.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"

namespace deepinfer {
namespace {

const uint8_t* as_bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

Status check_distinct(std::span<const AddedToken> tokens) {
  std::vector<const AddedToken*> by_text, by_id;
  for (const AddedToken& token : tokens) by_text.push_back(&token);
  by_id = by_text;
  std::sort(by_text.begin(), by_text.end(), [](auto* a, auto* b) { return a->text < b->text; });
  std::sort(by_id.begin(), by_id.end(), [](auto* a, auto* b) { return a->id < b->id; });
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (by_text[i - 1]->text == by_text[i]->text)
      return corrupt(fmt::format("added token {} appears twice", Json(by_text[i]->text).dump()));
    if (by_id[i - 1]->id == by_id[i]->id) return corrupt(fmt::format("two added tokens have the id {}", by_id[i]->id));
  }
  return {};
}

}  // namespace

Result<AddedTokens> AddedTokens::build(std::span<const AddedToken> tokens) {
  DI_CHECK_OK(check_distinct(tokens));
  AddedTokens added;
  for (int number = 0; number < kPasses; ++number) {
    Pass& pass = added.passes_[number];
    HugeVector<ByteTrie::Entry> entries;
    for (const AddedToken& token : tokens) {
      if (token.normalized != (number == 1)) continue;
      entries.push_back({token.text, token.id + 1});
      pass.starts[static_cast<uint8_t>(token.text[0])] = true;
      pass.empty = false;
    }
    DI_TRY(pass.trie, ByteTrie::build(entries));
  }
  return added;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from, int pass_number) const {
  const Pass& pass = passes_[pass_number];
  if (pass.empty) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!pass.starts[static_cast<uint8_t>(text[at])]) continue;
    const ByteTrie::Match match = pass.trie.longest(as_bytes(text) + at, text.size() - at);
    if (match.value > 0) return Match{at, at + match.length, match.value - 1};
  }
  return std::nullopt;
}

TokenId AddedTokens::id_of(std::string_view text) const {
  for (const Pass& pass : passes_) {
    if (pass.empty || text.empty()) continue;
    if (const auto match = pass.trie.longest(as_bytes(text), text.size()); match.whole > 0) return match.whole - 1;
  }
  return -1;
}

}  // namespace deepinfer
