#include "images/prepare.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "images/scale.h"

namespace deepinfer {

namespace {

// Changes whenever the same bytes may give other pixels.
constexpr std::string_view kVersion = "deepinfer image 1";
constexpr uint8_t kGrey = 127;

// Half of an odd gap is rounded to the even side.
int32_t half_even(int32_t gap) {
  const int32_t half = gap / 2;
  return gap % 2 == 0 ? half : half + half % 2;
}

// The side that does not fill the box is rounded, a half to the even number.
RgbImage letter_box(const RgbImage& image, int32_t width, int32_t height) {
  const double across = static_cast<double>(width) / image.width, down = static_cast<double>(height) / image.height;
  int32_t inner_width = width, inner_height = height;
  if (across < down) {
    inner_height = std::clamp(static_cast<int32_t>(std::nearbyint(image.height * across)), 1, height);
  } else {
    inner_width = std::clamp(static_cast<int32_t>(std::nearbyint(image.width * down)), 1, width);
  }
  RgbImage inner = scale_bicubic(image, inner_width, inner_height);
  if (inner_width == width && inner_height == height) return inner;
  RgbImage out{width, height, {}};
  out.pixels.assign(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, kGrey);
  const int32_t left = half_even(width - inner_width), top = half_even(height - inner_height);
  for (int32_t y = 0; y < inner_height; ++y) {
    std::copy_n(inner.row(y), static_cast<size_t>(inner_width) * 3, out.row(top + y) + static_cast<size_t>(left) * 3);
  }
  return out;
}

std::string content_hash(const RgbImage& image, const ImageGeometry& geometry) {
  const std::string head =
      fmt::format("{} {}x{} {} {}\n", kVersion, image.width, image.height, geometry.patch, geometry.downsample);
  std::string out(32, '\0');
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  unsigned size = 0;
  const bool done = context && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1 &&
                    EVP_DigestUpdate(context, head.data(), head.size()) == 1 &&
                    EVP_DigestUpdate(context, image.pixels.data(), image.pixels.size()) == 1 &&
                    EVP_DigestFinal_ex(context, reinterpret_cast<unsigned char*>(out.data()), &size) == 1;
  EVP_MD_CTX_free(context);
  // Without a hash the picture's pages have no name and are simply not shared.
  return done ? out : std::string();
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

PreparedImage prepare_image(const RgbImage& image, std::string_view detail, const ImageGeometry& geometry) {
  PreparedImage out;
  const ImageSize size = detail == "low" ? low_detail_size(image.width, image.height) : ImageSize{image.width, image.height};
  const ImagePlan plan = plan_image(size.width, size.height, geometry);
  const bool shrinks = size.width != image.width || size.height != image.height;
  RgbImage pixels = letter_box(shrinks ? scale_area(image, size.width, size.height) : image, plan.width, plan.height);
  out.tokens = plan.tokens;
  out.content_hash = content_hash(pixels, geometry);
  out.pixels = std::make_shared<const RgbImage>(std::move(pixels));
  return out;
}

std::vector<uint16_t> image_patches(const PreparedImage& image, int32_t patch) {
  std::array<uint16_t, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16((static_cast<float>(i) / 255.0f - 0.5f) / 0.5f);
  const RgbImage& pixels = *image.pixels;
  std::vector<uint16_t> out;
  out.reserve(pixels.pixels.size());
  for (int32_t top = 0; top + patch <= pixels.height; top += patch) {
    for (int32_t left = 0; left + patch <= pixels.width; left += patch) {
      for (int32_t c = 0; c < 3; ++c) {
        for (int32_t y = top; y < top + patch; ++y) {
          const uint8_t* row = pixels.row(y);
          for (int32_t x = left; x < left + patch; ++x) out.push_back(values[row[x * 3 + c]]);
        }
      }
    }
  }
  return out;
}

}  // namespace deepinfer
