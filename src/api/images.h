// api/images.h - image references of a request, checked before anything is fetched or decoded.
//
// Promise: no network, no decoding; only the form of the reference. Texts are those of the official service.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "recipe/conversation.h"

namespace deepinfer {

// An image_url: http(s) or a base64 data URL of a picture type. `path` stands in front of error texts.
Result<ImageReference> image_from_url(const std::string& url, std::string_view detail, const std::string& path);

// A link of more than 8192 bytes is refused; data URLs are as long as they are.
Status check_link_length(const std::string& url);

// The same for a wire whose links must be http(s).
Result<ImageReference> image_from_link(const std::string& url, const std::string& path);

// The fields of a chat `file` part; absent strings are nullptr.
Result<ImageReference> image_from_file(const std::string* file_id, const std::string* file_data, const std::string* filename,
                                       const std::string& path);

}  // namespace deepinfer
