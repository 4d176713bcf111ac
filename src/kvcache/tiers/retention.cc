#include "kvcache/tiers/retention.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr std::array<const char*, kNumRetentionClasses> kNames = {"session", "agent", "chat", "pinned"};
constexpr int64_t kBucketsOfALife = 8;

bool parse_hex(std::string_view text, size_t digits, uint64_t& out) {
  if (text.size() != digits) return false;
  const bool lower =
      std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return lower && std::from_chars(text.data(), text.data() + text.size(), out, 16).ec == std::errc();
}

bool is_expired(const StoreFile& file, int64_t now_s) { return file.expires_s != 0 && file.expires_s <= now_s; }

}  // namespace

const char* retention_class_name(RetentionClass retention) { return kNames[static_cast<size_t>(retention)]; }

std::optional<RetentionClass> retention_class_named(std::string_view name) {
  for (size_t i = 0; i < kNumRetentionClasses; ++i) {
    if (name == retention_class_name(static_cast<RetentionClass>(i))) return static_cast<RetentionClass>(i);
  }
  return std::nullopt;
}

SegmentLife segment_life(const RetentionLives& lives, RetentionClass retention, int64_t now_s) {
  const int64_t life = lives.life_s[static_cast<size_t>(retention)];
  if (life == 0) return {};
  const int64_t bucket = std::max<int64_t>(life / kBucketsOfALife, 1);
  const int64_t closes = (now_s / bucket + 1) * bucket;
  return {closes, closes + life};
}

bool is_ageing(const RetentionLives& lives, RetentionClass retention, int64_t expires_s, int64_t now_s) {
  return expires_s != 0 && expires_s - now_s < lives.life_s[static_cast<size_t>(retention)] / 4;
}

std::string segment_path(const SegmentName& name) {
  return fmt::format("{}/{}/{:016x}-{:08x}.seg", name.fingerprint, retention_class_name(name.retention), name.writer,
                     name.sequence);
}

bool is_named(const SegmentHeader& header, const SegmentName& name) {
  return header.retention == name.retention && header.writer == name.writer && header.sequence == name.sequence &&
         folder_name(header.fingerprint) == name.fingerprint;
}

bool parse_segment_path(std::string_view path, SegmentName& out) {
  uint64_t fingerprint = 0;
  const size_t first = path.find('/'), second = path.find('/', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  if (!parse_hex(path.substr(0, first), 16, fingerprint)) return false;
  const auto name = std::find(kNames.begin(), kNames.end(), path.substr(first + 1, second - first - 1));
  const std::string_view file = path.substr(second + 1);
  if (name == kNames.end() || file.size() != 16 + 1 + 8 + 4 || file[16] != '-' || !file.ends_with(".seg")) return false;
  out.fingerprint = path.substr(0, first);
  out.retention = static_cast<RetentionClass>(name - kNames.begin());
  return parse_hex(file.substr(0, 16), 16, out.writer) && parse_hex(file.substr(17, 8), 8, out.sequence);
}

std::string folder_name(const StoreFingerprint& fingerprint) {
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += fmt::format("{:02x}", fingerprint[i]);
  return out;
}

std::string lock_name(uint64_t writer) { return fmt::format("{:016x}.lock", writer); }

std::vector<size_t> choose_victims(std::span<const StoreFile> files, int64_t wanted, int64_t now_s) {
  std::vector<size_t> order(files.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return files[i].written || files[i].retention == RetentionClass::kPinned; });
  const auto rank = [&](size_t i) {
    const StoreFile& file = files[i];
    const int group = is_expired(file, now_s) ? 0 : file.other_fingerprint ? 1 : 2;
    return std::tuple(group, group == 2 ? file.retention : RetentionClass::kSession, file.created_s, std::string_view(file.path));
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
  std::vector<size_t> victims;
  for (const size_t i : order) {
    if (wanted <= 0 && !is_expired(files[i], now_s)) break;
    wanted -= files[i].bytes;
    victims.push_back(i);
  }
  return victims;
}

}  // namespace deepinfer
