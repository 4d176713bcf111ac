// recipe/prompt_cache.h - ids of prompts that were encoded before, so that the next turn of a conversation costs its own length.
//
// A prompt's text pieces are separated by control tokens, and a piece's ids depend on the piece alone: what two prompts share
// from the start, piece by piece, has the same ids. The longest such start of an earlier prompt is reused, after comparing
// its text.
// Promise: the ids are those of Prompt::encode(). A tenant's prompts help only that tenant, so nobody can measure what
// another asked. Memory is bounded; the least recently used prompt goes first.
// Threads: any; the lock is held only to look at the list.
//
//   PromptCache cache({});
//   DI_TRY(auto ids, cache.encode(render_prompt(conversation), tokenizer, tenant));
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/render.h"

namespace deepinfer {

struct PromptCacheLimits {
  size_t max_prompts = 64;
  size_t max_bytes = size_t{64} << 20;
  size_t min_bytes = 2048;  // shorter prompts are encoded faster than they are looked up
};

class PromptCache {
 public:
  explicit PromptCache(PromptCacheLimits limits) : limits_(limits) {}

  Result<std::vector<TokenId>> encode(const Prompt& prompt, const Tokenizer& tokenizer, std::string_view tenant);

  size_t bytes() const;
  int64_t num_reused() const;  // prompts that began like an earlier one

 private:
  struct Entry {
    std::string tenant;
    std::vector<PromptPiece> pieces;
    std::vector<TokenId> ids;
    std::vector<uint32_t> ends;  // of each piece in ids
    size_t bytes = 0;
  };
  using Entries = std::vector<std::shared_ptr<const Entry>>;
  Entries entries_of(std::string_view tenant) const;
  // `grown_from`: the prompt this one continues to its end, which it replaces.
  void keep(std::shared_ptr<const Entry> entry, const Entry* grown_from);

  PromptCacheLimits limits_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const Entry>> entries_;  // most recently used first
  size_t bytes_ = 0;
  int64_t num_reused_ = 0;
};

}  // namespace deepinfer
