// lab/unpacked_folder.h - a folder of which some files are stored as `.zst`, as a plain folder.
//
// A folder without such files is used where it is; otherwise a temporary copy is made (other files as links) and removed
// when the object goes. Checkpoints must be plain files because they are mapped.
//
//   DI_TRY(UnpackedFolder folder, UnpackedFolder::open("tests/golden/model"));
//   use(folder.path());
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace deepinfer {

class UnpackedFolder {
 public:
  static Result<UnpackedFolder> open(const std::string& folder);
  UnpackedFolder(UnpackedFolder&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, false)) {}
  UnpackedFolder& operator=(UnpackedFolder&&) = delete;
  ~UnpackedFolder();

  const std::string& path() const { return path_; }

 private:
  UnpackedFolder(std::string path, bool temporary) : path_(std::move(path)), temporary_(temporary) {}
  std::string path_;
  bool temporary_ = false;
};

}  // namespace deepinfer
