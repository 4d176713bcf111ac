#include "base/file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace deepinfer {
namespace {

Error system_error(std::string_view what, const std::string& path) {
  const int code = errno;
  std::string message = fmt::format("cannot {} {}: {}", what, path, std::strerror(code));
  if (code == ENOENT || code == ENOTDIR) return not_found(std::move(message));
  if (code == EACCES || code == EPERM) return {ErrorCode::kPermission, std::move(message)};
  if (code == ENOSPC || code == EDQUOT) return exhausted(std::move(message));
  return io_error(std::move(message));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error("read", path);
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + " is not a regular file");
  MappedFile out;
  out.path_ = path;
  out.size_ = static_cast<size_t>(info.st_size);
  if (out.size_ == 0) return out;
  void* data = ::mmap(nullptr, out.size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return system_error("map", path);
  out.data_ = static_cast<const uint8_t*>(data);
  out.fd_ = file.release();
  return out;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (fd_ >= 0) ::close(fd_);
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::prefetch(size_t offset, size_t length) const {
  constexpr size_t kPage = 4096;
  if (offset >= size_) return;
  const size_t begin = offset / kPage * kPage;
  ::madvise(const_cast<uint8_t*>(data_) + begin, std::min(length + offset - begin, size_ - begin), MADV_WILLNEED);
}

Result<std::string> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error("read", path);
  if (S_ISDIR(info.st_mode)) return invalid_argument(path + " is a directory");
  // /dev/zero and /dev/full never end.
  if (S_ISCHR(info.st_mode) && !::isatty(file.get())) return invalid_argument(path + " is a device");
  std::string content;
  content.reserve(static_cast<size_t>(std::max<off_t>(info.st_size, 0)) + 1);
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path);
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
  }
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  FileWriter out;
  out.path_ = path;
  out.temporary_ = fmt::format("{}.{}.tmp", path, ::getpid());
  out.fd_ = ::open(out.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out.fd_ < 0) return system_error("create", out.temporary_);
  return out;
}

FileWriter::FileWriter(FileWriter&& other) noexcept { *this = std::move(other); }

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status FileWriter::append(std::string_view content) {
  if (!write_all(fd_, content)) return system_error("write", path_);
  return {};
}

Status FileWriter::commit() {
  // Some file systems report a full disk only at sync or close.
  const bool synced = ::fsync(fd_) == 0;
  if (!synced) return system_error("write", path_);
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  if (closed && ::rename(temporary_.c_str(), path_.c_str()) == 0) return {};
  Error error = system_error("write", path_);
  ::unlink(temporary_.c_str());
  return error;
}

Status write_file(const std::string& path, std::string_view content) {
  DI_TRY(FileWriter out, FileWriter::create(path));
  DI_CHECK_OK(out.append(content));
  return out.commit();
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::error_code status;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(path, status), end; !status && it != end; it.increment(status)) {
    names.push_back(it->path().filename().string());
  }
  if (status) return io_error(fmt::format("cannot list {}: {}", path, status.message()));
  std::sort(names.begin(), names.end());
  return names;
}

std::string executable_directory() {
  std::error_code status;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", status);
  return status ? "." : path.parent_path().string();
}

std::string library_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&library_directory), &info) == 0 || !info.dli_fname) return "";
  std::error_code error;
  return std::filesystem::canonical(info.dli_fname, error).parent_path().string();
}

std::string join_path(std::string_view folder, std::string_view name) {
  return (std::filesystem::path(folder) / std::filesystem::path(name)).string();
}

}  // namespace deepinfer
