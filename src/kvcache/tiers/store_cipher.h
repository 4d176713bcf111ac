// kvcache/tiers/store_cipher.h - AES-256-GCM over what a record says: its token ids and its payload.
//
// Each record has a random nonce of its own; its head (kind, lengths, keys, tenant) is authenticated with it, so what is
// decrypted is what was put under that key. Keys, tenant tags and marks of first pages stay readable: they are what a reader
// finds records by. Threads: every call from any thread.
//
//   DI_TRY(const auto cipher, StoreCipher::open("store.key"));
//   DI_CHECK_OK(cipher->encrypt(head, seal, text));
//   if (!cipher->decrypt(head, seal, text)) ...;            // another key's, or not what was encrypted
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace deepinfer {

class StoreCipher {
 public:
  static constexpr size_t kKeyBytes = 32, kNonceBytes = 12, kSealBytes = kNonceBytes + 16;
  // A file of 32 bytes, or of 64 hexadecimal digits.
  static Result<std::shared_ptr<const StoreCipher>> open(const std::string& path);
  explicit StoreCipher(const std::array<uint8_t, kKeyBytes>& key);
  ~StoreCipher();
  StoreCipher(const StoreCipher&) = delete;
  StoreCipher& operator=(const StoreCipher&) = delete;

  // Names the key and tells nothing of it; never 0.
  uint64_t mark() const { return mark_; }
  // In place. `seal` is kSealBytes long: nonce and tag.
  Status encrypt(std::span<const uint8_t> head, std::span<uint8_t> seal, std::span<uint8_t> text) const;
  // False: `text` is noise then.
  bool decrypt(std::span<const uint8_t> head, std::span<const uint8_t> seal, std::span<uint8_t> text) const;

 private:
  std::array<uint8_t, kKeyBytes> key_;
  uint64_t mark_ = 0;
};

}  // namespace deepinfer
