#include "lab/golden_images.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include "base/file.h"
#include "images/resolve.h"
#include "lab/plain_png.h"

namespace deepinfer {

namespace {

// The picture the cases call "64x48 png", as their other cases hold it.
constexpr std::string_view kSmallPng =
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAAAwCAIAAAAuKetIAAAAjklEQVR4Ae3S0Q2AIBTFUHEQB2NixzLMcD7MS8p/"
    "b6Blvc++Jp978uXP"
    "3XvA3wUrUAE00BdCgYxXgBXiQAVQIOMVYIU4UAEUyHgFWCEOVAAFMl4BVogDFUCBjFeAFeJABVAg4xVghThQARTIeAVYIQ5UAAUyXgFWiAMVQIGMV4AV4kAFUCDj"
    "FWCFODC+wAcqKgGgpIRKogAAAABJRU5ErkJggg==";

int64_t integer(const Json& json) {
  const auto value = json.to_int64("");
  return value ? *value : 0;
}
double real(const Json& json) { return std::strtod(json.number_text().c_str(), nullptr); }

std::string mismatch(std::string_view what, const Json& want, const Json& got) {
  return want == got ? std::string()
                     : fmt::format("{}: want {} got {}", what, want.dump().substr(0, 200), got.dump().substr(0, 200));
}

std::string problem_difference(const Json& want, const ImageProblem& problem) {
  Json got = Json::object({{"type", "ImageError"},
                           {"kind", image_fault_name(problem.fault)},
                           {"is_retryable", problem.is_retryable()},
                           {"message", problem.message}});
  return mismatch("error", want, got);
}

std::string run_token_count(const Json& golden) {
  const int32_t tokens = image_tokens(integer(golden.at("width")), integer(golden.at("height")), {});
  return mismatch("tokens", golden.at("expect").at("tokens"), tokens);
}

std::string run_resize(const Json& golden) {
  auto width = static_cast<int32_t>(integer(golden.at("width"))), height = static_cast<int32_t>(integer(golden.at("height")));
  if (golden.at("detail").as_string() == "low") {
    const ImageSize low = low_detail_size(width, height);
    width = low.width, height = low.height;
  }
  const ImagePlan plan = plan_image(width, height, {});
  return mismatch("plan", golden.at("expect"),
                  Json::object({{"width", plan.width}, {"height", plan.height}, {"tokens", plan.tokens}}));
}

ImageSource plain_source(int64_t width, int64_t height) {
  ImageSource source;
  source.bytes = plain_png(static_cast<uint32_t>(width), static_cast<uint32_t>(height), 90);
  return source;
}

std::string run_limits(const Json& golden) {
  ImageLimits limits;
  limits.max_side = static_cast<int32_t>(integer(golden.at("max_dimension_px")));
  ImageResolver resolver(limits);
  const ImageSource source = plain_source(integer(golden.at("width")), integer(golden.at("height")));
  const auto resolved = resolver.resolve({&source, 1});
  const Json& expect = golden.at("expect");
  if (const Json* error = expect.find("error")) {
    return resolved ? "accepted, want " + error->dump() : problem_difference(*error, resolved.problem());
  }
  if (!resolved) return "refused: " + resolved.problem().message;
  const RgbImage& pixels = *resolved->front().pixels;
  return mismatch("size", expect, Json::object({{"width", pixels.width}, {"height", pixels.height}}));
}

// The recipe's last step, which a server that reads pixels itself leaves out: stored with loss and read again.
bool pass_through_webp(RgbImage& image) {
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeRGB(image.pixels.data(), image.width, image.height, image.width * 3, 90.0f, &bytes);
  const bool done = size > 0 && WebPDecodeRGBInto(bytes, size, image.pixels.data(), image.pixels.size(), image.width * 3);
  WebPFree(bytes);
  return done;
}

// Compares samples of a picture that was stored with loss: mean difference at most 2.5 levels, channel means within 1.
class PixelComparison {
 public:
  explicit PixelComparison(const RgbImage& image) : image_(image) {}

  void sample(int64_t y, int64_t x, const Json& rgb) {
    if (y < 0 || x < 0 || y >= image_.height || x >= image_.width) return void(outside_ = true);
    const uint8_t* pixel = image_.row(static_cast<int32_t>(y)) + x * 3;
    for (size_t c = 0; c < 3 && c < rgb.items().size(); ++c) {
      sum_ += std::abs(real(rgb[c]) - pixel[c]);
      ++count_;
    }
  }
  void row(int64_t y, const Json& pixels) {
    for (size_t x = 0; x < pixels.items().size(); ++x) sample(y, static_cast<int64_t>(x), pixels[x]);
  }
  std::string verdict(const Json& mean_rgb) const {
    if (outside_) return "a sample lies outside the picture";
    if (count_ == 0) return "no samples";
    if (const double mean = sum_ / static_cast<double>(count_); mean > 2.5)
      return fmt::format("samples differ by {:.2f} levels", mean);
    for (size_t c = 0; c < 3 && c < mean_rgb.items().size(); ++c) {
      if (const double got = channel_mean(c); std::abs(got - real(mean_rgb[c])) > 1.0) {
        return fmt::format("mean of channel {}: want {} got {:.3f}", c, mean_rgb[c].number_text(), got);
      }
    }
    return {};
  }

 private:
  double channel_mean(size_t channel) const {
    double sum = 0;
    for (size_t i = channel; i < image_.pixels.size(); i += 3) sum += image_.pixels[i];
    return sum * 3 / static_cast<double>(image_.pixels.size());
  }

