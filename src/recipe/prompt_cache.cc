#include "recipe/prompt_cache.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace deepinfer {

namespace {

size_t shared_pieces(const std::vector<PromptPiece>& a, const std::vector<PromptPiece>& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t count = 0;
  while (count < most && a[count].kind == b[count].kind && a[count].text == b[count].text) ++count;
  return count;
}

}  // namespace

PromptCache::Entries PromptCache::entries_of(std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  Entries out;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(out),
               [&](const auto& entry) { return entry->tenant == tenant; });
  return out;
}

Result<std::vector<TokenId>> PromptCache::encode(const Prompt& prompt, const Tokenizer& tokenizer, std::string_view tenant) {
  auto entry = std::make_shared<Entry>();
  for (const PromptPiece& piece : prompt.pieces()) entry->bytes += sizeof(PromptPiece) + piece.text.size();
  if (entry->bytes < limits_.min_bytes) return prompt.encode(tokenizer);
  std::shared_ptr<const Entry> best;
  size_t shared = 0;
  for (const auto& other : entries_of(tenant)) {
    const size_t count = shared_pieces(prompt.pieces(), other->pieces);
    if (count <= shared) continue;
    best = other;
    shared = count;
  }
  if (best) {
    entry->ends.assign(best->ends.begin(), best->ends.begin() + static_cast<std::ptrdiff_t>(shared));
    entry->ids.assign(best->ids.begin(), best->ids.begin() + entry->ends.back());
  }
  DI_CHECK_OK(prompt.encode_from(shared, tokenizer, entry->ids, entry->ends));
  std::vector<TokenId> ids = entry->ids;
  entry->tenant = tenant;
  entry->pieces = prompt.pieces();
  entry->bytes += entry->ids.size() * sizeof(TokenId) + entry->ends.size() * sizeof(uint32_t);
  // The header of the next answer ends every prompt, so a prompt that another continues differs from it there at most.
  const bool continues = best && shared + 2 >= best->pieces.size();
  keep(std::move(entry), continues ? best.get() : nullptr);
  return ids;
}

void PromptCache::keep(std::shared_ptr<const Entry> entry, const Entry* grown_from) {
  const std::lock_guard lock(mutex_);
  const auto drop = [&](std::list<std::shared_ptr<const Entry>>::iterator place) {
    bytes_ -= (*place)->bytes;
    entries_.erase(place);
  };
  num_reused_ += grown_from != nullptr;
  if (grown_from) {
    const auto place =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& other) { return other.get() == grown_from; });
    if (place != entries_.end()) drop(place);
  }
  if (entry->bytes > limits_.max_bytes || limits_.max_prompts == 0) return;
  while (entries_.size() >= limits_.max_prompts || bytes_ + entry->bytes > limits_.max_bytes) drop(std::prev(entries_.end()));
  bytes_ += entry->bytes;
  entries_.push_front(std::move(entry));
}

size_t PromptCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t PromptCache::num_reused() const {
  const std::lock_guard lock(mutex_);
  return num_reused_;
}

}  // namespace deepinfer
