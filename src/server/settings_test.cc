#include "server/settings.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(ServeSettings, TheConfigurationReadsBackToItself) {
  ServeSettings settings;
  settings.port = 1234;
  settings.cors = "https://a \"quoted\"\\";
  const std::string text = config_text(fields_of(settings));
  ServeSettings other;
  const auto fields = fields_of(other);
  ASSERT_TRUE(apply_config_text(text, "test", fields));
  EXPECT_EQ(config_text(fields_of(other)), text);
  EXPECT_EQ(other.port, 1234);
  EXPECT_EQ(other.cors, settings.cors);
}

TEST(ServeSettings, FaultsNameFileLineAndTheNearestKey) {
  ServeSettings settings;
  const auto fields = fields_of(settings);
  const auto message = [&](const char* text) {
    const Status status = apply_config_text(text, "f.toml", fields);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_NE(message("\nprot = 1").find("f.toml:2: unknown setting 'prot'; did you mean port?"), std::string::npos)
      << message("\nprot = 1");
  EXPECT_NE(message("config = \"x\"").find("unknown setting"), std::string::npos);
  EXPECT_NE(message("port = -1").find("f.toml:1: --port"), std::string::npos) << message("port = -1");
  EXPECT_NE(message("profile = \"opne\"").find("did you mean open?"), std::string::npos);
  EXPECT_NE(message("port = 1\nport = 2").find("f.toml:2"), std::string::npos);
  EXPECT_EQ(message("max_body_mb = 7"), "accepted");
  EXPECT_EQ(settings.max_body_mb, 7);
}

}  // namespace
}  // namespace deepinfer
