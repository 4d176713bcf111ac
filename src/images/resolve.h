// images/resolve.h - what a request names as images, to prepared pictures, under the limits of one request.
//
// Links are fetched only when a fetcher is given; data URLs and bytes need none. The quota of a request counts what was
// taken by calls that succeeded.
// Promise: at most max_images, max_bytes each and max_total_bytes together, checked before anything is decoded; the first
// problem in the order of the images wins and changes nothing.
// Threads: one resolver, one thread at a time.
//
//   ImageResolver resolver(ImageLimits{});
//   auto resolved = resolver.resolve({{.url = "data:image/png;base64,...", .path = "messages.0.content[1]"}});
//   if (!resolved) ... resolved.problem().message
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "images/prepare.h"
#include "images/problem.h"

namespace deepinfer {

struct ImageSource {
  std::string url;  // data URL or http(s) link; empty = `bytes`
  std::string bytes;
  std::string detail = "high";
  std::string path;  // where it stands in the request, for messages
};

// The body behind a link; an Error is logged, never shown. REQUIRES of who gives one: https, no private, loopback or
// link-local address after resolution and after redirects, limits of bytes and time.
using ImageFetcher = std::function<Result<std::string>(const std::string& url, size_t max_bytes)>;

struct ImageLimits {
  size_t max_images = 600;
  size_t max_bytes = size_t{32} << 20;
  size_t max_total_bytes = size_t{64} << 20;
  size_t max_link = 8192;
  int32_t max_side = 8192;
  size_t many_images = 15;  // from so many on, sides are shorter
  int32_t max_side_of_many = 4096;
  ImageGeometry geometry;
  ImageFetcher fetch;                  // empty = links are refused
  int64_t max_fetch_us = 60'000'000;   // all links of a request together; no fetch begins later
  int64_t max_decode_us = 30'000'000;  // all pictures of a request together, scaled; none begins later
};

struct ImageQuota {
  size_t images = 0, bytes = 0;
};

class ImageResolver {
 public:
  explicit ImageResolver(ImageLimits limits) : limits_(std::move(limits)) {}

  ImageResult<std::vector<PreparedImage>> resolve(std::span<const ImageSource> sources);
  const ImageQuota& quota() const { return quota_; }

 private:
  ImageResult<std::string> load(const ImageSource& source, const std::string& place, int64_t& fetch_us) const;

  ImageLimits limits_;
  ImageQuota quota_;
};

// The bytes of "data:TYPE[;...][;base64],...". Line breaks and missing padding are fine, the URL-safe alphabet is not; the
// type must be that of a picture.
ImageResult<std::string, ImageFault> decode_data_url(std::string_view url, size_t max_bytes);

// Bytes as the data URL of the picture they are.
std::string encode_data_url(std::string_view bytes);

}  // namespace deepinfer
