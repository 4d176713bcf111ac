#include "apps/cache_store.h"

#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "apps/command.h"
#include "apps/environment.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/json.h"
#include "host/host.h"
#include "kvcache/tiers/store_tools.h"
#include "server/keys.h"

namespace deepinfer {
namespace {

std::string date(int64_t seconds) {
  return seconds == 0 ? "never" : fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string tag_text(uint64_t tag) { return fmt::format("{:016x}", tag); }

std::string state_of(const SurveyedSegment& segment) {
  return !segment.error.empty() ? "unreadable" : segment.sealed ? "sealed" : "being written";
}

std::string list(const StoreSurvey& survey, bool json) {
  std::string out;
  if (!json)
    out = fmt::format("{:<62} {:>7} {:>7} {:>9}  {:<16}  {:<16}  {}\n", "segment", "MB", "pages", "snapshots", "created",
                      "expires", "state");
  Json rows = Json::array();
  for (const SurveyedSegment& segment : survey.segments) {
    const SegmentHeader& header = segment.header;
    if (json) {
      rows.push_back(Json::object({{"segment", segment.path},
                                   {"bytes", segment.bytes},
                                   {"pages", segment.pages},
                                   {"snapshots", segment.snapshots},
                                   {"created", header.created_s},
                                   {"expires", header.expires_s},
                                   {"state", state_of(segment)}}));
    } else {
      out +=
          fmt::format("{:<62} {:>7.1f} {:>7} {:>9}  {:<16}  {:<16}  {}\n", segment.path, static_cast<double>(segment.bytes) / 1e6,
                      segment.pages, segment.snapshots, date(header.created_s), date(header.expires_s), state_of(segment));
    }
  }
  return json ? rows.dump() + '\n' : out;
}

// One row a model, class and tenant.
struct Total {
  int64_t segments = 0, records = 0, bytes = 0;
};

std::string totals(const StoreSurvey& survey, bool json) {
  std::map<std::string, Total> by_class, by_tenant;
  int64_t bytes = survey.other_bytes;
  for (const SurveyedSegment& segment : survey.segments) {
    bytes += segment.bytes;
    Total& kind = by_class[fmt::format("{} {}", segment.name.fingerprint, retention_class_name(segment.name.retention))];
    ++kind.segments;
    kind.records += segment.pages + segment.snapshots;
    kind.bytes += segment.bytes;
    for (const auto& [tag, share] : segment.tenants) {
      Total& tenant = by_tenant[tag_text(tag)];
      ++tenant.segments;
      tenant.records += share.records;
      tenant.bytes += share.bytes;
    }
  }
  const auto lines = [](const char* title, const std::map<std::string, Total>& rows) {
    std::string out = fmt::format("{:<26} {:>9} {:>9} {:>9}\n", title, "segments", "records", "MB");
    for (const auto& [name, total] : rows)
      out += fmt::format("{:<26} {:>9} {:>9} {:>9.1f}\n", name, total.segments, total.records,
                         static_cast<double>(total.bytes) / 1e6);
    return out;
  };
  const auto object = [](const std::map<std::string, Total>& rows) {
    Json out = Json::object({});
    for (const auto& [name, total] : rows)
      out.set(name, Json::object({{"segments", total.segments}, {"records", total.records}, {"bytes", total.bytes}}));
    return out;
  };
  if (json) return Json::object({{"bytes", bytes}, {"classes", object(by_class)}, {"tenants", object(by_tenant)}}).dump() + '\n';
  return lines("model and class", by_class) + lines("tenant", by_tenant) +
         fmt::format("{:.1f} MB in all\n", static_cast<double>(bytes) / 1e6);
}

std::string verdict(const StoreSurvey& survey, bool json, bool& sound) {
  int64_t records = 0, damaged = 0, unreadable = 0, locked = 0;
  std::string out;
  for (const SurveyedSegment& segment : survey.segments) {
    records += segment.pages + segment.snapshots;
    damaged += segment.damaged;
    unreadable += !segment.error.empty();
    locked += segment.locked;
    if (segment.damaged > 0) out += fmt::format("{}: {} damaged\n", segment.path, segment.damaged);
    if (!segment.error.empty()) out += fmt::format("{}\n", segment.error);
  }
  sound = damaged == 0 && unreadable == 0;
  if (json)
    return Json::object(
               {{"sound", records}, {"damaged", damaged}, {"unreadable_segments", unreadable}, {"locked_segments", locked}})
               .dump() +
           '\n';
  if (locked > 0)
    out += fmt::format(
        "{} segments are encrypted with a key that is not at hand: of their records the checksums alone were looked at\n",
        locked);
  return out + fmt::format("{} records are sound, {} damaged, {} segments unreadable\n", records, damaged, unreadable);
}

Result<std::vector<uint64_t>> tenants_named(const CacheStoreSettings& settings) {
  if (settings.keys.empty()) {
    const std::string& text = settings.tenant;
    uint64_t tag = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), tag, 16);
    if (text.size() == 16 && read.ec == std::errc() && read.ptr == text.data() + text.size()) return std::vector<uint64_t>{tag};
    if (text == "anonymous") return std::vector<uint64_t>{tenant_tag("")};
    return invalid_argument(
        fmt::format("--tenant {}: the 16 digits that cache stat shows, anonymous, or with --keys FILE the name of a key", text));
  }
  DI_TRY(const KeyRing keys, KeyRing::open(settings.keys));
  std::vector<uint64_t> tags;
  for (const std::string& tenant : keys.tenants_of(settings.tenant)) tags.push_back(tenant_tag(tenant));
  if (tags.empty()) return not_found(fmt::format("{}: no key of the name {}", settings.keys, settings.tenant));
  return tags;
}

Result<std::vector<TokenId>> prefix_named(const CacheStoreSettings& settings) {
  DI_TRY(const std::string text, read_file(settings.prefix));
  DI_TRY(const auto tokenizer, open_tokenizer(settings.model));
  std::vector<TokenId> ids = tokenizer->encode(text);
  // What follows the text may join its last token.
  if (ids.size() > 1) ids.pop_back();
  if (ids.empty())
    return invalid_argument(fmt::format("--prefix {} is empty; cache drop without it drops everything", settings.prefix));
  return ids;
}

Result<int> drop(StoreDisk& disk, const CacheStoreSettings& settings, const StoreCipher* cipher) {
  StoreSelection selection;
  std::vector<std::optional<uint64_t>> tenants = {std::nullopt};
  if (!settings.tenant.empty()) {
    DI_TRY(const auto named, tenants_named(settings));
    tenants.assign(named.begin(), named.end());
  }
  if (!settings.retention.empty()) {
    for (size_t i = 0; i < kNumRetentionClasses; ++i) {
      if (settings.retention == retention_class_name(static_cast<RetentionClass>(i)))
        selection.retention = static_cast<RetentionClass>(i);
    }
    if (!selection.retention)
      return invalid_argument(fmt::format("--class {}: known are session, agent, chat, pinned", settings.retention));
  }
  if (!settings.prefix.empty()) {
    DI_TRY(selection.prefix, prefix_named(settings));
  }
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof(seed)) != 0) return io_error("the system gives no random seed");
  StoreDrop all;
  for (const auto& tenant : tenants) {
    selection.tenant = tenant;
    DI_TRY(const StoreDrop done, drop_from_store(disk, settings.folder, selection, seed++, cipher));
    all.removed_records += done.removed_records;
    all.removed_segments += done.removed_segments, all.rewritten_segments += done.rewritten_segments;
    all.in_use.insert(all.in_use.end(), done.in_use.begin(), done.in_use.end());
  }
  DI_CHECK_OK(write_out(fmt::format("{} records dropped: {} segments removed, {} written again without them\n",
                                    all.removed_records, all.removed_segments, all.rewritten_segments)));
  if (all.in_use.empty()) return kExitOk;
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} segments, {} the first, are being written by a server: stop it and drop again", all.in_use.size(),
                           all.in_use.front())};
}

}  // namespace

