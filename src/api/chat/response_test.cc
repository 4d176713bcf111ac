#include "api/chat/response.h"

#include <gtest/gtest.h>

#include "api/errors.h"

namespace deepinfer {
namespace {

TEST(ToolCallSuffix, DependsOnSeedAndIndexOnly) {
  EXPECT_EQ(tool_call_suffix(1, 0), tool_call_suffix(1, 0));
  EXPECT_NE(tool_call_suffix(1, 0), tool_call_suffix(1, 1));
  EXPECT_NE(tool_call_suffix(1, 0), tool_call_suffix(2, 0));
  EXPECT_EQ(tool_call_suffix(7, 3).size(), 24u);
}

TEST(WireErrors, TableCoversEveryCode) {
  EXPECT_EQ(wire_status(ErrorCode::kInvalidArgument).http, 400);
  EXPECT_TRUE(wire_status(ErrorCode::kExhausted).retry);
  EXPECT_FALSE(wire_status(ErrorCode::kTooLarge).retry);
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    EXPECT_GE(wire_status(static_cast<ErrorCode>(code)).http, 400);
  }
  EXPECT_EQ(error_body(invalid_argument("no")).dump(),
            R"({"error":{"message":"no","type":"invalid_request_error","param":null,"code":"invalid_request_error"}})");
}

}  // namespace
}  // namespace deepinfer
