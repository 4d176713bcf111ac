#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "kvcache/tiers/store_disk.h"
#include "kvcache/tiers/write_queue.h"

namespace deepinfer {
namespace {

Error disk_error(const char* what, const std::string& path, int code) {
  std::string message = fmt::format("cannot {} {}: {}", what, path, std::strerror(code));
  if (code == ENOENT || code == ENOTDIR || code == ESTALE) return not_found(std::move(message));
  if (code == EACCES || code == EPERM || code == EROFS) return {ErrorCode::kPermission, std::move(message)};
  if (code == ENOSPC || code == EDQUOT) return exhausted(std::move(message));
  if (code == EWOULDBLOCK) return {ErrorCode::kUnavailable, std::move(message)};
  return io_error(std::move(message));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class PosixFile final : public DiskFile {
 public:
  PosixFile(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Status read(int64_t offset, std::span<uint8_t> out) const override {
    while (!out.empty()) {
      const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return disk_error("read", path_, errno);
      if (got == 0) return corrupt(fmt::format("{} ends before byte {}", path_, offset + static_cast<int64_t>(out.size())));
      out = out.subspan(static_cast<size_t>(got));
      offset += got;
    }
    return {};
  }

  Status write(int64_t offset, std::span<const uint8_t> bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return disk_error("write", path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(put));
      offset += put;
    }
    return {};
  }

  Status write_parts(int64_t offset, std::span<const std::span<const uint8_t>> parts) override {
    std::array<iovec, 64> list;
    while (!parts.empty()) {
      const auto now = parts.first(std::min(parts.size(), list.size()));
      parts = parts.subspan(now.size());
      int64_t bytes = 0;
      for (size_t i = 0; i < now.size(); ++i) {
        list[i] = {const_cast<uint8_t*>(now[i].data()), now[i].size()};
        bytes += static_cast<int64_t>(now[i].size());
      }
      const ssize_t put = ::pwritev(fd_.get(), list.data(), static_cast<int>(now.size()), offset);
      // Interrupted, or in part: one after another, which writes what was written once more, or says what is wrong.
      if (put != bytes) DI_CHECK_OK(DiskFile::write_parts(offset, now));
      offset += bytes;
    }
    return {};
  }

  Status start(int64_t offset, std::span<const std::span<const uint8_t>> parts) override {
    if (!std::exchange(asked_for_queue_, true)) queue_ = WriteQueue::open();
    if (!queue_ || parts.size() > WriteQueue::kMostParts) return write_parts(offset, parts);
    if (queue_->full()) DI_CHECK_OK(take());
    queue_->start(fd_.get(), offset, parts);
    return {};
  }

  Status finish() override {
    Status out;
    while (queue_ && queue_->under_way() > 0) {
      Status taken = take();
      if (!taken && out) out = std::move(taken);
    }
    return out;
  }

  Status truncate(int64_t bytes) override {
    if (::ftruncate(fd_.get(), bytes) != 0) return disk_error("cut", path_, errno);
    return {};
  }
  Status sync() override {
    if (::fsync(fd_.get()) != 0) return disk_error("sync", path_, errno);
    return {};
  }
  Result<int64_t> size() const override {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return disk_error("read", path_, errno);
    return int64_t{info.st_size};
  }

 private:
  // Refused or in part: once more and one after another, which says what is wrong.
  Status take() {
    const WriteQueue::Done done = queue_->take();
    if (done.whole) return {};
    int64_t offset = done.offset;
    for (const iovec& part : done.parts) {
      DI_CHECK_OK(write(offset, {static_cast<const uint8_t*>(part.iov_base), part.iov_len}));
      offset += static_cast<int64_t>(part.iov_len);
    }
    return {};
  }

  std::string path_;
  Descriptor fd_;
  bool asked_for_queue_ = false;
  std::unique_ptr<WriteQueue> queue_;  // goes before the descriptor
};

class PosixLock final : public DiskLock {
 public:
  PosixLock(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  // Unlinked while still held: whoever opened it before sees another file, or none, under its name and takes no lock.
  ~PosixLock() override { ::unlink(path_.c_str()); }

 private:
  std::string path_;
  Descriptor fd_;
};

}  // namespace

Result<std::vector<DiskEntry>> PosixDisk::list(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code status;
  std::vector<DiskEntry> out;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, status), end;
  for (; !status && it != end; it.increment(status)) {
    struct stat info {};
    if (::lstat(it->path().c_str(), &info) != 0 || S_ISDIR(info.st_mode)) continue;
    out.push_back({it->path().lexically_relative(folder).string(), int64_t{info.st_size}});
  }
  if (status) return disk_error("list", folder, status.value());
  std::sort(out.begin(), out.end(), [](const DiskEntry& a, const DiskEntry& b) { return a.path < b.path; });
  return out;
}

Status PosixDisk::make_folders(const std::string& path) {
  std::error_code status;
  std::filesystem::create_directories(path, status);
  if (status) return disk_error("create", path, status.value());
  return {};
}

Result<std::unique_ptr<DiskFile>> PosixDisk::open_with(const std::string& path, int flags, const char* what) {
  flags |= O_CLOEXEC | O_NONBLOCK;  // a pipe of that name must not hold us up
  // Prompts of users: for their owner alone.
  int fd = direct_ ? ::open(path.c_str(), flags | O_DIRECT, 0600) : -1;
  // A file system without O_DIRECT says EINVAL, some of them after they created the file.
  if (fd < 0 && (!direct_ || errno == EINVAL)) fd = ::open(path.c_str(), direct_ ? flags & ~O_EXCL : flags, 0600);
  if (fd < 0) return disk_error(what, path, errno);
  Descriptor file(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return disk_error(what, path, errno);
  if (!S_ISREG(info.st_mode)) return corrupt(fmt::format("{} is no ordinary file", path));
  return std::unique_ptr<DiskFile>(std::make_unique<PosixFile>(path, std::move(file)));
}

Result<std::unique_ptr<DiskFile>> PosixDisk::create(const std::string& path) {
  return open_with(path, O_RDWR | O_CREAT | O_EXCL, "create");
}

Result<std::unique_ptr<DiskFile>> PosixDisk::open(const std::string& path, bool writable) {
  return open_with(path, writable ? O_RDWR : O_RDONLY, "open");
}

Status PosixDisk::remove(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return disk_error("remove", path, errno);
  return {};
}

Status PosixDisk::sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return disk_error("open", path, errno);
  // Some network file systems refuse to sync a folder and write it through instead.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) return disk_error("sync", path, errno);
  return {};
}

Result<std::unique_ptr<DiskLock>> PosixDisk::lock(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) return disk_error("open", path, errno);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return disk_error("lock", path, errno);
  struct stat held {
  }, named{};
  const bool same = ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino;
  if (!same) return disk_error("lock", path, EWOULDBLOCK);
  return std::unique_ptr<DiskLock>(std::make_unique<PosixLock>(path, std::move(file)));
}

}  // namespace deepinfer
