#include "cpu/expert_reader.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace deepinfer::cpu {
namespace {

constexpr int64_t kBlock = DiskReads::kBlock;
constexpr int64_t kMostStages = DiskReads::kMost / 2;
// Reads under way, two a weight. The disk shares itself among all that it has: with a layer's eighteen weights at once all came
// at the end, and nothing was multiplied before. Four keep it as busy (6 MB each).
constexpr int32_t kMostUnderWay = 8;

int64_t data_bytes(const Matrix& w) { return int64_t{w.n} * w.k / 2; }
int64_t scale_bytes(const Matrix& w) { return int64_t{w.n} * w.k / 32; }
int64_t block_floor(int64_t bytes) { return bytes / kBlock * kBlock; }
// With what lies in the same blocks before and behind.
int64_t room_of(int64_t bytes) { return block_floor(bytes + 2 * kBlock - 1) + kBlock; }

}  // namespace

int64_t ExpertReader::stage_bytes(const Matrix& w) { return room_of(data_bytes(w)) + room_of(scale_bytes(w)); }

Result<std::unique_ptr<ExpertReader>> ExpertReader::open(DiskReads& disk, std::span<Matrix* const> weights,
                                                         std::span<const MappedFile* const> files, int64_t bytes) {
  std::unique_ptr<ExpertReader> reader(new ExpertReader(disk));
  for (const MappedFile* file : files) {
    if (file->bytes().empty()) continue;
    DI_TRY(const int32_t number, disk.add(*file));
    reader->files_.push_back({file->bytes(), number, file});
  }
  std::sort(reader->files_.begin(), reader->files_.end(),
            [](const File& a, const File& b) { return a.mapped.data() < b.mapped.data(); });
  size_t places = 0;
  bool any = false;
  for (const Matrix* w : weights) {
    if (w->place < 0) continue;
    places = std::max(places, static_cast<size_t>(w->place) + 1);
    reader->stage_bytes_ = std::max(reader->stage_bytes_, stage_bytes(*w));
    any |= reader->file_of(w->data) != nullptr;
  }
  if (!any) return std::unique_ptr<ExpertReader>();
  const auto stages = static_cast<size_t>(std::clamp(bytes / reader->stage_bytes_, kFewestStages, kMostStages));
  reader->room_bytes_ = static_cast<int64_t>(stages) * reader->stage_bytes_;
  void* room =
      ::mmap(nullptr, static_cast<size_t>(reader->room_bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    return exhausted(fmt::format("cpu: no memory for {} bytes of experts on their way", reader->room_bytes_));
  reader->room_ = static_cast<uint8_t*>(room);
  ::madvise(room, static_cast<size_t>(reader->room_bytes_), MADV_HUGEPAGE);
  std::memset(room, 0, static_cast<size_t>(reader->room_bytes_));  // no step meets memory for the first time
  reader->stages_.resize(stages);
  reader->states_.resize(places, kNone);
  reader->queue_.resize(places);
  reader->batch_.reserve(DiskReads::kMost);
  return reader;
}

ExpertReader::~ExpertReader() {
  while (under_way_ > 0 && take_arrival(true)) continue;
  for (const File& file : files_) disk_.remove(file.number);
  if (room_) ::munmap(room_, static_cast<size_t>(room_bytes_));
}

const ExpertReader::File* ExpertReader::file_of(const void* mapped) const {
  const auto* at = static_cast<const uint8_t*>(mapped);
  const auto behind =
      std::upper_bound(files_.begin(), files_.end(), at, [](const uint8_t* a, const File& b) { return a < b.mapped.data(); });
  if (behind == files_.begin()) return nullptr;
  const File& file = *(behind - 1);
  return at < file.mapped.data() + file.mapped.size() ? &file : nullptr;
}

void ExpertReader::want(const Matrix& w) {
  int16_t& now = state(w.place);
  if (now != kNone) return;
  const File *data = file_of(w.data), *scales = file_of(w.scales);
  const bool stays =
      !data || !scales ||
      (disk_.in_page_cache(scales->number, w.scales, scale_bytes(w)) && disk_.in_page_cache(data->number, w.data, data_bytes(w)));
  now = stays ? kFromMapping : kQueued;
  if (!stays) queue_[queued_++ % queue_.size()] = w;
}

Arrival ExpertReader::look(Matrix& w) const {
  const int16_t now = states_[static_cast<size_t>(w.place)];
  if (now == kFromMapping) return Arrival::kMapped;
  if (now < 0) return Arrival::kComing;
  const Stage& stage = stages_[static_cast<size_t>(now)];
  if (stage.failed) return Arrival::kFailed;
  if (stage.under_way > 0) return Arrival::kComing;
  w.data = stage.parts[0].here, w.scales = stage.parts[1].here;
  return Arrival::kHere;
}

void ExpertReader::let_go(int32_t place) {
  int16_t& now = state(place);
  if (now >= 0) stages_[static_cast<size_t>(now)].place = -1;
  now = kNone;
}

void ExpertReader::advance() {
  while (under_way_ > 0 && take_arrival(false)) continue;
  start_queued();
}

void ExpertReader::wait() {
  start_queued();
  if (under_way_ == 0) {
    // Every stage holds what its product has not come to ask for: the oldest may never.
    Stage& oldest =
        *std::min_element(stages_.begin(), stages_.end(), [](const Stage& a, const Stage& b) { return a.age < b.age; });
    let_go(oldest.place);
    start_queued();
  }
  DI_CHECK(take_arrival(true));
  advance();
}

// One read that is over, or over in part. False: none is.
bool ExpertReader::take_arrival(bool wait) {
  const std::optional<DiskReads::Done> done = disk_.take(wait);
  if (!done) return false;
  Stage& stage = stages_[done->tag / 2];
  Part& part = stage.parts[done->tag % 2];
  --under_way_, --stage.under_way;
  const int64_t had = part.done;
  if (done->bytes > 0) part.done += done->bytes;
  if (part.done >= part.skip + part.bytes) return true;
  // The rest of a read that was cut short begins where a block does.
  part.done = block_floor(part.done);
  const bool again = part.done > had || done->bytes == -EINTR;
  if (!again) {
    stage.failed = true;
    const File* file = file_of(part.mapped);
    failure_ = {file->file, part.read.offset + part.done, std::min<int64_t>(done->bytes, 0)};
    return true;
  }
  DiskReads::Read rest = part.read;
  rest.offset += part.done, rest.to += part.done, rest.bytes -= part.done;
  ++under_way_, ++stage.under_way;
  disk_.start({&rest, 1});
  return true;
}

void ExpertReader::start_queued() {
  batch_.clear();
  for (size_t i = 0; i < stages_.size() && started_ < queued_ && under_way_ < kMostUnderWay; ++i) {
    if (stages_[i].place < 0 && stages_[i].under_way == 0) begin(queue_[started_++ % queue_.size()], i);
  }
  if (!batch_.empty()) disk_.start(batch_);
}

void ExpertReader::begin(const Matrix& w, size_t number) {
  Stage& stage = stages_[number];
  stage.place = w.place, stage.failed = false, stage.age = ++ages_, stage.under_way = 2;
  under_way_ += 2;
  state(w.place) = static_cast<int16_t>(number);
  uint8_t* to = room_ + static_cast<int64_t>(number) * stage_bytes_;
  const auto set = [&](size_t index, const void* mapped, int64_t bytes) {
    Part& part = stage.parts[index];
    const File& file = *file_of(mapped);
    const int64_t at = static_cast<const uint8_t*>(mapped) - file.mapped.data(), offset = block_floor(at);
    part.mapped = static_cast<const uint8_t*>(mapped);
    part.bytes = bytes, part.skip = at - offset, part.done = 0;
    part.here = to + part.skip;
    part.read = {file.number, offset, block_floor(part.skip + bytes + kBlock - 1), to, tag_of(number, index)};
    to += room_of(bytes);
    batch_.push_back(part.read);
  };
  set(0, w.data, data_bytes(w));
  set(1, w.scales, scale_bytes(w));
}

Error ExpertReader::failure() const {
  const std::string what = fmt::format("{}: cannot read experts at byte {}", failure_.file->path(), failure_.from);
  if (failure_.code == 0) return corrupt(what + ": the file ends there, it was longer when it was opened");
  return io_error(fmt::format("{}: {}", what, std::strerror(static_cast<int>(-failure_.code))));
}

}  // namespace deepinfer::cpu
