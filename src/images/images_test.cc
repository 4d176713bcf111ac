#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <webp/encode.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "images/room.h"
#include "images/scale.h"

namespace deepinfer {
namespace {

const std::string kFolder = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/recipe/images";

std::vector<std::string> pictures(std::string_view except = "") {
  std::vector<std::string> out;
  const auto names = list_directory(kFolder);
  for (const std::string& name : *names)
    if (name != except) out.push_back(*read_file(join_path(kFolder, name)));
  return out;
}

std::string resolve_error(ImageSource source, ImageLimits limits = {}) {
  ImageResolver resolver(std::move(limits));
  const auto resolved = resolver.resolve({&source, 1});
  return resolved ? "" : std::string(image_fault_name(resolved.problem().fault));
}

TEST(Decode, EveryCutOfAPictureIsAProblem) {
  // Of an animation only the first frame is read.
  for (const std::string& bytes : pictures("animated_60x40.gif")) {
    ASSERT_TRUE(decode_image(bytes, {}));
    const size_t step = std::max<size_t>(1, bytes.size() / 40);
    // The last bytes of some kinds are end marks that add nothing to the pixels.
    for (size_t size = 0; size + 40 < bytes.size(); size += step) {
      EXPECT_FALSE(decode_image(std::string_view(bytes).substr(0, size), {})) << size << " of " << bytes.size();
    }
  }
}

TEST(Decode, AnyBytesGiveAPictureOrAProblem) {
  const std::vector<std::string> files = pictures();
  rc::check("damaged pictures never break a decoder", [&] {
    std::string bytes = files[*rc::gen::inRange<size_t>(0, files.size())];
    bytes.resize(std::min<size_t>(bytes.size(), 20000));
    for (const auto& [place, byte] :
         *rc::gen::container<std::vector<std::pair<uint16_t, char>>>(rc::gen::arbitrary<std::pair<uint16_t, char>>())) {
      bytes[place % bytes.size()] = byte;
    }
    const DecodedImage image = decode_image(bytes, {.max_side = 2048});
    if (!image) return;
    RC_ASSERT(image->pixels.size() == static_cast<size_t>(image->width) * static_cast<size_t>(image->height) * 3);
    RC_ASSERT(std::max(image->width, image->height) <= 2048);
  });
}

TEST(Decode, WebpGivesThePixelsThatWereStored) {
  const DecodedImage picture = decode_image(*read_file(join_path(kFolder, "rgb_pattern_96x64.png")), {});
  ASSERT_TRUE(picture);
  uint8_t* stored = nullptr;
  const size_t size = WebPEncodeLosslessRGB(picture->pixels.data(), picture->width, picture->height, picture->width * 3, &stored);
  const std::string bytes(reinterpret_cast<const char*>(stored), size);
  WebPFree(stored);
  const DecodedImage again = decode_image(bytes, {});
  ASSERT_TRUE(again);
  EXPECT_EQ(again->pixels, picture->pixels);
  EXPECT_EQ(decode_image(bytes, {.max_side = 95}).problem(), ImageFault::kDimensionsTooLarge);
  for (size_t cut = 0; cut < size; cut += 7) EXPECT_FALSE(decode_image(std::string_view(bytes).substr(0, cut), {})) << cut;
  rc::check("damaged WebP never breaks the decoder", [&] {
    std::string damaged = bytes;
    for (const auto& [place, byte] :
         *rc::gen::container<std::vector<std::pair<uint16_t, char>>>(rc::gen::arbitrary<std::pair<uint16_t, char>>())) {
      damaged[place % damaged.size()] = byte;
    }
    (void)decode_image(damaged, {.max_side = 2048});
  });
}

TEST(Decode, HeadersThatPromiseTooMuchAreRefusedBeforeMemoryIsTaken) {
  std::string gif("GIF89a\xff\xff\xff\xff\x00\x00\x00", 13);
  EXPECT_EQ(decode_image(gif, {}).problem(), ImageFault::kDimensionsTooLarge);
  const auto names = list_directory(kFolder);
  std::string png = *read_file(join_path(kFolder, "tiny_1x1.png"));
  png[16] = '\x7f';  // the width's highest byte; the checksum no longer fits either
  EXPECT_FALSE(decode_image(png, {}));
  EXPECT_EQ(decode_image("", {}).problem(), ImageFault::kEmpty);
  EXPECT_EQ(decode_image("BM......", {}).problem(), ImageFault::kUnsupportedMediaType);
}

TEST(Resolve, LimitsOfARequest) {
  ImageResolver resolver(ImageLimits{});
  const std::vector<ImageSource> thousand(1000);
  const auto many = resolver.resolve(thousand);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.problem().fault, ImageFault::kTooMany);
  ImageSource big;
  big.url = "data:image/png;base64," + std::string(size_t{50} << 20, 'A');
  EXPECT_EQ(resolve_error(big), "ImageTooLarge");
  EXPECT_EQ(resolve_error({.url = "https://e.example/a.png"}), "Fetch");
  EXPECT_EQ(resolve_error({.url = "ftp://e.example/a.png"}), "InvalidDataUrl");
  EXPECT_EQ(resolver.quota().images, 0u);
}

TEST(Resolve, DataUrlsRoundTrip) {
  rc::check("bytes come back from their data URL", [](const std::string& bytes) {
    const auto decoded = decode_data_url(encode_data_url(bytes), bytes.size());
    RC_ASSERT(static_cast<bool>(decoded));
    RC_ASSERT(*decoded == bytes);
  });
  EXPECT_FALSE(decode_data_url("data:image/png;base64,AA=A", 9));
  EXPECT_FALSE(decode_data_url("data:image/png;base64,A", 9));
  EXPECT_TRUE(decode_data_url("DATA:image/PNG;base64,AA\n", 9));
}

TEST(Plan, EverySizeFitsItsTokens) {
  rc::check("any size ends in whole patches and at most max_tokens", [] {
    const auto width = *rc::gen::inRange<int64_t>(1, 8193), height = *rc::gen::inRange<int64_t>(1, 8193);
    const ImagePlan plan = plan_image(width, height, {});
    RC_ASSERT(plan.width % 14 == 0 && plan.height % 14 == 0);
    RC_ASSERT(plan.width > 0 && plan.height > 0 && plan.width <= 16380 && plan.height <= 16380);
    RC_ASSERT(plan.tokens <= 1024);
    RC_ASSERT(image_tokens(plan.width, plan.height, {}) == plan.tokens);
  });
}

TEST(Scale, OneColourStaysOneColour) {
  rc::check("scaling a plain picture changes no value", [](uint8_t level) {
    const auto width = *rc::gen::inRange<int32_t>(1, 40), height = *rc::gen::inRange<int32_t>(1, 40);
    RgbImage image{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), level)};
    const RgbImage larger = scale_bicubic(image, 53, 31), smaller = scale_area(image, (width + 1) / 2, (height + 1) / 2);
    RC_ASSERT(std::all_of(larger.pixels.begin(), larger.pixels.end(), [&](uint8_t v) { return v == level; }));
    RC_ASSERT(std::all_of(smaller.pixels.begin(), smaller.pixels.end(), [&](uint8_t v) { return v == level; }));
  });
}

