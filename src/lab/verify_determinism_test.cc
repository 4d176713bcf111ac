#include "lab/verify_determinism.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace deepinfer {
namespace {

// A model whose fourth layer is wrong whenever sequences share a step.
void spoil(const TracedValue& value) {
  const ProbePoint& point = value.point;
  if (value.plan.sequences.size() < 2 || point.layer != 3 || std::string_view(point.name) != "resid") return;
  auto* streams = static_cast<uint16_t*>(point.data);
  for (int64_t row = 0; row < point.rows; ++row) streams[row * point.row_bytes / 2] ^= 0x4000;
}

TEST(VerifyDeterminism, AFaultIsFoundAndBisectedToItsLayerAndOperation) {
  const std::string capture = "/tmp/deepinfer-capture-" + std::to_string(getpid()) + ".json";
  DeterminismOptions options{.axis = "chunk", .bisect = true, .capture = capture, .hook = spoil};
  options.host.model = "models/tiny-v41";
  options.host.context = 512;
  const auto report = verify_determinism(options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->holds());
  int spoiled = 0;
  for (const DeterminismRow& row : report->rows) {
    if (row.requests == 0) continue;
    EXPECT_EQ(row.holds, row.value == "64 rows") << "only the other rows share steps: " << row.what;
    if (row.holds) continue;
    ++spoiled;
    EXPECT_NE(row.what.find("layer 3, resid"), std::string::npos) << row.what;
  }
  EXPECT_EQ(spoiled, 3);
  const auto text = read_file(capture);
  ASSERT_TRUE(text);
  const auto json = Json::parse(*text);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->at("first").at("operation").as_string(), "resid");
  EXPECT_GT(json->at("prompt").size(), 0u);
  unlink(capture.c_str());
}

TEST(VerifyDeterminism, AnUnknownAxisIsRefused) {
  DeterminismOptions options{.axis = "weather"};
  options.host.model = "models/tiny-v41";
  EXPECT_EQ(verify_determinism(options).error().message, "--axis weather: there is no such axis");
}

}  // namespace
}  // namespace deepinfer
