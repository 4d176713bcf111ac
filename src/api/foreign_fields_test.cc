#include "api/foreign_fields.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

Result<ForeignFields> read(const char* text) { return read_foreign_fields(*Json::parse(text)); }

TEST(ForeignFields, WhatMeansTheSameIsHonoured) {
  const ForeignFields none = *read(R"({"model": "m", "unknown": {"x": 1}, "ignore_eos": false, "min_tokens": 0, "top_k": null})");
  EXPECT_EQ(none.top_k, 0);
  EXPECT_EQ(none.repetition_penalty, 1);
  EXPECT_FALSE(none.thinking);
  const ForeignFields all = *read(R"({"top_k": 5, "min_p": 0.25, "repetition_penalty": 1.5, "enable_thinking": false})");
  EXPECT_EQ(all.top_k, 5);
  EXPECT_EQ(all.min_p, 0.25f);
  EXPECT_EQ(all.repetition_penalty, 1.5f);
  EXPECT_EQ(all.thinking, false);
  EXPECT_EQ(read(R"({"top_k": -1})")->top_k, 0);
  EXPECT_EQ(read(R"({"chat_template_kwargs": {"thinking": true}})")->thinking, true);
}

TEST(ForeignFields, WhatWouldBeLostIsRefusedByName) {
  for (const char* name : {"guided_json", "guided_regex", "grammar", "structured_outputs"}) {
    const auto refused = read((std::string("{\"") + name + "\": \"x\"}").c_str());
    ASSERT_FALSE(refused) << name;
    EXPECT_NE(refused.error().message.find(name), std::string::npos);
    EXPECT_NE(refused.error().message.find("response_format"), std::string::npos);
  }
  for (const char* text : {R"({"min_tokens": 3})", R"({"stop_token_ids": [1]})", R"({"ignore_eos": true})", R"({"top_k": 1.5})",
                           R"({"top_k": "x"})", R"({"min_p": 2})", R"({"repetition_penalty": 0})", R"({"enable_thinking": 1})",
                           R"({"chat_template_kwargs": {"tools": []}})"}) {
    EXPECT_FALSE(read(text)) << text;
  }
}

}  // namespace
}  // namespace deepinfer
