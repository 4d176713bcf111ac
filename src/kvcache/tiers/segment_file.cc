#include "kvcache/tiers/segment_file.h"

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

// Bytes of one write: large enough for a disk's full speed, small enough that several are under way at once.
constexpr int64_t kWriteBytes = 1 << 20;
constexpr int64_t kScanBytes = 1 << 20;

// Blocks of a file by offset, read ahead: a scan asks for them in order.
class ScanWindow {
 public:
  ScanWindow(const DiskFile& file, int64_t file_bytes) : file_(file), file_bytes_(file_bytes), buffer_(kScanBytes) {}

  // REQUIRES: [offset, offset + bytes) lies within the file.
  Result<std::span<const uint8_t>> at(int64_t offset, int64_t bytes) {
    if (offset < begin_ || offset + bytes > begin_ + filled_) {
      filled_ = 0;
      if (bytes > static_cast<int64_t>(buffer_.bytes().size())) buffer_ = BlockBuffer(bytes);
      const int64_t most = std::min(static_cast<int64_t>(buffer_.bytes().size()), file_bytes_ - offset);
      DI_CHECK_OK(file_.read(offset, buffer_.first(most)));
      begin_ = offset;
      filled_ = most;
    }
    return std::span<const uint8_t>(buffer_.bytes()).subspan(static_cast<size_t>(offset - begin_), static_cast<size_t>(bytes));
  }

 private:
  const DiskFile& file_;
  const int64_t file_bytes_;
  BlockBuffer buffer_;
  int64_t begin_ = 0, filled_ = 0;
};

Status scan_records(const DiskFile& file, int64_t file_bytes, uint64_t identity, int64_t from, SegmentContent& out) {
  ScanWindow window(file, file_bytes);
  bool in_damage = false;
  for (int64_t offset = from; offset < file_bytes;) {
    const auto place = static_cast<uint64_t>(offset);
    DI_TRY(const auto block, window.at(offset, kStoreBlock));
    const int64_t bytes = claimed_record_bytes(identity, place, block);
    if (bytes > 0 && offset + bytes <= file_bytes) {
      DI_TRY(const auto whole, window.at(offset, bytes));
      if (const auto entry = check_record(identity, place, whole)) {
        out.entries.push_back(*entry);
        out.end = offset += bytes;
        // What lies behind the last sound record is what a death left, not damage.
        if (std::exchange(in_damage, false)) ++out.damaged;
        continue;
      }
    }
    in_damage = true;
    offset += kStoreBlock;
  }
  return {};
}

Status load_table(const DiskFile& file, int64_t file_bytes, uint64_t identity, SegmentContent& out) {
  BlockBuffer last(kStoreBlock);
  DI_CHECK_OK(file.read(file_bytes - kStoreBlock, last.bytes()));
  DI_TRY(const SegmentFooter footer, decode_footer(identity, static_cast<uint64_t>(file_bytes), last.bytes()));
  BlockBuffer table(std::max(table_bytes(footer.entries), kStoreBlock));
  const auto bytes = table.first(table_bytes(footer.entries));
  DI_CHECK_OK(file.read(static_cast<int64_t>(footer.table_offset), bytes));
  DI_TRY(out.entries, decode_table(footer, bytes));
  out.end = static_cast<int64_t>(footer.table_offset);
  out.sealed = true;
  return {};
}

}  // namespace

Result<std::unique_ptr<SegmentWriter>> SegmentWriter::create(StoreDisk& disk, const std::string& path, SegmentHeader& header,
                                                             const StoreCipher* cipher) {
  header.key_mark = cipher ? cipher->mark() : 0;
  BlockBuffer block(kStoreBlock);
  encode_header(header, block.bytes());
  DI_TRY(auto file, disk.create(path));
  DI_CHECK_OK(file->write(0, block.bytes()));
  DI_CHECK_OK(file->sync());
  std::unique_ptr<SegmentWriter> out(new SegmentWriter(std::move(file), header.identity));
  out->cipher_ = cipher;
  return out;
}

std::unique_ptr<SegmentWriter> SegmentWriter::resume(std::unique_ptr<DiskFile> file, uint64_t identity, int64_t end,
                                                     std::vector<TableEntry> entries) {
  std::unique_ptr<SegmentWriter> out(new SegmentWriter(std::move(file), identity));
  out->end_ = end;
  out->entries_ = std::move(entries);
  return out;
}

