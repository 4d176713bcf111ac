#include "base/base64.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Base64, EveryLengthReadsBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(base64_decoded(base64(bytes)), bytes);
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
}

TEST(Base64, WhatIsNoneIsNotRead) {
  EXPECT_EQ(base64_decoded("Zm9v\r\nYmE"), "fooba");
  for (const char* text : {"A", "Zm9vA", "Z-9_", "Zg==Zg==", "Zm9*"}) EXPECT_FALSE(base64_decoded(text)) << text;
  EXPECT_EQ(base64_decoded("AAAAAAAAAAAA", 3)->size(), 4u);
}

}  // namespace
}  // namespace deepinfer
