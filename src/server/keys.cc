#include "server/keys.h"

#include <sys/stat.h>

#include <charconv>
#include <sstream>

#include <fmt/format.h>

#include "base/file.h"
#include "kvcache/tiers/retention.h"
#include "net/digest.h"

namespace deepinfer {

namespace {

// Time of change and size together; 0 = no file.
int64_t file_stamp(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return 0;
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec + info.st_size;
}

bool read_limit(const std::string& word, QuotaLimits& limits) {
  const size_t equals = std::min(word.find('='), word.size());
  int64_t* const limit = word.substr(0, equals) == "requests" ? &limits.requests
                         : word.substr(0, equals) == "tokens" ? &limits.tokens
                                                              : nullptr;
  const char* const end = word.data() + word.size();
  return limit && equals < word.size() && std::from_chars(word.data() + equals + 1, end, *limit).ptr == end && *limit > 0;
}

bool is_hash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string sha256_hex(std::string_view text) {
  Digest digest(Digest::Kind::kSha256);
  digest.add(text);
  return digest.hex();
}

Status KeyRing::load() {
  stamp_ = file_stamp(path_);
  DI_TRY(const std::string text, read_file(path_));
  std::map<std::string, KeyRecord> loaded;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string name, hash, word;
    if (!(words >> name) || name[0] == '#') continue;
    words >> hash;
    if (hash.starts_with("sha256:")) hash.erase(0, 7);
    if (!is_hash(hash)) {
      return invalid_argument(
          fmt::format("{}:{}: expected NAME and the SHA-256 of the key in 64 hexadecimal digits "
                      "(printf %s KEY | sha256sum)",
                      path_, number));
    }
    KeyRecord record{name, hmac_sha256_hex(hash, "deepinfer tenant " + name), {}, {}};
    while (words >> word) {
      if (word == "-" || read_limit(word, record.limits)) continue;  // sha256sum writes "-" behind the hash
      record.retention = retention_class_named(word);
      if (!record.retention)
        return invalid_argument(fmt::format(
            "{}:{}: '{}' stands behind the hash; session, agent, chat or pinned may, and requests=N and tokens=N, a minute",
            path_, number, word));
    }
    if (!loaded.emplace(hash, std::move(record)).second)
      return invalid_argument(fmt::format("{}:{}: this key stands there twice", path_, number));
  }
  by_hash_ = std::move(loaded);
  return {};
}

Result<KeyRing> KeyRing::open(const std::string& path) {
  KeyRing ring;
  ring.path_ = path;
  DI_CHECK_OK(ring.load());
  return ring;
}

const KeyRecord* KeyRing::find(std::string_view key) const {
  const auto found = by_hash_.find(sha256_hex(key));
  return found == by_hash_.end() ? nullptr : &found->second;
}

std::vector<std::string> KeyRing::tenants_of(std::string_view name) const {
  std::vector<std::string> out;
  for (const auto& [hash, record] : by_hash_) {
    if (record.name == name) out.push_back(record.tenant);
  }
  return out;
}

Status KeyRing::reload_if_changed() {
  if (!required() || file_stamp(path_) == stamp_) return {};
  return load();
}

std::optional<std::string> presented_key(const HttpHeaders& headers) {
  const std::string_view bearer = headers.get("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (bearer.size() > kScheme.size() && equal_ignoring_case(bearer.substr(0, kScheme.size()), kScheme))
    return std::string(bearer.substr(kScheme.size()));
  if (const std::string_view key = headers.get("x-api-key"); !key.empty()) return std::string(key);
  return std::nullopt;
}

}  // namespace deepinfer
