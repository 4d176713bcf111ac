#include "lab/unpacked_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "host/compressed_file.h"

namespace deepinfer {

namespace fs = std::filesystem;

namespace {

bool holds_compressed(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (is_compressed_name(entry.path().string())) return true;
  }
  return false;
}

Status place(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!is_compressed_name(from.string())) {
    fs::create_symlink(fs::absolute(from), to, error);
    if (error) return io_error(fmt::format("{}: cannot create: {}", to.string(), error.message()));
    return {};
  }
  DI_TRY(const std::string bytes, read_maybe_compressed(from.string()));
  fs::path plain = to;
  return write_file(plain.replace_extension("").string(), bytes);
}

}  // namespace

Result<UnpackedFolder> UnpackedFolder::open(const std::string& folder) {
  if (!holds_compressed(folder)) return UnpackedFolder(folder);
  DI_TRY(ScratchFolder unpacked, ScratchFolder::create("unpacked"));
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    const fs::path target = fs::path(unpacked.path()) / entry.path().lexically_relative(folder);
    if (entry.is_directory() && !entry.is_symlink()) {
      fs::create_directories(target, error);
    } else {
      DI_CHECK_OK(place(entry.path(), target));
    }
  }
  return UnpackedFolder(std::move(unpacked));
}

}  // namespace deepinfer