  const RgbImage& image_;
  double sum_ = 0;
  int64_t count_ = 0;
  bool outside_ = false;
};

std::string run_pixels(const Json& golden, const std::string& folder) {
  const Result<std::string> bytes = read_file(join_path(folder, golden.at("file").as_string()));
  if (!bytes) return bytes.error().message;
  ImageSource source;
  source.bytes = *bytes;
  source.detail = golden.at("detail").as_string();
  ImageResolver resolver(ImageLimits{});
  const auto resolved = resolver.resolve({&source, 1});
  if (!resolved) return fmt::format("{}: {}", image_fault_name(resolved.problem().fault), resolved.problem().message);
  const PreparedImage& image = resolved->front();
  RgbImage pixels = *image.pixels;
  const Json& expect = golden.at("expect");
  std::string what = mismatch("shape", expect.at("shape_hwc"), Json::array({pixels.height, pixels.width, 3}));
  if (what.empty()) what = mismatch("tokens", expect.at("tokens"), image.tokens);
  if (!what.empty()) return what;
  if (!pass_through_webp(pixels)) return "the picture does not go through WebP";
  PixelComparison comparison(pixels);
  comparison.row(0, expect.at("first_row_rgb"));
  comparison.row(pixels.height / 2, expect.at("middle_row_rgb"));
  for (const Json& sample : expect.at("samples_yx_rgb").items()) {
    if (sample.items().size() == 3) comparison.sample(integer(sample[0]), integer(sample[1]), sample[2]);
  }
  return comparison.verdict(expect.at("mean_rgb"));
}

// The sources a resolve case describes in words.
std::vector<ImageSource> described_sources(const Json& input) {
  ImageSource source;
  if (const Json* path = input.find("path")) source.path = path->as_string();
  size_t count = 1;
  if (const Json* number = input.find("count")) count = static_cast<size_t>(integer(*number));
  if (const Json* size = input.find("size")) {
    source = plain_source(integer((*size)[0]), integer((*size)[1]));
  } else if (const Json* url = input.find("data_url")) {
    source.url = url->as_string();
  } else if (const Json* link = input.find("url")) {
    source.url = link->as_string();
  } else if (const Json* length = input.find("url_length")) {
    source.url = "https://e.example/";
    source.url.resize(static_cast<size_t>(integer(*length)), 'a');
  } else if (const Json* text = input.find("bytes_base64")) {
    auto bytes = decode_data_url("data:image/png;base64," + text->as_string(), size_t{1} << 30);
    if (bytes) source.bytes = *bytes;
  } else if (const Json* bytes = input.find("bytes")) {
    source.bytes.assign(static_cast<size_t>(integer(*bytes)), 'x');
  } else if (const Json* each = input.find("bytes_each")) {
    source.bytes = plain_png(64, 48, 90);
    source.bytes.resize(static_cast<size_t>(integer(*each)), '\0');
  } else {
    source.url = kSmallPng;
  }
  return std::vector<ImageSource>(count, source);
}

std::string compare_resolved(const Json& expect, const std::vector<PreparedImage>& images, const ImageQuota& quota,
                             bool own_files) {
  Json sizes = Json::array();
  int64_t adjustment = 0;
  for (const PreparedImage& image : images) {
    sizes.push_back(Json::array({image.pixels->width, image.pixels->height}));
    adjustment += image.tokens - 1;
  }
  std::string what = mismatch("images", expect.at("images"), sizes);
  if (what.empty()) what = mismatch("token_adjustment", expect.at("token_adjustment"), adjustment);
  if (!what.empty()) return what;
  // Cases that say only a size do not hold their file, and so not its number of bytes.
  Json found = Json::array({static_cast<uint64_t>(quota.images), static_cast<uint64_t>(quota.bytes)});
  if (own_files && expect.at("quota").size() == 2) found.items()[1] = expect.at("quota")[1];
  return mismatch("quota", expect.at("quota"), found);
}

std::string run_resolve(const Json& golden) {
  const Json& input = golden.at("input");
  const Json& expect = golden.at("expect");
  ImageLimits limits;
  limits.fetch = [](const std::string&, size_t) -> Result<std::string> { return io_error("refused"); };
  ImageResolver resolver(limits);
  if (input.find("calls")) {
    ImageSource good, bad;
    good.url = kSmallPng;
    bad.bytes = "not a picture";
    if (!resolver.resolve({&good, 1})) return "the good call failed";
    if (resolver.resolve({&bad, 1})) return "the bad call passed";
    const Json quota =
        Json::array({static_cast<uint64_t>(resolver.quota().images), static_cast<uint64_t>(resolver.quota().bytes)});
    return mismatch("quota", expect.at("quota"), quota);
  }
  const std::vector<ImageSource> sources = described_sources(input);
  const auto resolved = resolver.resolve(sources);
  if (const Json* error = expect.find("error")) {
    return resolved ? "accepted, want " + error->dump() : problem_difference(*error, resolved.problem());
  }
  if (!resolved) return "refused: " + resolved.problem().message;
  return compare_resolved(expect, *resolved, resolver.quota(), input.find("size") != nullptr);
}

}  // namespace

std::string run_image_case(const Json& golden, const std::string& folder) {
  const std::string& kind = golden.at("kind").as_string();
  if (kind == "token_count") return run_token_count(golden);
  if (kind == "resize") return run_resize(golden);
  if (kind == "limits") return run_limits(golden);
  if (kind == "pixels") return run_pixels(golden, folder);
  if (kind == "resolve") return run_resolve(golden);
  return fmt::format("unknown kind of image case '{}'", kind);
}

}  // namespace deepinfer
