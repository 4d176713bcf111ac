// host/shipped_files.h - finds what ships with the program: models and the release tokenizer.
//
// Looked up beside the program: in the source tree above a build folder, and under share/deepinfer of an install prefix.
//
//   find_shipped("models/tiny-v41")  ->  "<prefix>/share/deepinfer/models/tiny-v41", or "" when absent
#pragma once

#include <string>

namespace deepinfer {

inline constexpr const char* kReleaseTokenizer = "models/tokenizer/deepseek_v41_tokenizer.json.zst";

std::string find_shipped(const std::string& name);

}  // namespace deepinfer
