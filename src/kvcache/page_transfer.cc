#include "kvcache/page_transfer.h"

#include <xxhash.h>

namespace deepinfer {

uint64_t transfer_checksum(std::span<const uint8_t> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace deepinfer
