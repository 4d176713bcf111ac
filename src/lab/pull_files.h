// lab/pull_files.h - a file that is being downloaded: which bytes are there, and whether they are the right ones.
//
// NAME.part holds the bytes, NAME.part.done the ranges that are complete, one "BEGIN END" a line, written after the bytes are.
// Threads: calls on one file are serialised by its owner, write() excepted, which may run at several places at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct HubFile {
  std::string name;
  int64_t size = -1;
  std::string sha256;    // of large files
  std::string git_sha1;  // of the git object, for the others
};

// Names from a hub become paths: relative, without "..", printable.
Status check_hub_name(const std::string& name);

class PartFile {
 public:
  PartFile(const std::string& folder, HubFile file) : file_(std::move(file)), path_(folder + "/" + file_.name) {}
  PartFile(PartFile&& other) noexcept;
  ~PartFile();

  const HubFile& file() const { return file_; }
  bool is_complete() const;  // under its own name, with its size
  // Opens the part and reads what is done.
  Status open();
  int64_t bytes_done() const;
  // What is missing, cut into ranges.
  std::vector<std::pair<int64_t, int64_t>> missing(int64_t range_bytes) const;
  Status write(int64_t offset, std::string_view bytes);
  Status note_done(int64_t begin, int64_t end);
  // Checks size and checksum and gives the file its name. A wrong checksum throws the part away.
  Status finish();

 private:
  Status check_content() const;
  void add_range(int64_t begin, int64_t end);
  HubFile file_;
  std::string path_;
  int part_ = -1, done_ = -1;
  std::map<int64_t, int64_t> ranges_;  // begin -> end, neither touching nor overlapping
};

}  // namespace deepinfer
