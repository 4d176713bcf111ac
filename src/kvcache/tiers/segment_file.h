// kvcache/tiers/segment_file.h - one segment: writing it from start to end, and finding out what one on the disk holds.
//
// Promise: what append() reported as written is whole on its way to the disk and will be found by load_segment(), sealed or
// not, whatever happens to the writing process; a write that failed leaves nothing behind that could be taken for a record.
// Threads: one at a time for a writer; loading is pure apart from reads.
//
//   DI_TRY(auto writer, SegmentWriter::create(disk, path, header));
//   DI_CHECK_OK(writer->append(records, written));      // written: entries of what is acknowledged
//   DI_CHECK_OK(writer->seal());
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcache/tiers/segment_format.h"
#include "kvcache/tiers/store_disk.h"

namespace deepinfer {

class SegmentWriter {
 public:
  // Writes and syncs the header. `header.identity` is set.
  // Without `cipher` records are written as they are; it must outlive the writer.
  static Result<std::unique_ptr<SegmentWriter>> create(StoreDisk& disk, const std::string& path, SegmentHeader& header,
                                                       const StoreCipher* cipher = nullptr);
  // Goes on behind the last sound record of a segment whose writer is dead, only to seal it.
  static std::unique_ptr<SegmentWriter> resume(std::unique_ptr<DiskFile> file, uint64_t identity, int64_t end,
                                               std::vector<TableEntry> entries);

  // Appends to `written` what was written; after an error nothing of this call counts.
  Status append(std::span<const RecordView> records, std::vector<TableEntry>& written);
  // Table and footer behind the records, everything synced.
  Status seal();

  // Of the file if it is sealed behind `records` more of `bytes`.
  int64_t sealed_bytes(size_t records, int64_t bytes) const {
    return end_ + bytes + table_bytes(entries_.size() + records) + kStoreBlock;
  }
  int64_t end() const { return end_; }

 private:
  SegmentWriter(std::unique_ptr<DiskFile> file, uint64_t identity) : file_(std::move(file)), identity_(identity) {}
  Status begin_run(std::span<const RecordView> records, int64_t bytes);

  std::unique_ptr<DiskFile> file_;
  uint64_t identity_;
  const StoreCipher* cipher_ = nullptr;
  int64_t end_ = kStoreBlock;
  std::vector<TableEntry> entries_;
  std::optional<BlockBuffer> buffer_;  // of records without an image: fresh memory for each write costs half of its time
};

struct SegmentContent {
  std::vector<TableEntry> entries;
  int64_t end = kStoreBlock;  // of the last sound record
  bool sealed = false;
  int64_t damaged = 0;  // places between sound records that are no records
};

// kNotFound, kCorrupt, kUnsupported: as the header is.
Result<SegmentHeader> load_header(const DiskFile& file);
// By its table; kCorrupt when it is not sealed.
Result<SegmentContent> load_sealed(const DiskFile& file, uint64_t identity);
// What lies at or behind `from`, the end of an earlier look or kStoreBlock.
Result<SegmentContent> load_segment(const DiskFile& file, uint64_t identity, int64_t from);

}  // namespace deepinfer
