// base/scratch_folder.h - folders: one among the temporary files that goes with its owner, and one that can be written.
//
// Promise: errors name the path and the system's reason. Threads: as any value.
//
//   DI_TRY(const ScratchFolder folder, ScratchFolder::create("verify"));     // TMPDIR/deepinfer-verify-XXXXXX
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace deepinfer {

class ScratchFolder {
 public:
  static Result<ScratchFolder> create(const std::string& name);
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Makes it, and what it lies in; an Error where nothing can be written there.
Status make_writable_folder(const std::string& path);

}  // namespace deepinfer
