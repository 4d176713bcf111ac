#include "kvcache/tiers/store_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "base/file.h"

namespace deepinfer {
namespace {

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

// Key, nonce and head; then the text in place. Of a record, 64 MiB at most, so lengths fit an int.
bool run(EVP_CIPHER_CTX* context, bool encrypts, const uint8_t* key, const uint8_t* nonce, std::span<const uint8_t> head,
         std::span<uint8_t> text) {
  int written = 0;
  return EVP_CipherInit_ex(context, EVP_aes_256_gcm(), nullptr, key, nonce, encrypts ? 1 : 0) == 1 &&
         EVP_CipherUpdate(context, nullptr, &written, head.data(), static_cast<int>(head.size())) == 1 &&
         EVP_CipherUpdate(context, text.data(), &written, text.data(), static_cast<int>(text.size())) == 1;
}

bool read_hex(std::string_view text, std::array<uint8_t, StoreCipher::kKeyBytes>& key) {
  if (text.size() != 2 * key.size()) return false;
  for (size_t i = 0; i < key.size(); ++i) {
    const char* at = text.data() + 2 * i;
    const auto read = std::from_chars(at, at + 2, key[i], 16);
    if (read.ec != std::errc() || read.ptr != at + 2) return false;
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const StoreCipher>> StoreCipher::open(const std::string& path) {
  DI_TRY(std::string text, read_file(path));
  std::array<uint8_t, kKeyBytes> key;
  bool good = text.size() == key.size();
  if (good) {
    std::memcpy(key.data(), text.data(), key.size());
  } else {
    std::string_view digits = text;
    while (!digits.empty() && std::isspace(static_cast<unsigned char>(digits.back()))) digits.remove_suffix(1);
    good = read_hex(digits, key);
  }
  OPENSSL_cleanse(text.data(), text.size());
  if (!good)
    return invalid_argument(fmt::format("{} is no key of the KV store: 32 bytes or 64 hexadecimal digits are wanted", path));
  auto cipher = std::make_shared<const StoreCipher>(key);
  OPENSSL_cleanse(key.data(), key.size());
  return std::shared_ptr<const StoreCipher>(std::move(cipher));
}

StoreCipher::StoreCipher(const std::array<uint8_t, kKeyBytes>& key) : key_(key) {
  constexpr std::string_view kName = "deepinfer kv store";
  std::array<uint8_t, kName.size() + kKeyBytes> text;
  std::copy(kName.begin(), kName.end(), text.begin());
  std::copy(key.begin(), key.end(), text.begin() + kName.size());
  std::array<uint8_t, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  DI_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1);
  OPENSSL_cleanse(text.data(), text.size());
  std::memcpy(&mark_, digest.data(), sizeof(mark_));
  mark_ |= 1;
}

StoreCipher::~StoreCipher() { OPENSSL_cleanse(key_.data(), key_.size()); }

Status StoreCipher::encrypt(std::span<const uint8_t> head, std::span<uint8_t> seal, std::span<uint8_t> text) const {
  const Context context(EVP_CIPHER_CTX_new());
  int written = 0;
  if (!context || RAND_bytes(seal.data(), kNonceBytes) != 1 || !run(context.get(), true, key_.data(), seal.data(), head, text) ||
      EVP_CipherFinal_ex(context.get(), nullptr, &written) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kSealBytes - kNonceBytes, &seal[kNonceBytes]) != 1)
    return internal_error("a record of the KV store could not be encrypted");
  return {};
}

bool StoreCipher::decrypt(std::span<const uint8_t> head, std::span<const uint8_t> seal, std::span<uint8_t> text) const {
  const Context context(EVP_CIPHER_CTX_new());
  int written = 0;
  return context && run(context.get(), false, key_.data(), seal.data(), head, text) &&
         EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kSealBytes - kNonceBytes,
                             const_cast<uint8_t*>(&seal[kNonceBytes])) == 1 &&
         EVP_CipherFinal_ex(context.get(), nullptr, &written) == 1;
}

}  // namespace deepinfer
