#include "kvcache/tiers/store_tools.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "kvcache/tiers/segment_file.h"

namespace deepinfer {
namespace {

int64_t bytes_of(const TableEntry& entry) { return int64_t{entry.blocks} * kStoreBlock; }

// What a segment is encrypted with, if it is.
struct Lock {
  bool is_open = true;
  const StoreCipher* cipher = nullptr;
};
Lock lock_of(const SegmentHeader& header, const StoreCipher* cipher) {
  if (header.key_mark == 0) return {};
  return cipher && cipher->mark() == header.key_mark ? Lock{true, cipher} : Lock{false, nullptr};
}

Result<RecordView> read_record(const DiskFile& file, uint64_t identity, const TableEntry& entry, BlockBuffer& buffer, Lock lock) {
  const int64_t offset = int64_t{entry.first_block} * kStoreBlock;
  DI_CHECK_OK(file.read(offset, buffer.bytes()));
  DI_TRY(const RecordView record, decode_record(identity, static_cast<uint64_t>(offset), buffer.bytes()));
  if (lock.is_open && !decrypt_record(lock.cipher, buffer.bytes())) return corrupt("the record is not what was encrypted");
  return record;
}

void survey_records(const DiskFile& file, const SegmentContent& content, bool read_all, Lock lock, SurveyedSegment& out) {
  out.locked = !lock.is_open;
  out.sealed = content.sealed;
  out.damaged = content.damaged;
  for (const TableEntry& entry : content.entries) {
    // Without a table the records were read to be found.
    if (read_all && content.sealed) {
      BlockBuffer buffer(bytes_of(entry));
      const auto record = read_record(file, out.header.identity, entry, buffer, lock);
      if (!record && record.error().code != ErrorCode::kUnsupported) {
        ++out.damaged;
        continue;
      }
    }
    ++(entry.kind == static_cast<uint8_t>(RecordKind::kPage) ? out.pages : out.snapshots);
    TenantShare& share = out.tenants[entry.tenant];
    ++share.records;
    share.bytes += bytes_of(entry);
  }
}

SurveyedSegment survey_segment(StoreDisk& disk, const std::string& folder, const DiskEntry& entry, const SegmentName& name,
                               bool read_all, const StoreCipher* cipher) {
  SurveyedSegment out{entry.path, entry.bytes, name};
  const auto open = [&]() -> Status {
    DI_TRY(const auto file, disk.open(folder + "/" + entry.path, false));
    DI_TRY(out.header, load_header(*file));
    if (!is_named(out.header, name))
      return corrupt(fmt::format("{} is misnamed: its header is that of another file", entry.path));
    DI_TRY(const SegmentContent content, load_segment(*file, out.header.identity, kStoreBlock));
    survey_records(*file, content, read_all, lock_of(out.header, cipher), out);
    return {};
  };
  if (const Status status = open(); !status) out.error = status.error().message;
  return out;
}

// Heads of records, to walk from a first page to those that continue it.
class PrefixSearch {
 public:
  explicit PrefixSearch(std::span<const TokenId> prefix) : prefix_(prefix) {}

  // Of what is encrypted the whole record is read.
  Status add(const DiskFile& file, uint64_t identity, std::span<const TableEntry> entries, size_t page_tokens, Lock lock) {
    const int64_t head_bytes = record_bytes(page_tokens, 0);
    for (const TableEntry& entry : entries) {
      if (entry.kind != static_cast<uint8_t>(RecordKind::kPage) || bytes_of(entry) < head_bytes) continue;
      BlockBuffer head(lock.cipher ? bytes_of(entry) : head_bytes);
      const auto peek = [&]() -> Result<RecordView> {
        if (lock.cipher) return read_record(file, identity, entry, head, lock);
        DI_CHECK_OK(file.read(int64_t{entry.first_block} * kStoreBlock, head.bytes()));
        return peek_record(identity, uint64_t{entry.first_block} * kStoreBlock, head.bytes());
      };
      const auto record = peek();
      if (!record || record->tokens.size() != page_tokens) continue;
      const Page page{record->key, {record->tokens.begin(), record->tokens.end()}};
      (record->starts ? firsts_ : children_[record->parent]).push_back(page);
    }
    return {};
  }

  // Keys of all pages that lie on the prefix or behind its end.
  std::unordered_set<PageKey, PageKeyHash> keys() const {
    std::unordered_set<PageKey, PageKeyHash> out;
    std::vector<std::pair<PageKey, size_t>> walk;
    const auto visit = [&](const Page& page, size_t at) {
      const auto part = prefix_.subspan(std::min(at, prefix_.size()));
      const size_t size = std::min(part.size(), page.tokens.size());
      if (!std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(size), page.tokens.begin())) return;
      if (out.insert(page.key).second) walk.emplace_back(page.key, at + page.tokens.size());
    };
    for (const Page& page : firsts_) visit(page, 0);
    while (!walk.empty()) {
      const auto [key, at] = walk.back();
      walk.pop_back();
      const auto children = children_.find(key);
      if (children == children_.end()) continue;
      for (const Page& page : children->second) visit(page, at);
    }
    return out;
  }

 private:
  struct Page {
    PageKey key;
    std::vector<TokenId> tokens;
  };
  std::span<const TokenId> prefix_;
  std::vector<Page> firsts_;
  std::unordered_map<PageKey, std::vector<Page>, PageKeyHash> children_;
};

// Moves what stays of one segment into others that live as long.
class Dropper {
 public:
  Dropper(StoreDisk& disk, std::string folder, const StoreSelection& selection, uint64_t writer, const StoreCipher* cipher)
      : disk_(disk), folder_(std::move(folder)), selection_(selection), writer_(writer), cipher_(cipher) {}

