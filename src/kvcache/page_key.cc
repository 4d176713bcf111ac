#include "kvcache/page_key.h"

#define XXH_STATIC_LINKING_ONLY  // the size of a streaming state
#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids enter the hash as they lie in memory");

class KeyHash {
 public:
  KeyHash() { XXH3_128bits_reset(&state_); }
  KeyHash& add(const void* data, size_t bytes) {
    XXH3_128bits_update(&state_, data, bytes);
    return *this;
  }
  // With its length, so that neighbouring texts cannot be cut in two ways.
  KeyHash& add(std::string_view text) {
    const uint64_t size = text.size();
    return add(&size, sizeof(size)).add(text.data(), text.size());
  }
  PageKey key() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.low64, hash.high64};
  }

 private:
  XXH3_state_t state_;
};

// The same key in one call: half the time of a streaming state, which a long prompt without pictures pays once a page.
PageKey plain_key(const PageKey& parent, std::span<const TokenId> tokens) {
  constexpr size_t kMostTokens = 256;
  struct {
    PageKey parent;
    TokenId tokens[kMostTokens];
  } block;
  if (tokens.size() > kMostTokens) return KeyHash().add(&parent, sizeof(parent)).add(tokens.data(), tokens.size_bytes()).key();
  block.parent = parent;
  std::copy(tokens.begin(), tokens.end(), block.tokens);
  const XXH128_hash_t hash = XXH3_128bits(&block, sizeof(parent) + tokens.size_bytes());
  return {hash.low64, hash.high64};
}

}  // namespace

PageKey root_key(std::string_view fingerprint, bool bounded, std::string_view tenant) {
  return KeyHash().add(fingerprint).add(bounded ? "bounded" : "exact").add(tenant).key();
}

void extend_page_keys(const PageKey& root, std::span<const TokenId> tokens, std::span<const ImageSpan> images,
                      int32_t page_tokens, std::vector<PageKey>& keys) {
  const auto page_size = static_cast<size_t>(page_tokens);
  for (size_t page = keys.size(); (page + 1) * page_size <= tokens.size(); ++page) {
    const PageKey parent = keys.empty() ? root : keys.back();
    const auto content = tokens.subspan(page * page_size, page_size);
    if (images.empty()) {
      keys.push_back(plain_key(parent, content));
      continue;
    }
    KeyHash hash;
    hash.add(&parent, sizeof(parent)).add(content.data(), content.size_bytes());
    const auto begin = static_cast<Position>(page * page_size), end = begin + page_tokens;
    for (const ImageSpan& image : images) {
      if (image.begin >= end || image.begin + image.rows <= begin) continue;
      if (image.content_hash.empty()) return;
      const int64_t place = image.begin - begin;
      hash.add(&place, sizeof(place)).add(image.content_hash);
    }
    keys.push_back(hash.key());
  }
}

}  // namespace deepinfer
