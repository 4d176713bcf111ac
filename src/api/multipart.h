// api/multipart.h - multipart/form-data bodies: the fields of an upload.
//
// Promise: any bytes give the parts or an Error; parts are views into the body, nothing is copied.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct FormPart {
  std::string name, filename;
  std::string_view content;
};

// `content_type` is the header with its boundary.
Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace deepinfer
