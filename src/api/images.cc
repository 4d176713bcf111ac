#include "api/images.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace deepinfer {

namespace {

constexpr size_t kMaxLink = 8192;
constexpr std::string_view kFormats =
    "Please make sure your {0} is valid and has one of the following formats: webp, png, jpeg, and gif.";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

bool is_link(std::string_view url) {
  const std::string scheme = lower(url.substr(0, 8));
  return scheme == "https://" || scheme.substr(0, 7) == "http://";
}

struct DataUrl {
  std::string media_type;
  std::string_view payload;
};

// Only "data:TYPE[;PARAM]*;base64,PAYLOAD".
std::optional<DataUrl> parse_data_url(std::string_view url) {
  if (lower(url.substr(0, 5)) != "data:") return std::nullopt;
  url.remove_prefix(5);
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  std::string_view head = url.substr(0, comma);
  constexpr std::string_view kMark = ";base64";
  if (head.size() < kMark.size() || lower(head.substr(head.size() - kMark.size())) != kMark) return std::nullopt;
  return DataUrl{lower(head.substr(0, head.find(';'))), url.substr(comma + 1)};
}

bool is_picture_type(std::string_view type) {
  return type == "image/png" || type == "image/jpeg" || type == "image/jpg" || type == "image/gif" || type == "image/webp";
}

// Line breaks and missing padding are fine, the URL-safe alphabet is not.
bool is_base64(std::string_view text) {
  bool padded = false;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    if (c == '=') {
      padded = true;
      continue;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
    if (!letter || padded) return false;
  }
  return true;
}

Error at(const std::string& path, std::string_view text) { return invalid_argument(fmt::format("{}: {}", path, text)); }

Error unsupported_picture(const std::string& path, std::string_view noun) {
  return at(path, fmt::format("You have uploaded an unsupported {}. ", noun) + fmt::format(fmt::runtime(kFormats), noun));
}

}  // namespace

Status check_link_length(const std::string& url) {
  if (!is_link(url) || url.size() <= kMaxLink) return {};
  return invalid_argument(
      fmt::format("external link length {} too long, max link length {}. Consider passing file data directly "
                  "with base64 data url instead.",
                  url.size(), kMaxLink));
}

Result<ImageReference> image_from_link(const std::string& url, const std::string& path) {
  if (!is_link(url)) return at(path, fmt::format("invalid url: \"{}\"", url));
  if (const Status fits = check_link_length(url); !fits) return at(path, fits.error().message);
  return ImageReference{url, false, "high", path};
}

Result<ImageReference> image_from_url(const std::string& url, std::string_view detail, const std::string& path) {
  if (is_link(url)) {
    if (const Status fits = check_link_length(url); !fits) {
      return invalid_argument(fmt::format("{}.image_url.url[0]: image_url.url {}", path, fits.error().message));
    }
    return ImageReference{url, false, std::string(detail), path};
  }
  const std::optional<DataUrl> data = parse_data_url(url);
  if (!data) return at(path, "Unsupported image_url format");
  if (!is_picture_type(data->media_type)) return unsupported_picture(path, "image");
  if (!is_base64(data->payload)) return at(path, "Invalid base64 data");
  return ImageReference{url, true, std::string(detail), path};
}

Result<ImageReference> image_from_file(const std::string* file_id, const std::string* file_data, const std::string* filename,
                                       const std::string& path) {
  if (!file_id && !file_data) return at(path, "file must have a file_id or file_data");
  if (file_id && file_data) return at(path, "file cannot have both file_id and file_data");
  if (file_id && filename) return at(path, "file cannot have filename when file_id is present");
  if (file_id) return at(path, "file_id is not supported. Pass the image as a base64 data url instead.");
  const std::optional<DataUrl> data = parse_data_url(*file_data);
  if (!data) return at(path, "file_data is not a valid base64 data url");
  if (!is_picture_type(data->media_type)) return unsupported_picture(path, "file");
  if (!is_base64(data->payload)) return at(path, "file_data is not a valid base64 data url");
  return ImageReference{*file_data, true, "high", path};
}

}  // namespace deepinfer
