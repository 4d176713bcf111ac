// server/keys.h - who may call.
//
// A key file holds one key a line, hashed: NAME SHA256-OF-THE-KEY [CLASS] [requests=N] [tokens=N]: how long the cache keeps what
// its requests leave, where they do not say, and limits of one minute. Blank lines and lines that begin with # are skipped.
// Without a file everybody may call; with one, nobody may without a key of it - also when the file is empty. Promise: keys are
// compared by their hash only and never kept or logged; a reload that fails keeps the old keys. Threads: one (the server's).
//
//   DI_TRY(KeyRing keys, KeyRing::open("keys.txt"));
//   const KeyRecord* who = keys.find(presented);     // nullptr: refuse
//   keys.reload_if_changed();
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/types.h"
#include "net/http.h"
#include "policy/quota.h"

namespace deepinfer {

struct KeyRecord {
  std::string name;    // shown in logs, names what is kept
  std::string tenant;  // an HMAC under the key's hash: who has another key of that name elsewhere shares no cached page
  std::optional<RetentionClass> retention;
  QuotaLimits limits;
};

class KeyRing {
 public:
  KeyRing() = default;  // nobody needs a key
  static Result<KeyRing> open(const std::string& path);

  bool required() const { return !path_.empty(); }
  const KeyRecord* find(std::string_view key) const;
  // Of every key of that name.
  std::vector<std::string> tenants_of(std::string_view name) const;
  // What changed in the file is taken over; the Error of a file that cannot be read, once per change.
  Status reload_if_changed();
  size_t size() const { return by_hash_.size(); }

 private:
  Status load();
  std::string path_;
  int64_t stamp_ = 0;  // of the file when last looked at
  std::map<std::string, KeyRecord> by_hash_;
};

// The key of a request: Authorization: Bearer KEY, or x-api-key: KEY.
std::optional<std::string> presented_key(const HttpHeaders& headers);

// Hexadecimal SHA-256.
std::string sha256_hex(std::string_view text);

}  // namespace deepinfer
