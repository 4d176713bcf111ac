#include "base/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"

namespace deepinfer {

namespace {

Error failed(const std::string& path, const char* what) {
  return io_error(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

Result<RecordFile> RecordFile::open(const std::string& path, Visit visit) {
  RecordFile out(path);
  out.file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (out.file_ < 0) return failed(path, "write");
  struct stat info {};
  if (fstat(out.file_, &info) != 0) return failed(path, "look at");
  out.is_regular_ = S_ISREG(info.st_mode);
  if (!out.is_regular_) return out;  // nothing to resume
  if (flock(out.file_, LOCK_EX | LOCK_NB) != 0) return io_error(fmt::format("{}: another run is writing it", path));
  DI_TRY(const std::string content, read_file(path));
  DI_CHECK_OK(out.load(content, visit));
  if (static_cast<size_t>(out.size_) < content.size() && ftruncate(out.file_, out.size_) != 0) {
    return failed(path, "remove the cut-off last line");
  }
  return out;
}

RecordFile::~RecordFile() {
  if (file_ >= 0) ::close(file_);
}

Status RecordFile::load(std::string_view content, Visit visit) {
  int64_t number = 0;
  while (static_cast<size_t>(size_) < content.size()) {
    const size_t end = content.find('\n', static_cast<size_t>(size_));
    if (end == std::string_view::npos) return {};  // cut off: open() removes it
    const Result<Json> record = Json::parse(content.substr(static_cast<size_t>(size_), end - static_cast<size_t>(size_)));
    DI_CHECK_OK(visit(record ? *record : Json(), ++number));
    size_ = static_cast<int64_t>(end) + 1;
  }
  return {};
}

Status RecordFile::append(const Json& record) {
  const std::string line = record.dump() + '\n';
  size_t done = 0;
  while (done < line.size()) {
    const char* rest = line.data() + done;
    const ssize_t wrote = is_regular_ ? pwrite(file_, rest, line.size() - done, size_ + static_cast<int64_t>(done))
                                      : write(file_, rest, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const Error error = failed(path_, "write");
      if (done > 0 && is_regular_ && ftruncate(file_, size_) != 0)
        return io_error(error.message + "; the last line is cut off, the next run repairs it");
      return Error{ErrorCode::kIo, error.message + "; what was written is whole: free space and run the same command again"};
    }
    done += static_cast<size_t>(wrote);
  }
  size_ += static_cast<int64_t>(line.size());
  return {};
}

Status RecordFile::sync() {
  if (is_regular_ && fdatasync(file_) != 0) return failed(path_, "write to the disk");
  return {};
}

}  // namespace deepinfer
