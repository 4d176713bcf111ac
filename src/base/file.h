// base/file.h - files: read-only mappings, whole reads, durable replacement.
//
// Promise: errors name the path and the system's reason. A MappedFile stays valid until it is destroyed or moved from.
// Threads: const access from anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

// A file mapped read-only. The bytes are paged in when first touched.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  // Open as long as this is, for reads past the mapping; -1 for an empty file.
  int descriptor() const { return fd_; }
  // Asks the system to read [offset, offset + length) ahead.
  void prefetch(size_t offset, size_t length) const;

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

// Writes a file piece by piece into a temporary beside `path`; commit() syncs it and renames it over `path`, so readers see
// the old or the new content. Without commit() nothing remains.
class FileWriter {
 public:
  static Result<FileWriter> create(const std::string& path);

  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  Status append(std::string_view content);
  Status commit();

 private:
  FileWriter() = default;
  std::string path_, temporary_;
  int fd_ = -1;
};

Result<std::string> read_file(const std::string& path);
// A FileWriter in one call.
Status write_file(const std::string& path, std::string_view content);
bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
// A file with content of its own: no device, pipe or folder.
bool is_regular_file(const std::string& path);
// Names (not paths) in a directory, sorted.
Result<std::vector<std::string>> list_directory(const std::string& path);
// Folder of the running executable, without trailing slash.
std::string executable_directory();
// Of the shared library (or program) this code is in: what another program loads lies elsewhere than that program.
std::string library_directory();
std::string join_path(std::string_view folder, std::string_view name);

}  // namespace deepinfer
