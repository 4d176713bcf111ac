#include "base/scratch_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace deepinfer {

namespace fs = std::filesystem;

Result<ScratchFolder> ScratchFolder::create(const std::string& name) {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / ("deepinfer-" + name + "-XXXXXX")).string();
  if (error || !mkdtemp(path.data())) {
    return io_error(fmt::format("{}: cannot make a temporary folder: {}; TMPDIR names another place", path,
                                error ? error.message() : std::strerror(errno)));
  }
  return ScratchFolder(std::move(path));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Status make_writable_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return io_error(fmt::format("{}: cannot make this folder: {}", path, error.message()));
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    return io_error(fmt::format("{}: cannot write to this folder: {}", path, std::strerror(errno)));
  return {};
}

}  // namespace deepinfer
