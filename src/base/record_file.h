// base/record_file.h - results appended to a JSON Lines file, one line each, by a run that may be interrupted at any moment.
//
// Promise: a record is in the file as a whole line or not at all: a write that fails half-way (full disk) is taken back, and
// a last line cut off by a crash is removed when the file is opened again. Records already there are never touched.
// Threads: one.
//
//   DI_TRY(RecordFile file, RecordFile::open("out.jsonl", [&](const Json& record, int64_t line) -> Status { ... }));
//   DI_CHECK_OK(file.append(record));
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"
#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

class RecordFile {
 public:
  // Gets each record of an existing file (null for a whole line that is no JSON); its Error ends the opening.
  using Visit = FunctionRef<Status(const Json& record, int64_t line)>;

  static Result<RecordFile> open(const std::string& path, Visit visit);
  RecordFile(RecordFile&& other) noexcept
      : path_(std::move(other.path_)),
        file_(std::exchange(other.file_, -1)),
        is_regular_(other.is_regular_),
        size_(other.size_) {}
  RecordFile& operator=(RecordFile&&) = delete;
  ~RecordFile();

  const std::string& path() const { return path_; }
  bool is_empty() const { return size_ == 0; }
  Status append(const Json& record);
  // Waits until everything appended is on the disk.
  Status sync();

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  Status load(std::string_view content, Visit visit);

  std::string path_;
  int file_ = -1;
  bool is_regular_ = true;  // a pipe or a device is written, but not read back or repaired
  int64_t size_ = 0;        // bytes of whole records
};

}  // namespace deepinfer
