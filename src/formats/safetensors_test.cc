#include "formats/safetensors.h"

#include <unistd.h>

#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/value_scan.h"

namespace deepinfer {
namespace {

const std::string kShared = DEEPINFER_SOURCE_DIR "/../shared";

std::string temp_path(const std::string& name) {
  return testing::TempDir() + "safetensors_test_" + std::to_string(getpid()) + "_" + name;
}

// A file of a header text and `data_bytes` zeros.
std::string file_of(const std::string& header, size_t data_bytes, uint64_t length = 0) {
  const std::string path = temp_path("raw");
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (length == 0) length = header.size();
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header << std::string(data_bytes, '\0');
  return path;
}

// The message of opening that file, "" when it opens.
std::string fault(const std::string& header, size_t data_bytes, uint64_t length = 0) {
  const std::string path = file_of(header, data_bytes, length);
  const auto file = SafetensorsFile::open(path);
  if (file) return "";
  EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
  return file.error().message;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr const char* kTwo =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}})";

TEST(Safetensors, ReadsAGoodFile) {
  EXPECT_EQ(fault(kTwo, 12), "");
  EXPECT_EQ(fault("{}", 0), "");
  EXPECT_EQ(
      fault(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"I64","shape":[3,0],"data_offsets":[4,4]}})", 4),
      "");
  EXPECT_EQ(fault(R"({"__metadata__":{"format":"pt"},"s":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}   )", 1), "");
}

TEST(Safetensors, TruncatedNamesTheTensor) {
  const std::string message = fault(kTwo, 11);
  EXPECT_TRUE(has(message, "tensor \"b\"") && has(message, "truncated")) << message;
}

TEST(Safetensors, BadHeaderLength) {
  EXPECT_TRUE(has(fault(kTwo, 12, 1u << 30), "bad header length"));
  EXPECT_TRUE(has(fault(kTwo, 12, ~uint64_t{0}), "bad header length"));
  EXPECT_TRUE(has(fault(kTwo, 12, std::strlen(kTwo) - 3), "header: invalid JSON"));
  const std::string path = temp_path("short");
  std::ofstream(path) << "abc";
  EXPECT_TRUE(has(SafetensorsFile::open(path).error().message, "too few"));
}

TEST(Safetensors, OffsetsMustTileTheDataArea) {
  const auto two = [](const char* a, const char* b) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[8],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})", a, b);
  };
  EXPECT_EQ(fault(two("[4,12]", "[0,4]"), 12), "");
  const std::string overlap = fault(two("[0,8]", "[7,11]"), 11);
  EXPECT_TRUE(has(overlap, "tensor \"b\"") && has(overlap, "overlap tensor \"a\"")) << overlap;
  EXPECT_TRUE(has(fault(two("[0,8]", "[9,13]"), 13), "belong to no tensor"));
  EXPECT_TRUE(has(fault(two("[1,9]", "[9,13]"), 13), "belong to no tensor"));
  EXPECT_TRUE(has(fault(two("[0,8]", "[8,12]"), 13), "after the last tensor"));
  EXPECT_TRUE(has(fault(two("[8,0]", "[8,12]"), 12), "data_offsets must be"));
  EXPECT_TRUE(has(fault(two("[0,8,9]", "[8,12]"), 12), "data_offsets must be"));
  EXPECT_TRUE(has(fault(two("[-1,7]", "[8,12]"), 12), "non-negative"));
}

