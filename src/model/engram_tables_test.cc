#include "model/engram_tables.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "model/config.h"

namespace deepinfer {
namespace {

const std::string kShared = DEEPINFER_SOURCE_DIR "/../shared";

ModelShape release_shape() {
  ModelShape shape;
  shape.engram_layers = {1, 14};
  shape.engram_rows = {384006168, 384016682};
  shape.engram_heads = 8;
  shape.engram_dim = 256;
  shape.engram_vocab = 16000000;
  shape.engram_compressed_vocab = 99092;
  return shape;
}

Result<ModelShape> shape_of(const std::string& path) {
  DI_TRY(const std::string text, read_file(path));
  return parse_model_config(text, path);
}

TEST(EngramTables, ReleaseConstants) {
  const auto tables = make_engram_tables(release_shape());
  ASSERT_TRUE(tables) << tables.error().message;
  EXPECT_EQ(tables->multipliers, (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391,
                                                       67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(tables->primes.front(), 16000057);
  EXPECT_EQ(tables->primes[23], 16000463);
  EXPECT_EQ(tables->primes[24], 16000477);
  EXPECT_EQ(tables->primes.back(), 16000889);
  EXPECT_EQ(tables->offsets[0], 0);
  EXPECT_EQ(tables->offsets[25], 16000477);
}

TEST(EngramTables, WrongRowCountIsAnError) {
  ModelShape shape = release_shape();
  shape.engram_rows[1] += 1;
  const auto tables = make_engram_tables(shape);
  ASSERT_FALSE(tables);
  EXPECT_NE(tables.error().message.find("engram_num_embeddings of layer 14"), std::string::npos);
}

TEST(EngramTables, GoldenTables) {
  if (!is_directory(kShared)) GTEST_SKIP() << "left out: ../shared is not here";
  const auto shape = shape_of(kShared + "/golden/model/tiny-a/config.json");
  ASSERT_TRUE(shape) << shape.error().message;
  const auto golden = SafetensorsFile::open(kShared + "/golden/model/golden/ops.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const auto tables = make_engram_tables(*shape);
  ASSERT_TRUE(tables) << tables.error().message;
  const auto multipliers = golden->typed<int64_t>("engram.multipliers");
  const auto primes = golden->typed<int32_t>("engram.primes");
  const auto offsets = golden->typed<int32_t>("engram.offsets");
  ASSERT_TRUE(multipliers && primes && offsets);
  EXPECT_TRUE(std::equal(multipliers->begin(), multipliers->end(), tables->multipliers.begin(), tables->multipliers.end()));
  EXPECT_TRUE(std::equal(primes->begin(), primes->end(), tables->primes.begin(), tables->primes.end()));
  EXPECT_TRUE(std::equal(offsets->begin(), offsets->end(), tables->offsets.begin(), tables->offsets.end()));

  const auto release = make_engram_tables(release_shape());
  ASSERT_TRUE(release);
  const auto release_primes = golden->typed<int32_t>("engram_release.primes");
  const auto release_offsets = golden->typed<int64_t>("engram_release.offsets");
  ASSERT_TRUE(release_primes && release_offsets);
  EXPECT_TRUE(std::equal(release_primes->begin(), release_primes->end(), release->primes.begin(), release->primes.end()));
  EXPECT_TRUE(std::equal(release_offsets->begin(), release_offsets->end(), release->offsets.begin(), release->offsets.end()));
}

TEST(EngramTables, ShippedModel) {
  if (!is_directory(kShared)) GTEST_SKIP() << "left out: ../shared is not here";
  const auto shape = shape_of(kShared + "/models/tiny-v41/config.json");
  ASSERT_TRUE(shape) << shape.error().message;
  const auto text = read_file(kShared + "/models/tiny-v41/engram_hash.json");
  ASSERT_TRUE(text);
  const auto json = Json::parse(*text);
  ASSERT_TRUE(json);
  const auto tables = make_engram_tables(*shape);
  ASSERT_TRUE(tables) << tables.error().message;
  const auto flat = [](const Json& rows) {
    std::vector<int64_t> out;
    for (const Json& row : rows.items()) {
      for (const Json& item : row.items()) out.push_back(*item.to_int64("item"));
    }
    return out;
  };
  EXPECT_EQ(flat(json->at("mult")), tables->multipliers);
  EXPECT_EQ(flat(json->at("primes")), tables->primes);
}

}  // namespace
}  // namespace deepinfer
