#include "host/compressed_file.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <rapidcheck.h>

namespace deepinfer {
namespace {

std::string compress(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

TEST(CompressedFile, RoundTripsAnySize) {
  for (const size_t size : {0u, 1u, 1000u, 131072u, 131073u, 3000000u}) {
    const std::string text(size, 'a');
    const auto back = decompress(compress(text), "x.zst");
    ASSERT_TRUE(back.ok()) << size;
    EXPECT_EQ(*back, text) << size;
  }
  const bool held =
      rc::check("any bytes", [](const std::string& text) { RC_ASSERT(*decompress(compress(text), "x.zst") == text); });
  EXPECT_TRUE(held);
}

TEST(CompressedFile, DamageIsAnErrorThatNamesTheFile) {
  std::string bytes = compress(std::string(100000, 'a') + "end");
  for (const std::string& bad : {bytes.substr(0, bytes.size() / 2), std::string("not zstd at all"), bytes + "tail"}) {
    const auto back = decompress(bad, "x.zst");
    ASSERT_FALSE(back.ok());
    EXPECT_NE(back.error().message.find("x.zst"), std::string::npos);
  }
}

}  // namespace
}  // namespace deepinfer