TEST(Safetensors, EntriesMustBeWellFormed) {
  const auto one = [](const char* entry) { return fmt::format(R"({{"a":{}}})", entry); };
  EXPECT_TRUE(has(fault(one("3"), 8), "must be an object"));
  EXPECT_TRUE(has(fault(one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), 8), "unknown dtype \"F31\""));
  EXPECT_TRUE(has(fault(one(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"), 8), "dtype must be a string"));
  EXPECT_TRUE(has(fault(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8), "F32 [3] does not take the 8 bytes"));
  EXPECT_TRUE(has(fault(one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), 8), "shape must be an array"));
  EXPECT_TRUE(has(fault(one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,8]})"), 8), "non-negative integers"));
  EXPECT_TRUE(has(fault(one(R"({"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,8]})"), 8),
                  "does not take"));
  EXPECT_TRUE(has(
      fault(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2),
      "appears twice"));
  EXPECT_TRUE(has(fault("[1]", 0), "must be a JSON object"));
  // A name must not break the line.
  EXPECT_TRUE(has(fault(R"({"a\nb":3})", 0), R"("a\nb")"));
}

TEST(Safetensors, WritesWhatItReads) {
  const std::vector<float> floats = {1, -2, 3.5f};
  const std::vector<uint8_t> bytes = {9, 8, 7, 6, 5};
  std::vector<TensorView> tensors(2);
  tensors[0] = {.name = "bytes \"x\"", .type = TensorType::kF8E4m3, .shape = {5}, .data = bytes};
  tensors[1] = {
      .name = "floats", .type = TensorType::kF32, .shape = {1, 3}, .data = {reinterpret_cast<const uint8_t*>(floats.data()), 12}};
  const std::string path = temp_path("written");
  ASSERT_TRUE(write_safetensors(path, tensors));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  const auto read = file->typed<float>("floats", {1, 3});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(std::vector<float>(read->begin(), read->end()), floats);
  const TensorView* odd = file->find("bytes \"x\"");
  ASSERT_NE(odd, nullptr);
  EXPECT_EQ(std::vector<uint8_t>(odd->data.begin(), odd->data.end()), bytes);
  EXPECT_TRUE(has(file->typed<float>("floats", {3}).error().message, "shape is [1, 3], expected [3]"));
  EXPECT_TRUE(has(file->typed<int32_t>("floats").error().message, "dtype is F32, expected I32"));
  EXPECT_TRUE(has(file->typed<float>("float").error().message, "missing"));
}

TEST(Safetensors, MisalignedDataIsAnErrorWhenTyped) {
  const std::string path =
      file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"f":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})", 7);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(has(file->typed<float>("f").error().message, "multiple of 4"));
}

TEST(Safetensors, ReadsTheGoldenFiles) {
  const std::string folder = kShared + "/golden/model/golden";
  if (!is_directory(folder)) GTEST_SKIP() << "left out: ../shared is not here";
  const auto names = list_directory(folder);
  ASSERT_TRUE(names);
  int count = 0;
  for (const std::string& name : *names) {
    if (!name.ends_with(".safetensors")) continue;
    const auto file = SafetensorsFile::open(join_path(folder, name));
    EXPECT_TRUE(file) << file.error().message;
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST(ValueScan, FindsTheFirstBadValueOfEveryType) {
  const size_t kCount = 10000;  // two whole blocks and a tail
  struct Case {
    TensorType type;
    std::vector<uint8_t> bad;
  };
  const Case cases[] = {{TensorType::kF8E4m3, {0x7F}},          {TensorType::kF8E4m3, {0xFF}},
                        {TensorType::kF8E8m0, {0xFF}},          {TensorType::kBf16, {0x80, 0x7F}},
                        {TensorType::kBf16, {0x81, 0xFF}},      {TensorType::kF32, {0, 0, 0x80, 0xFF}},
                        {TensorType::kF32, {1, 0, 0xC0, 0x7F}}, {TensorType::kF16, {0, 0x7C}}};
  for (const Case& c : cases) {
    const size_t width = tensor_type_bytes(c.type);
    for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{9000}, kCount - 1}) {
      std::vector<uint32_t> memory(kCount);
      auto* bytes = reinterpret_cast<uint8_t*>(memory.data());
      const TensorView view{
          .name = "x", .type = c.type, .shape = {static_cast<int64_t>(kCount)}, .data = {bytes, kCount * width}};
      EXPECT_EQ(first_invalid_value(view), -1);
      std::memcpy(bytes + at * width, c.bad.data(), width);
      EXPECT_EQ(first_invalid_value(view), static_cast<int64_t>(at)) << tensor_type_name(c.type);
    }
  }
}

}  // namespace
}  // namespace deepinfer