// In runs: while the disk writes one the checksums of the next are computed. What was begun has ended when this returns.
Status SegmentWriter::append(std::span<const RecordView> records, std::vector<TableEntry>& written) {
  const size_t before = entries_.size();
  const int64_t start = end_;
  Status begun;
  while (begun && !records.empty()) {
    int64_t bytes = 0;
    size_t count = 0;
    for (; count < records.size(); ++count) {
      const int64_t more = record_bytes(records[count].tokens.size(), records[count].payload.size());
      if (count > 0 && bytes + more > kWriteBytes) break;
      bytes += more;
    }
    begun = begin_run(records.first(count), bytes);
    records = records.subspan(count);
  }
  Status done = file_->finish();
  if (begun && done) {
    written.insert(written.end(), entries_.begin() + static_cast<ptrdiff_t>(before), entries_.end());
    return {};
  }
  entries_.resize(before);
  end_ = start;
  return begun ? done : begun;
}

// One write. Records with an image are written from there, neighbours among them as one part.
Status SegmentWriter::begin_run(std::span<const RecordView> records, int64_t bytes) {
  const bool copies = std::any_of(records.begin(), records.end(), [](const RecordView& record) { return record.image.empty(); });
  if (copies) {
    DI_CHECK_OK(file_->finish());  // the run before may lie in the buffer
    const int64_t room = buffer_ ? static_cast<int64_t>(buffer_->bytes().size()) : 0;
    if (bytes > room) buffer_.emplace(std::max(bytes, kWriteBytes));
  }
  std::vector<std::span<const uint8_t>> parts;
  const int64_t begin = end_;
  for (const RecordView& record : records) {
    const int64_t size = record_bytes(record.tokens.size(), record.payload.size());
    const auto copy = [&] { return buffer_->bytes().subspan(static_cast<size_t>(end_ - begin), static_cast<size_t>(size)); };
    const std::span<uint8_t> out = record.image.empty() ? copy() : record.image;
    const uint64_t start = record.starts ? start_mark(record.tokens) : 0;  // before they are encrypted where they lie
    encode_record(identity_, static_cast<uint64_t>(end_), record, out);
    if (cipher_) DI_CHECK_OK(encrypt_record(*cipher_, out));
    if (!parts.empty() && parts.back().data() + parts.back().size() == out.data()) {
      parts.back() = {parts.back().data(), parts.back().size() + out.size()};
    } else {
      parts.push_back(out);
    }
    const auto first = static_cast<uint32_t>(end_ / kStoreBlock), blocks = static_cast<uint32_t>(size / kStoreBlock);
    entries_.push_back({record.key, record.tenant, first, blocks, static_cast<uint8_t>(record.kind), flags_of(record), start});
    end_ += size;
  }
  return file_->start(begin, parts);
}

Status SegmentWriter::seal() {
  // What a failed write left behind the last record goes first: the footer must be the file's last block.
  DI_CHECK_OK(file_->truncate(end_));
  BlockBuffer buffer(table_bytes(entries_.size()) + kStoreBlock);
  encode_table(identity_, static_cast<uint64_t>(end_), entries_, buffer.bytes());
  DI_CHECK_OK(file_->write(end_, buffer.bytes()));
  return file_->sync();
}

Result<SegmentHeader> load_header(const DiskFile& file) {
  BlockBuffer block(kStoreBlock);
  DI_CHECK_OK(file.read(0, block.bytes()));
  return decode_header(block.bytes());
}

Result<SegmentContent> load_sealed(const DiskFile& file, uint64_t identity) {
  DI_TRY(const int64_t size, file.size());
  if (size % kStoreBlock != 0 || size < 2 * kStoreBlock) return corrupt("a segment without a footer");
  SegmentContent out;
  DI_CHECK_OK(load_table(file, size, identity, out));
  return out;
}

Result<SegmentContent> load_segment(const DiskFile& file, uint64_t identity, int64_t from) {
  DI_TRY(const int64_t size, file.size());
  const int64_t file_bytes = size / kStoreBlock * kStoreBlock;
  SegmentContent out;
  out.end = from;
  if (file_bytes <= from) return out;
  const Status table =
      size == file_bytes ? load_table(file, file_bytes, identity, out) : Status(corrupt("half a block at the end"));
  if (table) return out;
  if (table.error().code == ErrorCode::kIo || table.error().code == ErrorCode::kNotFound) return table.error();
  DI_CHECK_OK(scan_records(file, file_bytes, identity, from, out));
  return out;
}

}  // namespace deepinfer
