#include "images/resolve.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/clock.h"

namespace deepinfer {

namespace {

constexpr std::string_view kUnsupported =
    "You have uploaded an unsupported image. Please make sure your image is valid and has one of the following formats: webp, "
    "png, "
    "jpeg, and gif.";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

bool is_picture_type(std::string_view type) {
  return type == "image/png" || type == "image/jpeg" || type == "image/jpg" || type == "image/gif" || type == "image/webp";
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decode_percent(std::string_view text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size() && out.size() <= max_bytes; ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0;
    out += escaped ? static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])) : text[i];
    if (escaped) i += 2;
  }
  return out;
}

bool is_link(std::string_view url) {
  const std::string head = lower(url.substr(0, 8));
  return head == "https://" || head.substr(0, 7) == "http://";
}

}  // namespace

ImageResult<std::string, ImageFault> decode_data_url(std::string_view url, size_t max_bytes) {
  const size_t comma = url.find(',');
  if (lower(url.substr(0, 5)) != "data:" || comma == std::string_view::npos) return ImageFault::kInvalidDataUrl;
  const std::string head = lower(url.substr(5, comma - 5));
  if (!is_picture_type(std::string_view(head).substr(0, head.find(';')))) return ImageFault::kUnsupportedMediaType;
  const std::string_view payload = url.substr(comma + 1);
  if (!head.ends_with(";base64")) return decode_percent(payload, max_bytes);
  std::optional<std::string> bytes = base64_decoded(payload, max_bytes);
  if (!bytes) return ImageFault::kInvalidDataUrl;
  return *std::move(bytes);
}

std::string encode_data_url(std::string_view bytes) {
  constexpr const char* kTypes[] = {"png", "png", "jpeg", "gif", "webp"};
  return fmt::format("data:image/{};base64,{}", kTypes[static_cast<size_t>(sniff_picture(bytes))], base64(bytes));
}

ImageResult<std::string> ImageResolver::load(const ImageSource& source, const std::string& place, int64_t& fetch_us) const {
  if (source.url.empty()) return source.bytes;
  if (!is_link(source.url)) {
    ImageResult<std::string, ImageFault> bytes = decode_data_url(source.url, limits_.max_bytes);
    if (bytes) return *std::move(bytes);
    return ImageProblem{bytes.problem(), fmt::format("{}{}", place, kUnsupported)};
  }
  if (source.url.size() > limits_.max_link) {
    return ImageProblem{ImageFault::kUrlTooLong,
                        fmt::format("external link length {} too long, max link length {}", source.url.size(), limits_.max_link)};
  }
  if (!limits_.fetch) {
    return ImageProblem{ImageFault::kFetch,
                        fmt::format("{}links are not fetched by this server: pass the image as a base64 data url instead", place),
                        true};
  }
  bool is_refused = false;
  if (fetch_us < limits_.max_fetch_us) {
    const SteadyClock clock;
    const int64_t begin = clock.now_us();
    Result<std::string> body = limits_.fetch(source.url, limits_.max_bytes);
    fetch_us += clock.now_us() - begin;
    if (body) return *std::move(body);
    const ErrorCode code = body.error().code;
    is_refused = code != ErrorCode::kUnavailable && code != ErrorCode::kDeadline && code != ErrorCode::kIo;
  }
  return ImageProblem{ImageFault::kFetch, fmt::format("{}Failed to download image from {}", place, source.url), is_refused};
}

ImageResult<std::vector<PreparedImage>> ImageResolver::resolve(std::span<const ImageSource> sources) {
  ImageQuota quota = quota_;
  quota.images += sources.size();
  if (quota.images > limits_.max_images) {
    return ImageProblem{ImageFault::kTooMany,
                        fmt::format("Too many images: max {} images per request, got {}", limits_.max_images, quota.images)};
  }
  std::vector<std::string> loaded, places;
  std::map<std::string, int> numbers;  // images seen at a path
  int64_t fetch_us = 0;
  for (const ImageSource& source : sources) {
    places.push_back(fmt::format("{}image[{}]: ", source.path.empty() ? "" : source.path + ".", numbers[source.path]++));
    ImageResult<std::string> bytes = load(source, places.back(), fetch_us);
    if (!bytes) return bytes.problem();
    if (bytes->size() > limits_.max_bytes) {
      return ImageProblem{ImageFault::kTooLarge,
                          fmt::format("{}image file size exceeds limit {} MB", places.back(), limits_.max_bytes >> 20)};
    }
    quota.bytes += bytes->size();
    if (quota.bytes > limits_.max_total_bytes) {
      // The rest is not loaded only to be counted; a request that small images overflow names what it came to.
      size_t total = quota.bytes;
      for (size_t i = loaded.size() + 1; i < sources.size(); ++i)
        total += sources[i].bytes.size() + sources[i].url.size() / 4 * 3;
      return ImageProblem{ImageFault::kTotalTooLarge,
                          fmt::format("Total image size exceeds the limit: max {} MB per request, got {} MB",
                                      limits_.max_total_bytes >> 20, total >> 20)};
    }
    loaded.push_back(*std::move(bytes));
  }
  const bool many = quota.images >= limits_.many_images;
  const DecodeLimits decode_limits{.max_side = many ? std::min(limits_.max_side, limits_.max_side_of_many) : limits_.max_side};
  std::vector<PreparedImage> out;
  std::map<std::pair<bool, std::string_view>, size_t> known;  // by detail low and bytes
  const SteadyClock clock;
  const int64_t end_us = clock.now_us() + limits_.max_decode_us;
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (clock.now_us() > end_us) {
      return ImageProblem{ImageFault::kTotalTooLarge,
                          fmt::format("{}decoding the images takes longer than {} s: send fewer or smaller ones", places[i],
                                      limits_.max_decode_us / 1'000'000)};
    }
    const auto [first, is_new] = known.try_emplace({sources[i].detail == "low", loaded[i]}, i);
    if (!is_new) {
      out.push_back(out[first->second]);
      continue;
    }
    const DecodedImage image = decode_image(loaded[i], decode_limits);
    if (!image) return ImageProblem{image.problem(), fmt::format("{}{}", places[i], kUnsupported)};
    out.push_back(prepare_image(*image, sources[i].detail, limits_.geometry));
  }
  quota_ = quota;
  return out;
}

}  // namespace deepinfer
