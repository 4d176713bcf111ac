// kvcache/page_key.h - the name of a page: everything its content depends on, chained from the root.
//
// key_i = XXH3-128(key_{i-1}, the page's token ids, the content hashes of images that overlap it); the root covers model,
// kind of numerics and tenant, so no key ever names another tenant's page (kv_cache.md section 6). XXH3 does not resist
// attackers: whoever looks a key up compares the token ids, too.
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace deepinfer {

struct PageKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PageKey&) const = default;
};

// A prefix cache now has this page, or no longer.
struct PageChange {
  PageKey key;
  bool stored = false;
};

struct PageKeyHash {
  size_t operator()(const PageKey& key) const { return static_cast<size_t>(key.low); }
};

// `bounded`: pages of replay mode `full`, whose content depends on where a replay started.
PageKey root_key(std::string_view fingerprint, bool bounded, std::string_view tenant);

// Appends the keys of the complete pages of `tokens` behind those that `keys` holds already. Stops before a page with an
// image that has no content hash: such a page has no name.
void extend_page_keys(const PageKey& root, std::span<const TokenId> tokens, std::span<const ImageSpan> images,
                      int32_t page_tokens, std::vector<PageKey>& keys);

}  // namespace deepinfer
