#include "net/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <fmt/format.h>

namespace deepinfer {

namespace {

std::string hex_of(const unsigned char* value, unsigned int size) {
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", value[i]);
  return out;
}

}  // namespace

struct Digest::State {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Digest::Digest(Kind kind) : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context.get(), kind == Kind::kSha256 ? EVP_sha256() : EVP_sha1(), nullptr);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;

void Digest::add(std::string_view bytes) { EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()); }

std::string Digest::hex() {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context.get(), value, &size);
  return hex_of(value, size);
}

std::string hmac_sha256_hex(std::string_view key, std::string_view text) {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       value, &size);
  return hex_of(value, size);
}

}  // namespace deepinfer
