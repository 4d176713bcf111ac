#include "host/ring_reads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer {
namespace {

constexpr uint64_t kNobody = ~uint64_t{0};

// Since Linux 5.2 mincore() calls every page of a file present unless the caller owns the file or may write it.
bool tells_of_pages(int descriptor, const std::string& self) {
  struct stat status = {};
  const bool owned = ::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid();
  return owned || ::faccessat(AT_FDCWD, self.c_str(), W_OK, AT_EACCESS) == 0;
}

// Buffers are not registered: it saved 2 to 4 ms of processor time a gigabyte of 7, for memory that counts as locked.
class RingReads final : public DiskReads {
 public:
  bool open() {
    opened_ = io_uring_queue_init(2 * kMost, &ring_, 0) == 0;
    return opened_ && works();
  }
  ~RingReads() override {
    if (!opened_) return;
    while (take(true)) continue;
    io_uring_queue_exit(&ring_);
    for (const File& file : files_) {
      if (file.descriptor >= 0) ::close(file.descriptor);
    }
  }

  Result<int32_t> add(const MappedFile& file) override {
    const std::string self = fmt::format("/proc/self/fd/{}", file.descriptor());
    int opened = ::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    alignas(kBlock) std::array<char, kBlock> block;
    if (opened >= 0 && ::pread(opened, block.data(), block.size(), 0) < 0) ::close(opened), opened = -1;
    if (opened < 0) opened = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);  // a file system that wants its cache, no /proc
    if (opened < 0) return io_error(fmt::format("cannot open {} again: {}", file.path(), std::strerror(errno)));
    const auto free = std::find_if(files_.begin(), files_.end(), [](const File& one) { return one.descriptor < 0; });
    const auto number = static_cast<int32_t>(free - files_.begin());
    if (free == files_.end()) files_.emplace_back();
    files_[static_cast<size_t>(number)] = {opened, tells_of_pages(file.descriptor(), self), file.bytes().data()};
    return number;
  }
  void remove(int32_t file) override { ::close(std::exchange(files_[static_cast<size_t>(file)].descriptor, -1)); }

  void start(std::span<const Read> reads) override {
    DI_CHECK(under_way_ + reads.size() <= kMost);
    std::array<io_uring_sqe*, kMost> entries;
    size_t entered = 0;
    for (; entered < reads.size(); ++entered) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (!entry) break;  // full of entries that the system does not take
      const Read& read = reads[entered];
      io_uring_prep_read(entry, descriptor(read), read.to, static_cast<unsigned>(read.bytes), static_cast<uint64_t>(read.offset));
      io_uring_sqe_set_data64(entry, read.tag);
      entries[entered] = entry;
    }
    under_way_ += reads.size();
    while (io_uring_submit(&ring_) == -EINTR) continue;
    // What the system did not take is read at once, and its entry goes with the next ones, as nothing.
    for (size_t i = entered - std::min<size_t>(io_uring_sq_ready(&ring_), entered); i < reads.size(); ++i) {
      const Read& read = reads[i];
      if (i < entered) {
        io_uring_prep_nop(entries[i]);
        io_uring_sqe_set_data64(entries[i], kNobody);
      }
      const ssize_t got = ::pread(descriptor(read), read.to, static_cast<size_t>(read.bytes), static_cast<off_t>(read.offset));
      refused_[num_refused_++] = {read.tag, got < 0 ? -errno : got};
    }
  }

  std::optional<Done> take(bool wait) override {
    if (num_refused_ > 0) return --under_way_, refused_[--num_refused_];
    while (under_way_ > 0) {
      io_uring_cqe* entry = nullptr;
      const int got = wait ? io_uring_wait_cqe(&ring_, &entry) : io_uring_peek_cqe(&ring_, &entry);
      if (got == -EINTR && wait) continue;
      if (got != 0) return {};
      const Done done = {io_uring_cqe_get_data64(entry), entry->res};
      io_uring_cqe_seen(&ring_, entry);
      if (done.tag == kNobody) continue;
      --under_way_;
      return done;
    }
    return {};
  }

  bool in_page_cache(int32_t file, const void* mapped, int64_t bytes) const override {
    const File& in = files_[static_cast<size_t>(file)];
    struct stat status = {};
    if (!in.tells_of_pages || ::fstat(in.descriptor, &status) != 0) return false;
    if (static_cast<const uint8_t*>(mapped) + bytes > in.mapped + status.st_size) return false;  // cut: its last page has zeros
    constexpr int64_t kPages = 2048;
    std::array<unsigned char, kPages> there;
    const auto begin = reinterpret_cast<uintptr_t>(mapped) / kBlock * kBlock, end = reinterpret_cast<uintptr_t>(mapped) + bytes;
    for (uintptr_t at = begin; at < end; at += kPages * kBlock) {
      const size_t size = std::min<size_t>(end - at, kPages * kBlock);
      if (::mincore(reinterpret_cast<void*>(at), size, there.data()) != 0) return false;
      const auto pages = there.begin() + static_cast<int64_t>((size + kBlock - 1) / kBlock);
      if (std::find_if(there.begin(), pages, [](unsigned char page) { return !(page & 1); }) != pages) return false;
    }
    return true;
  }

 private:
  struct File {
    int descriptor = -1;  // -1 = removed
    bool tells_of_pages = false;
    const uint8_t* mapped = nullptr;
  };
  // A container may allow to make a ring and not to use it.
  bool works() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    io_uring_cqe* entry = nullptr;
    if (io_uring_submit(&ring_) != 1 || io_uring_wait_cqe(&ring_, &entry) != 0) return false;
    io_uring_cqe_seen(&ring_, entry);
    return true;
  }
  int descriptor(const Read& read) const { return files_[static_cast<size_t>(read.file)].descriptor; }

  io_uring ring_{};
  bool opened_ = false;
  size_t under_way_ = 0, num_refused_ = 0;
  std::array<Done, kMost> refused_;
  std::vector<File> files_;
};

}  // namespace

std::unique_ptr<DiskReads> open_ring_reads() {
  auto reads = std::make_unique<RingReads>();
  return reads->open() ? std::unique_ptr<DiskReads>(std::move(reads)) : nullptr;
}

}  // namespace deepinfer
