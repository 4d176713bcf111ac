#include "engine/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace deepinfer {
namespace {

ModelShape shape_of_tests() {
  ModelShape shape;
  shape.vocab = 67;
  shape.hidden = 4;
  return shape;
}

// The refusal of a good request after one change; empty = accepted.
std::string why(const std::function<void(Request&)>& change) {
  Request request;
  request.prompt = {3, 4, 5, 6, 7, 8};
  change(request);
  const Status status = validate_request(request, shape_of_tests(), 40);
  return status ? "" : status.error().message;
}

TEST(Validate, AGoodRequestPasses) {
  EXPECT_EQ(why([](Request&) {}), "");
  EXPECT_EQ(why([](Request& r) { r.prompt.assign(39, 3); }), "");
  EXPECT_EQ(why([](Request& r) {
              r.sampling = {.temperature = 0.0f, .top_k = 7, .top_p = 0.0f, .min_p = 1.0f, .repetition_penalty = 0.1f};
              r.sampling.seed = std::numeric_limits<uint64_t>::max() >> 1;
              r.sampling.num_logprobs = 20;
              r.sampling.logit_bias = {{66, -100.0f}};
            }),
            "");
}

TEST(Validate, PromptAndLimits) {
  EXPECT_EQ(why([](Request& r) { r.prompt.clear(); }), "the prompt is empty: it needs at least one token");
  EXPECT_EQ(
      why([](Request& r) { r.prompt.assign(41, 3); }),
      "the prompt has 41 tokens, the context is 40 and one must be left for the answer: shorten the prompt or raise the context");
  EXPECT_EQ(why([](Request& r) { r.prompt[1] = 67; }), "prompt: token 67 is not in the vocabulary of 67");
  EXPECT_EQ(why([](Request& r) { r.prompt[1] = -1; }), "prompt: token -1 is not in the vocabulary of 67");
  EXPECT_EQ(why([](Request& r) { r.stop_ids = {99}; }), "stop_ids: token 99 is not in the vocabulary of 67");
  EXPECT_EQ(why([](Request& r) { r.max_tokens = -1; }), "max_tokens must be 0 (up to the context) or more, got -1");
}

TEST(Validate, Sampling) {
  EXPECT_EQ(why([](Request& r) { r.sampling.temperature = -0.5f; }), "temperature must be 0 or more, got -0.5");
  EXPECT_EQ(why([](Request& r) { r.sampling.temperature = NAN; }), "temperature must be 0 or more, got nan");
  EXPECT_EQ(why([](Request& r) { r.sampling.temperature = INFINITY; }), "temperature must be 0 or more, got inf");
  EXPECT_EQ(why([](Request& r) { r.sampling.top_p = 1.5f; }), "top_p must be 0 to 1, got 1.5");
  EXPECT_EQ(why([](Request& r) { r.sampling.top_p = NAN; }), "top_p must be 0 to 1, got nan");
  EXPECT_EQ(why([](Request& r) { r.sampling.min_p = -1.0f; }), "min_p must be 0 to 1, got -1");
  EXPECT_EQ(why([](Request& r) { r.sampling.top_k = -1; }), "top_k must be 0 (all) or more, got -1");
  EXPECT_EQ(why([](Request& r) { r.sampling.repetition_penalty = 0.0f; }), "repetition_penalty must be more than 0, got 0");
  EXPECT_EQ(why([](Request& r) { r.sampling.frequency_penalty = INFINITY; }),
            "frequency_penalty must be a finite number, got inf");
  EXPECT_EQ(why([](Request& r) { r.sampling.presence_penalty = NAN; }), "presence_penalty must be a finite number, got nan");
  EXPECT_EQ(why([](Request& r) { r.sampling.seed = uint64_t{1} << 63; }), "seed must be 0 to 2^63 - 1, got 9223372036854775808");
  EXPECT_EQ(why([](Request& r) { r.sampling.num_logprobs = 21; }), "logprobs must be 0 to 20, got 21");
  EXPECT_EQ(why([](Request& r) { r.sampling.logit_bias = {{70, 1.0f}}; }), "logit_bias: token 70 is not in the vocabulary of 67");
  EXPECT_EQ(why([](Request& r) { r.sampling.logit_bias = {{7, NAN}}; }), "logit_bias must be a finite number, got nan");
}

TEST(Validate, Images) {
  const auto with_image = [](Position begin, int32_t rows, size_t values) {
    return why([=](Request& r) {
      r.images.resize(1);
      r.images[0].begin = begin;
      r.images[0].rows = rows;
      r.images[0].embeddings.resize(values);
    });
  };
  EXPECT_EQ(with_image(1, 5, 20), "");
  EXPECT_EQ(with_image(2, 5, 20), "image rows 2 to 7 do not lie in order inside the prompt of 6 tokens");
  EXPECT_EQ(with_image(1, 2, 7), "image at 1: 7 embedding values, 2 rows of 4 need 8");
}

}  // namespace
}  // namespace deepinfer
