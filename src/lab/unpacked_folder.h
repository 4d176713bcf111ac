// lab/unpacked_folder.h - a folder of which some files are stored as `.zst`, as a plain folder.
//
// A folder without such files is used where it is; otherwise a temporary copy is made (other files as links) and removed
// when the object goes. Checkpoints must be plain files because they are mapped.
//
//   DI_TRY(UnpackedFolder folder, UnpackedFolder::open("tests/golden/model"));
//   use(folder.path());
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/scratch_folder.h"

namespace deepinfer {

class UnpackedFolder {
 public:
  static Result<UnpackedFolder> open(const std::string& folder);
  const std::string& path() const { return copy_ ? copy_->path() : folder_; }

 private:
  explicit UnpackedFolder(std::string folder) : folder_(std::move(folder)) {}
  explicit UnpackedFolder(ScratchFolder copy) : copy_(std::move(copy)) {}
  std::string folder_;
  std::optional<ScratchFolder> copy_;
};

}  // namespace deepinfer