TEST(Prepare, EqualPixelsHaveEqualNames) {
  RgbImage image{30, 20, std::vector<uint8_t>(1800, 9)};
  const PreparedImage one = prepare_image(image, "high", {}), two = prepare_image(image, "auto", {});
  EXPECT_EQ(one.content_hash, two.content_hash);
  EXPECT_EQ(one.content_hash.size(), 32u);
  image.pixels[0] = 200;
  EXPECT_NE(prepare_image(image, "high", {}).content_hash, one.content_hash);
  EXPECT_EQ(image_patches(one, 14).size(), one.pixels->pixels.size());
}

TEST(ResolveImages, LinksOfARequestShareABoundedTime) {
  ImageLimits limits;
  int fetched = 0;
  limits.fetch = [&](const std::string&, size_t) -> Result<std::string> {
    ++fetched;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return std::string("no picture");
  };
  limits.max_fetch_us = 1000;
  const std::vector<ImageSource> sources(3, {.url = "https://pictures.test/cat.png"});
  const auto resolved = ImageResolver(limits).resolve(sources);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.problem().fault, ImageFault::kFetch);
  EXPECT_EQ(fetched, 1);
}

TEST(ResolveImages, ARefusedLinkDoesNotPassLater) {
  for (const auto& [code, passes] : {std::pair{ErrorCode::kPermission, false}, {ErrorCode::kUnavailable, true}}) {
    ImageLimits limits;
    limits.fetch = [code = code](const std::string&, size_t) -> Result<std::string> { return Error{code, "why"}; };
    const std::vector<ImageSource> sources{{.url = "https://pictures.test/cat.png"}};
    const auto resolved = ImageResolver(limits).resolve(sources);
    ASSERT_FALSE(resolved);
    EXPECT_EQ(resolved.problem().is_retryable(), passes);
  }
}

TEST(ResolveImages, EqualBytesAreDecodedOnce) {
  std::vector<ImageSource> sources(5, {.bytes = *read_file(join_path(kFolder, "rgb_pattern_96x64.png"))});
  sources[3].detail = "auto";
  sources[4].bytes = *read_file(join_path(kFolder, "tiny_1x1.png"));
  const auto resolved = ImageResolver(ImageLimits{}).resolve(sources);
  ASSERT_TRUE(resolved);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ((*resolved).at(i).pixels, (*resolved).at(0).pixels);
  EXPECT_NE((*resolved).at(4).content_hash, (*resolved).at(0).content_hash);
}

TEST(ResolveImages, DecodingOfARequestHasABoundedTime) {
  ImageLimits limits;
  limits.max_decode_us = -1;
  const std::vector<ImageSource> sources(2, {.bytes = "no picture", .path = "here"});
  const auto resolved = ImageResolver(limits).resolve(sources);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.problem().fault, ImageFault::kTotalTooLarge);
  EXPECT_EQ(resolved.problem().message.substr(0, 15), "here.image[0]: ");
}

}  // namespace
}  // namespace deepinfer
