#include "lab/pull_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "net/digest.h"

namespace deepinfer {

namespace {

namespace fs = std::filesystem;

Error failed(const std::string& path, const char* what) {
  return io_error(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

Status check_hub_name(const std::string& name) {
  bool good = !name.empty() && name.size() < 1024 && name.front() != '/';
  for (const char c : name) good &= static_cast<unsigned char>(c) >= ' ' && c != '\\' && c != 0x7f;
  std::istringstream parts(name);
  std::string part;
  while (std::getline(parts, part, '/')) good &= !part.empty() && part != "." && part != "..";
  good &= !name.ends_with('/') && !name.ends_with(".part") && !name.ends_with(".part.done");
  if (good) return {};
  return corrupt(fmt::format("the hub names a file '{}', which is no name inside a folder", name.substr(0, 200)));
}

PartFile::PartFile(PartFile&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      part_(std::exchange(other.part_, -1)),
      done_(std::exchange(other.done_, -1)),
      ranges_(std::move(other.ranges_)) {}

PartFile::~PartFile() {
  for (const int fd : {part_, done_}) {
    if (fd >= 0) close(fd);
  }
}

bool PartFile::is_complete() const {
  std::error_code ec;
  return fs::is_regular_file(path_, ec) && static_cast<int64_t>(fs::file_size(path_, ec)) == file_.size;
}

void PartFile::add_range(int64_t begin, int64_t end) {
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (at->second < begin || at->first > end) {
      ++at;
      continue;
    }
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_[begin] = end;
}

Status PartFile::open() {
  std::error_code ec;
  fs::create_directories(fs::path(path_).parent_path(), ec);
  const std::string part = path_ + ".part", done = part + ".done";
  part_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (part_ < 0) return failed(part, "cannot be written");
  const Result<std::string> text = read_file(done);
  std::istringstream lines(text ? *text : "");
  std::string line;
  while (std::getline(lines, line) && !lines.eof()) {  // a last line without its end was cut by a crash
    int64_t begin = -1, end = -1;
    std::istringstream(line) >> begin >> end;
    if (begin >= 0 && begin < end && end <= file_.size) add_range(begin, end);
  }
  struct stat info {};
  if (fstat(part_, &info) != 0) return failed(part, "cannot be looked at");
  // The list without its bytes is worth nothing.
  std::erase_if(ranges_, [&](const auto& range) { return range.second > info.st_size; });
  if (info.st_size > file_.size) {
    ranges_.clear();
    if (ftruncate(part_, 0) != 0) return failed(part, "cannot be cut");
  }
  done_ = ::open(done.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (done_ < 0) return failed(done, "cannot be written");
  return {};
}

int64_t PartFile::bytes_done() const {
  int64_t bytes = 0;
  for (const auto& [begin, end] : ranges_) bytes += end - begin;
  return bytes;
}

std::vector<std::pair<int64_t, int64_t>> PartFile::missing(int64_t range_bytes) const {
  std::vector<std::pair<int64_t, int64_t>> out;
  int64_t at = 0;
  const auto add_gap = [&](int64_t end) {
    for (; at < end; at = std::min(end, at + range_bytes)) out.emplace_back(at, std::min(end, at + range_bytes));
  };
  for (const auto& [begin, end] : ranges_) {
    add_gap(begin);
    at = end;
  }
  add_gap(file_.size);
  return out;
}

Status PartFile::write(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(part_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed(path_ + ".part", "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

Status PartFile::note_done(int64_t begin, int64_t end) {
  if (begin >= end) return {};
  if (fdatasync(part_) != 0) return failed(path_ + ".part", "cannot be synced");
  add_range(begin, end);
  const std::string line = fmt::format("{} {}\n", begin, end);
  if (::write(done_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return failed(path_ + ".part.done", "cannot be written");
  return {};
}

Status PartFile::check_content() const {
  if (file_.sha256.empty() && file_.git_sha1.empty()) return {};
  DI_TRY(const MappedFile bytes, MappedFile::open(path_ + ".part"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
  Digest digest(file_.sha256.empty() ? Digest::Kind::kSha1 : Digest::Kind::kSha256);
  if (file_.sha256.empty()) digest.add(fmt::format("blob {}", file_.size) + std::string(1, '\0'));
  digest.add(text);
  const std::string got = digest.hex(), &wanted = file_.sha256.empty() ? file_.git_sha1 : file_.sha256;
  if (got == wanted) return {};
  return corrupt(fmt::format("{}: the checksum is {}, the hub says {}: what came was thrown away, run the command again", path_,
                             got, wanted));
}

Status PartFile::finish() {
  const std::string part = path_ + ".part";
  if (ftruncate(part_, file_.size) != 0) return failed(part, "cannot be cut");
  const Status good = check_content();
  if (good && fsync(part_) != 0) return failed(part, "cannot be synced");
  if (good && rename(part.c_str(), path_.c_str()) != 0) return failed(path_, "cannot be named");
  if (!good) unlink(part.c_str());
  unlink((part + ".done").c_str());
  return good;
}

}  // namespace deepinfer