  Status find_prefix(const StoreSurvey& survey) {
    PrefixSearch search(selection_.prefix);
    for (const SurveyedSegment& segment : survey.segments) {
      if (!segment.error.empty()) continue;
      if (segment.locked) return needs_key(segment);
      DI_TRY(const auto file, disk_.open(folder_ + "/" + segment.path, false));
      DI_TRY(const SegmentContent content, load_segment(*file, segment.header.identity, kStoreBlock));
      DI_CHECK_OK(search.add(*file, segment.header.identity, content.entries, segment.header.page_tokens,
                             lock_of(segment.header, cipher_)));
    }
    keys_ = search.keys();
    return {};
  }

  Status drop(const SurveyedSegment& segment) {
    if (selection_.retention && segment.name.retention != *selection_.retention) return {};
    SegmentContent content;
    DI_TRY(const auto file, disk_.open(folder_ + "/" + segment.path, false));
    if (segment.error.empty()) {
      DI_TRY(content, load_segment(*file, segment.header.identity, kStoreBlock));
    }
    const auto selected =
        std::count_if(content.entries.begin(), content.entries.end(), [&](const auto& entry) { return goes(entry); });
    if (selected == 0 && (selection_.tenant || !selection_.prefix.empty())) return {};
    const bool keeps_some = static_cast<size_t>(selected) < content.entries.size();
    if (keeps_some && segment.locked) return needs_key(segment);
    std::unique_ptr<DiskLock> lock;
    if (!segment.sealed) {
      auto taken = disk_.lock(folder_ + "/" + segment.name.fingerprint + "/" + lock_name(segment.name.writer));
      if (!taken) return done_.in_use.push_back(segment.path), Status();
      lock = *std::move(taken);
    }
    if (keeps_some) {
      DI_CHECK_OK(move_others(segment, *file, content));
      ++done_.rewritten_segments;
    } else {
      ++done_.removed_segments;
    }
    done_.removed_records += selected;
    return disk_.remove(folder_ + "/" + segment.path);
  }

  const StoreDrop& done() const { return done_; }

 private:
  static Status needs_key(const SurveyedSegment& segment) {
    return Error{ErrorCode::kPermission, fmt::format("{} is encrypted: its key is wanted, --store-key-file FILE", segment.path)};
  }
  bool goes(const TableEntry& entry) const {
    if (selection_.tenant && entry.tenant != *selection_.tenant) return false;
    return selection_.prefix.empty() || keys_.contains(entry.key);
  }

  Status move_others(const SurveyedSegment& segment, const DiskFile& file, const SegmentContent& content) {
    const std::string fingerprint = folder_ + "/" + segment.name.fingerprint;
    DI_TRY(const auto lock, disk_.lock(fingerprint + "/" + lock_name(writer_)));
    SegmentHeader header = segment.header;
    header.writer = writer_, header.sequence = ++sequence_;
    const std::string path = segment_path({segment.name.fingerprint, segment.name.retention, writer_, header.sequence});
    const Lock key = lock_of(segment.header, cipher_);
    DI_TRY(auto writer, SegmentWriter::create(disk_, folder_ + "/" + path, header, key.cipher));
    std::vector<TableEntry> written;
    for (const TableEntry& entry : content.entries) {
      if (goes(entry)) continue;
      BlockBuffer buffer(bytes_of(entry));
      const auto record = read_record(file, segment.header.identity, entry, buffer, key);
      if (!record) continue;  // damaged
      DI_CHECK_OK(writer->append({&*record, 1}, written));
    }
    DI_CHECK_OK(writer->seal());
    return disk_.sync_folder(fingerprint + "/" + retention_class_name(segment.name.retention));
  }

  StoreDisk& disk_;
  const std::string folder_;
  const StoreSelection selection_;
  const uint64_t writer_;
  const StoreCipher* const cipher_;
  uint64_t sequence_ = 0;
  std::unordered_set<PageKey, PageKeyHash> keys_;  // of the prefix
  StoreDrop done_;
};

}  // namespace

Result<StoreSurvey> survey_store(StoreDisk& disk, const std::string& folder, bool read_all, const StoreCipher* cipher) {
  DI_TRY(const auto files, disk.list(folder));
  StoreSurvey out;
  for (const DiskEntry& entry : files) {
    SegmentName name;
    if (parse_segment_path(entry.path, name)) {
      out.segments.push_back(survey_segment(disk, folder, entry, name, read_all, cipher));
    } else {
      ++out.other_files;
      out.other_bytes += entry.bytes;
    }
  }
  return out;
}

Result<StoreDrop> drop_from_store(StoreDisk& disk, const std::string& folder, const StoreSelection& selection,
                                  uint64_t writer_seed, const StoreCipher* cipher) {
  DI_TRY(const StoreSurvey survey, survey_store(disk, folder, false, cipher));
  Dropper dropper(disk, folder, selection, writer_seed, cipher);
  if (!selection.prefix.empty()) DI_CHECK_OK(dropper.find_prefix(survey));
  for (const SurveyedSegment& segment : survey.segments) DI_CHECK_OK(dropper.drop(segment));
  return dropper.done();
}

}  // namespace deepinfer
