// net/digest.h - checksums of what came over the wire: SHA-256, SHA-1 (names of git objects only); HMAC-SHA-256.
//
// Threads: a value for one thread.
//
//   Digest digest(Digest::Kind::kSha256);
//   digest.add(bytes);
//   digest.hex();
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace deepinfer {

class Digest {
 public:
  enum class Kind { kSha256, kSha1 };
  explicit Digest(Kind kind);
  ~Digest();
  Digest(Digest&&) noexcept;

  void add(std::string_view bytes);
  // Once, at the end.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hmac_sha256_hex(std::string_view key, std::string_view text);

}  // namespace deepinfer
