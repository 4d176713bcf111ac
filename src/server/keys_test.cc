#include "server/keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace deepinfer {
namespace {

const std::string kAlice = sha256_hex("sk-alice");

std::string key_file(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/deepinfer-keys-" + std::to_string(getpid());
  EXPECT_TRUE(write_file(path, text));
  return path;
}

TEST(Keys, HashIsSha256) { EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); }

TEST(Keys, WithoutAFileNobodyNeedsOne) { EXPECT_FALSE(KeyRing().required()); }

TEST(Keys, FindsByHash) {
  const auto keys = KeyRing::open(key_file("# us\n\nalice " + kAlice + "\nroot sha256:" + sha256_hex("sk-root") + "\n"));
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_TRUE(keys->required());
  ASSERT_NE(keys->find("sk-alice"), nullptr);
  EXPECT_EQ(keys->find("sk-alice")->name, "alice");
  EXPECT_EQ(keys->find("sk-root")->name, "root");
  EXPECT_EQ(keys->find("sk-mallory"), nullptr);
  EXPECT_EQ(keys->find(kAlice), nullptr) << "the hash is no key";
}

TEST(Keys, LimitsStandBehindTheHash) {
  const auto keys = KeyRing::open(key_file("alice " + kAlice + "  - tokens=5000 requests=60\n"));
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->find("sk-alice")->limits.requests, 60);
  EXPECT_EQ(keys->find("sk-alice")->limits.tokens, 5000);
  for (const char* wrong : {"tokens=", "tokens=0", "tokens=-1", "requests=1x", "=5", "requests"})
    EXPECT_FALSE(KeyRing::open(key_file("alice " + kAlice + " " + wrong + "\n"))) << wrong;
}

TEST(Keys, AnEmptyFileLetsNobodyIn) {
  const auto keys = KeyRing::open(key_file(""));
  ASSERT_TRUE(keys);
  EXPECT_TRUE(keys->required());
  EXPECT_EQ(keys->find(""), nullptr);
}

TEST(Keys, FaultsNameTheLine) {
  const std::string boss = "alice " + kAlice + " boss\n", twice = "a " + kAlice + "\nb " + kAlice;
  for (const std::string& text : {std::string("alice\n"), std::string("alice 1234\n"), boss, twice}) {
    const auto keys = KeyRing::open(key_file("# first\n" + text));
    ASSERT_FALSE(keys) << text;
    EXPECT_TRUE(keys.error().message.find(":2:") != std::string::npos || keys.error().message.find(":3:") != std::string::npos)
        << keys.error().message;
  }
  EXPECT_FALSE(KeyRing::open("/nonexistent/keys"));
}

TEST(Keys, AKeyMaySayHowLongItsPagesAreKept) {
  const auto keys = KeyRing::open(key_file("alice " + kAlice + " -  pinned\nbob " + sha256_hex("sk-bob") + "\n"));
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->find("sk-alice")->retention, RetentionClass::kPinned);
  EXPECT_FALSE(keys->find("sk-bob")->retention);
}

TEST(Keys, ABadReloadKeepsTheOldKeys) {
  const std::string path = key_file("alice " + kAlice + "\n");
  auto keys = KeyRing::open(path);
  ASSERT_TRUE(keys);
  EXPECT_TRUE(keys->reload_if_changed());
  ASSERT_TRUE(write_file(path, "nonsense and more\n"));
  EXPECT_FALSE(keys->reload_if_changed());
  EXPECT_TRUE(keys->reload_if_changed()) << "told once";
  EXPECT_NE(keys->find("sk-alice"), nullptr);
  ASSERT_TRUE(write_file(path, "bob " + sha256_hex("sk-bob") + "\n"));
  EXPECT_TRUE(keys->reload_if_changed());
  EXPECT_EQ(keys->find("sk-alice"), nullptr);
  EXPECT_NE(keys->find("sk-bob"), nullptr);
}

TEST(Keys, ReadsBothHeaders) {
  EXPECT_EQ(presented_key({{"Authorization", "Bearer x"}}), "x");
  EXPECT_EQ(presented_key({{"authorization", "bearer  y"}}), " y");
  EXPECT_EQ(presented_key({{"X-Api-Key", "z"}}), "z");
  EXPECT_EQ(presented_key({{"authorization", "Basic eDp5"}}), std::nullopt);
  EXPECT_EQ(presented_key({}), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
