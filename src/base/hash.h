// base/hash.h - a hash that names things; it guards nothing.
//
// FNV-1a over bytes, 64 bits; `hash` carries on from earlier bytes. Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer {

constexpr uint64_t hash_bytes(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace deepinfer
