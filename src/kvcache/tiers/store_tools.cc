#include "kvcache/tiers/store_tools.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kvcache/tiers/segment_file.h"

namespace deepinfer {
namespace {

int64_t bytes_of(const TableEntry& entry) { return int64_t{entry.blocks} * kStoreBlock; }

Result<RecordView> read_record(const DiskFile& file, uint64_t identity, const TableEntry& entry, BlockBuffer& buffer) {
  const int64_t offset = int64_t{entry.first_block} * kStoreBlock;
  DI_CHECK_OK(file.read(offset, buffer.bytes()));
  return decode_record(identity, static_cast<uint64_t>(offset), buffer.bytes());
}

void survey_records(const DiskFile& file, const SegmentContent& content, bool read_all, SurveyedSegment& out) {
  out.sealed = content.sealed;
  out.damaged = content.damaged;
  for (const TableEntry& entry : content.entries) {
    // Without a table the records were read to be found.
    if (read_all && content.sealed) {
      BlockBuffer buffer(bytes_of(entry));
      const auto record = read_record(file, out.header.identity, entry, buffer);
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
                               bool read_all) {
  SurveyedSegment out{entry.path, entry.bytes, name};
  const auto open = [&]() -> Status {
    DI_TRY(const auto file, disk.open(folder + "/" + entry.path, false));
    DI_TRY(out.header, load_header(*file));
    DI_TRY(const SegmentContent content, load_segment(*file, out.header.identity, kStoreBlock));
    survey_records(*file, content, read_all, out);
    return {};
  };
  if (const Status status = open(); !status) out.error = status.error().message;
  return out;
}

// Moves what stays of one segment into others that live as long.
class Dropper {
 public:
  Dropper(StoreDisk& disk, std::string folder, const StoreSelection& selection, uint64_t writer)
      : disk_(disk), folder_(std::move(folder)), selection_(selection), writer_(writer) {}

  Status drop(const SurveyedSegment& segment) {
    int64_t selected = 0, all = 0;
    for (const auto& [tenant, share] : segment.tenants) {
      all += share.records;
      if (!selection_.tenant || tenant == *selection_.tenant) selected += share.records;
    }
    if (selection_.retention && segment.name.retention != *selection_.retention) return {};
    if (selection_.tenant && selected == 0) return {};
    const bool whole = selected == all;
    std::unique_ptr<DiskLock> lock;
    if (!segment.sealed) {
      auto taken = disk_.lock(folder_ + "/" + segment.name.fingerprint + "/" + lock_name(segment.name.writer));
      if (!taken) return done_.in_use.push_back(segment.path), Status();
      lock = *std::move(taken);
    }
    if (!whole) {
      DI_CHECK_OK(move_others(segment));
      ++done_.rewritten_segments;
    } else {
      ++done_.removed_segments;
    }
    done_.removed_records += selected;
    return disk_.remove(folder_ + "/" + segment.path);
  }

  const StoreDrop& done() const { return done_; }

 private:
  Status move_others(const SurveyedSegment& segment) {
    const std::string fingerprint = folder_ + "/" + segment.name.fingerprint;
    DI_TRY(const auto lock, disk_.lock(fingerprint + "/" + lock_name(writer_)));
    DI_TRY(const auto file, disk_.open(folder_ + "/" + segment.path, false));
    DI_TRY(const SegmentContent content, load_segment(*file, segment.header.identity, kStoreBlock));
    SegmentHeader header = segment.header;
    header.writer = writer_, header.sequence = ++sequence_;
    const std::string path = segment_path({segment.name.fingerprint, segment.name.retention, writer_, header.sequence});
    DI_TRY(auto writer, SegmentWriter::create(disk_, folder_ + "/" + path, header));
    std::vector<TableEntry> written;
    for (const TableEntry& entry : content.entries) {
      if (entry.tenant == *selection_.tenant) continue;
      BlockBuffer buffer(bytes_of(entry));
      const auto record = read_record(*file, segment.header.identity, entry, buffer);
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
  uint64_t sequence_ = 0;
  StoreDrop done_;
};

}  // namespace

Result<StoreSurvey> survey_store(StoreDisk& disk, const std::string& folder, bool read_all) {
  DI_TRY(const auto files, disk.list(folder));
  StoreSurvey out;
  for (const DiskEntry& entry : files) {
    SegmentName name;
    if (parse_segment_path(entry.path, name)) {
      out.segments.push_back(survey_segment(disk, folder, entry, name, read_all));
    } else {
      ++out.other_files;
      out.other_bytes += entry.bytes;
    }
  }
  return out;
}

Result<StoreDrop> drop_from_store(StoreDisk& disk, const std::string& folder, const StoreSelection& selection,
                                  uint64_t writer_seed) {
  DI_TRY(const StoreSurvey survey, survey_store(disk, folder, false));
  Dropper dropper(disk, folder, selection, writer_seed);
  for (const SurveyedSegment& segment : survey.segments) DI_CHECK_OK(dropper.drop(segment));
  return dropper.done();
}

}  // namespace deepinfer
