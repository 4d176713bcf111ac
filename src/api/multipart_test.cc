#include "api/multipart.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace deepinfer {
namespace {

const std::string kType = "multipart/form-data; boundary=\"xx yy\"";

TEST(Multipart, ReadsFields) {
  const std::string body =
      "--xx yy\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--xx yy\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".jsonl\"\r\nContent-Type: "
      "text/plain\r\n\r\n"
      "line 1\r\n\r\n--xx line 2\r\n--xx yy--\r\n";
  const auto parts = parse_form(kType, body);
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].content, "batch");
  EXPECT_EQ((*parts)[1].filename, "a \"b\".jsonl");
  EXPECT_EQ((*parts)[1].content, "line 1\r\n\r\n--xx line 2");
}

TEST(Multipart, RefusesDamage) {
  EXPECT_FALSE(parse_form("multipart/form-data", "x"));
  EXPECT_FALSE(parse_form(kType, ""));
  EXPECT_FALSE(parse_form(kType, "--xx yy\r\n\r\nno end"));
  EXPECT_FALSE(parse_form(kType, "--xx yy"));
  rc::check("any bytes", [](const std::string& bytes) { (void)parse_form(kType, "--xx yy\r\n" + bytes); });
}

}  // namespace
}  // namespace deepinfer
