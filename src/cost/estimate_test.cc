#include "cost/estimate.h"

#include <gtest/gtest.h>

#include "cost/storage.h"

namespace deepinfer {
namespace {

ModelShape small_shape() {
  ModelShape shape;
  shape.vocab = 1000, shape.hidden = 256, shape.layers = 2, shape.heads = 4, shape.head_dim = 64, shape.q_rank = 64;
  shape.o_rank = 64, shape.o_groups = 2, shape.expert_hidden = 128, shape.experts = 16, shape.experts_per_token = 2;
  shape.window = 32, shape.plan.resize(2);
  return shape;
}
const Hardware kReads{.name = "reads", .read = 1e9, .fp4 = 1e15, .fp8 = 1e15, .wide = 1e15, .disk = 1e8};
const Hardware kSlow{.name = "slow", .read = 1e9, .fp4 = 1e9, .fp8 = 1e9, .wide = 1e9, .disk = 1e8};

TEST(Hardware, Descriptions) {
  const auto parsed = parse_hardware(
      R"({"name": "x", "memory_gb": 80, "read_gb_s": 3350, "fp8_tflops": 1900, "wide_tflops": 950, "reached_read": 0.5})",
      "x.json");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->fp4, 1900e12);
  EXPECT_EQ(as_reached(*parsed).read, 1675e9);
  const auto message = [](const char* text) { return parse_hardware(text, "x.json").error().message; };
  EXPECT_EQ(message("[]"), "x.json: a description of hardware is one JSON object");
  EXPECT_NE(message(R"({"memry_gb": 80})").find("memory_gb"), std::string::npos);
  EXPECT_EQ(message(R"({"memory_gb": 0})"), "x.json: memory_gb must be above 0");
  EXPECT_EQ(message(R"({"memory_gb": 80})"), "x.json: read_gb_s is missing");
  EXPECT_EQ(message(R"({"memory_gb": 1e10})"), "x.json: memory_gb must be at most 1000000000");
  EXPECT_EQ(message(R"({"reached_read": 42})"), "x.json: reached_read must be at most 1");
  EXPECT_EQ(message(R"({"devices_per_machine": 0.5})"), "x.json: devices_per_machine must be a whole number");
  EXPECT_EQ(message(R"({"name": 7})"), "x.json: name must be text");
}

TEST(Estimate, TheLongerOfReadingAndMultiplying) {
  EXPECT_EQ(kernel_seconds({.weight_bytes = 2e9, .other_bytes = 1e9, .fp8_flops = 1e9}, kSlow), 3);
  EXPECT_EQ(kernel_seconds({.weight_bytes = 1e9, .fp4_flops = 1e9, .fp8_flops = 1e9, .wide_flops = 2e9}, kSlow), 4);
  EXPECT_EQ(kernel_seconds({.weight_bytes = 1e9, .fp8_flops = 1e12}, {.read = 1e9}), 1);  // what is not known is no limit
}

TEST(Estimate, StreamsForATarget) {
  const ModelShape shape = small_shape();
  const auto per_user = [&](int32_t streams) {
    return estimate_decode(shape, kSlow, {.streams = double{1} * streams, .context = 100}).per_user;
  };
  const auto at = [&](double wanted, int32_t most) {
    return most_streams(most, [&](int32_t streams) { return per_user(streams) >= wanted; });
  };
  EXPECT_EQ(at(per_user(9), 100), 9);
  EXPECT_EQ(at(1, 7), 7);
  EXPECT_EQ(at(1e9, 7), 0);
}

TEST(Estimate, WhatIsMissingComesFromTheDisk) {
  const ModelShape shape = small_shape();
  const DecodeEstimate all = estimate_decode(shape, kReads, {}), none = estimate_decode(shape, kReads, {.from_disk = 1});
  const double experts = 2 * 2 * 3.0 * 256 * 128 * (0.5 + 1.0 / 32);  // layers, chosen, matrices
  EXPECT_NEAR(none.seconds - all.seconds, experts / kReads.disk - experts / kReads.read, 1e-9);
  EXPECT_EQ(none.bound, Bound::kDisk);
  EXPECT_EQ(estimate_decode(shape, kReads, {.from_disk = 0.05}).seconds, all.seconds);  // behind the products of experts
}

TEST(Estimate, PromptsInStepsAreLongerThanInOne) {
  const ModelShape shape = small_shape();
  const PromptEstimate one = estimate_prompt(shape, kReads, {.tokens = 512}),
                       many = estimate_prompt(shape, kReads, {.tokens = 512, .chunk = 8});
  EXPECT_LT(one.seconds, many.seconds);
  EXPECT_LT(estimate_prompt(shape, kReads, {.tokens = 512, .cached = 256}).seconds, one.seconds);
}

TEST(ResidentExperts, ThreeQuartersOfWhatIsFreeOrAsWished) {
  EXPECT_EQ(resident_experts(50, 10, 100, 0), 1);
  EXPECT_EQ(resident_experts(130, 10, 100, 0), 0.5);
  EXPECT_EQ(resident_experts(80, 10, 100, 20), 0.25);
  EXPECT_EQ(resident_experts(80, 200, 100, 0), 0);
  EXPECT_EQ(resident_experts(0, 10, 100, 0), 1);
  EXPECT_EQ(experts_from_disk(80, 0.25, 61), 0);  // the cache of files has them
  EXPECT_EQ(experts_from_disk(80, 0.25, 59), 0.75);
}

}  // namespace
}  // namespace deepinfer
