#include "images/decode.h"

#include <algorithm>

namespace deepinfer {

const char* image_fault_name(ImageFault fault) {
  switch (fault) {
    case ImageFault::kEmpty: return "EmptyImage";
    case ImageFault::kUnsupportedMediaType: return "UnsupportedMediaType";
    case ImageFault::kDecode: return "Decode";
    case ImageFault::kInvalidDataUrl: return "InvalidDataUrl";
    case ImageFault::kDimensionsTooLarge: return "ImageDimensionsTooLarge";
    case ImageFault::kTooLarge: return "ImageTooLarge";
    case ImageFault::kTooMany: return "TooManyImages";
    case ImageFault::kTotalTooLarge: return "TotalSizeTooLarge";
    case ImageFault::kFetch: return "Fetch";
    case ImageFault::kInvalidUrl: return "InvalidUrl";
    case ImageFault::kUrlTooLong: return "UrlTooLong";
  }
  return "Decode";
}

PictureKind sniff_picture(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return PictureKind::kPng;
  if (bytes.starts_with("\xff\xd8\xff")) return PictureKind::kJpeg;
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return PictureKind::kGif;
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") return PictureKind::kWebp;
  return PictureKind::kUnknown;
}

Result<void> check_sides(int64_t width, int64_t height, const DecodeLimits& limits, ImageFault& fault) {
  fault = width < 1 || height < 1 ? ImageFault::kDecode : ImageFault::kDimensionsTooLarge;
  if (width >= 1 && height >= 1 && std::max(width, height) <= limits.max_side) return {};
  return invalid_argument("the sides are out of range");
}

RgbImage on_white(const std::vector<uint8_t>& rgba, int32_t width, int32_t height) {
  RgbImage out{width, height, {}};
  const size_t count = static_cast<size_t>(width) * static_cast<size_t>(height);
  out.pixels.resize(count * 3);
  for (size_t i = 0; i < count; ++i) {
    const unsigned alpha = rgba[i * 4 + 3];
    for (size_t c = 0; c < 3; ++c) {
      out.pixels[i * 3 + c] = static_cast<uint8_t>((rgba[i * 4 + c] * alpha + 255u * (255u - alpha)) / 255u);
    }
  }
  return out;
}

DecodedImage decode_image(std::string_view bytes, const DecodeLimits& limits) {
  if (bytes.empty()) return ImageFault::kEmpty;
  switch (sniff_picture(bytes)) {
    case PictureKind::kPng: return decode_png(bytes, limits);
    case PictureKind::kJpeg: return decode_jpeg(bytes, limits);
    case PictureKind::kGif: return decode_gif(bytes, limits);
    case PictureKind::kWebp: return decode_webp(bytes, limits);
    case PictureKind::kUnknown: break;
  }
  return ImageFault::kUnsupportedMediaType;
}

}  // namespace deepinfer