Result<int> look_into_store(const std::string& what, const CacheStoreSettings& wanted) {
  CacheStoreSettings settings = wanted;
  if (settings.folder.empty() && !cache_directory().empty()) settings.folder = cache_directory() + "/kv";
  if (settings.folder.empty())
    return invalid_argument("there is no home to look for a KV store in: name its folder with --store DIR");
  if (what != "drop" && !settings.tenant.empty()) return invalid_argument("--tenant belongs to cache drop");
  if (what != "drop" && !settings.prefix.empty()) return invalid_argument("--prefix belongs to cache drop");
  PosixDisk disk;
  std::shared_ptr<const StoreCipher> cipher;
  if (!settings.key_file.empty()) {
    DI_TRY(cipher, StoreCipher::open(settings.key_file));
  }
  if (what == "drop") return drop(disk, settings, cipher.get());
  DI_TRY(const StoreSurvey survey, survey_store(disk, settings.folder, what == "verify", cipher.get()));
  if (what == "ls") return finish_with(write_out(list(survey, settings.json)));
  if (what == "stat") return finish_with(write_out(totals(survey, settings.json)));
  bool sound = true;
  DI_CHECK_OK(write_out(verdict(survey, settings.json, sound)));
  return sound ? kExitOk : kExitFailed;
}

}  // namespace deepinfer
