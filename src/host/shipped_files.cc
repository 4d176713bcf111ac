#include "host/shipped_files.h"

#include <filesystem>

#include "base/file.h"

namespace deepinfer {

std::string find_shipped(const std::string& name) {
  // build/PRESET/program, build/program, prefix/bin/program, and a folder that was carried somewhere as a whole; the same for
  // libdeepinfer, prefix/lib or prefix/lib/TRIPLET, when another program has loaded it.
  for (const std::string& here : {executable_directory(), library_directory()}) {
    for (const char* step : {"/../..", "/..", "/../share/deepinfer", "/../../share/deepinfer", "", "/share/deepinfer"}) {
      const std::string path = here + step + "/" + name;
      std::error_code error;
      if (file_exists(path) || is_directory(path)) return std::filesystem::weakly_canonical(path, error).string();
    }
  }
  return "";
}

}  // namespace deepinfer
