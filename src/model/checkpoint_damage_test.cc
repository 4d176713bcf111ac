// Thousands of damaged checkpoints: each gives a usable model or one line that names the file, never a crash.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "model/checkpoint_fixture.h"

namespace deepinfer {
namespace {

using CheckpointDamageTest = CheckpointTest;

// Random numbers of the test, the same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t x = (state_ ^ state_ >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(next() % bound); }

 private:
  uint64_t state_;
};

// Writes one damaged file; its name is returned.
class Damage {
 public:
  Damage(Dice& dice, const std::vector<std::string>& names, const std::vector<std::string>& contents) : dice_(dice) {
    // config.json is the first file, the index the last; the two matter as much as all shards together.
    const size_t last = names.size() - 1;
    which = dice.below(2) == 0 ? dice.below(2) * last : dice.below(names.size());
    bytes = contents[which];
    names[which].ends_with(".json") ? damage_json_file() : damage_shard();
  }
  size_t which = 0;
  std::string bytes;

 private:
  void damage_json_file() {
    if (dice_.below(3) == 0) return damage_bytes(0, bytes.size());
    bytes = damaged_json(bytes);
  }

  void damage_shard() {
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    switch (dice_.below(4)) {
      case 0: return damage_bytes(8, header);
      case 1: {  // header length
        const uint64_t choices[] = {0,
                                    1,
                                    2,
                                    header - 1,
                                    header + 1,
                                    header + 8,
                                    bytes.size(),
                                    bytes.size() - 8,
                                    bytes.size() - 7,
                                    dice_.next(),
                                    dice_.next() >> 40,
                                    ~uint64_t{0},
                                    uint64_t{1} << 63};
        std::memcpy(bytes.data(), &choices[dice_.below(std::size(choices))], 8);
        return;
      }
      case 2: return damage_bytes(0, bytes.size());
      default: {  // header JSON, length and padding made to fit
        const std::string data = bytes.substr(8 + header);
        std::string text = damaged_json(bytes.substr(8, header));
        while ((text.size() + 8) % 64 != 0) text += ' ';
        const uint64_t length = text.size();
        bytes.assign(reinterpret_cast<const char*>(&length), 8);
        bytes += text + data;
      }
    }
  }

  // A cut, a flip or some foreign bytes inside [begin, begin + length).
  void damage_bytes(size_t begin, size_t length) {
    switch (dice_.below(3)) {
      case 0: bytes.resize(begin + dice_.below(length)); return;
      case 1: bytes[begin + dice_.below(length)] ^= static_cast<char>(1u << dice_.below(8)); return;
      default:
        for (size_t i = 0; i < 4; ++i) bytes[begin + dice_.below(length)] = static_cast<char>(dice_.next());
    }
  }

  // The document with one node, found by a random walk, replaced, removed or doubled.
  std::string damaged_json(const std::string& text) {
    auto json = Json::parse(text);
    if (!json) return text;
    Json* node = &*json;
    while (true) {
      const bool container = (node->is_object() || node->is_array()) && node->size() > 0;
      if (!container || (node != &*json && dice_.below(8) == 0)) break;
      const size_t i = dice_.below(node->size());
      if (node->is_object() && dice_.below(6) == 0) {
        if (dice_.below(2) == 0) {
          node->members().erase(node->members().begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          const Json::Member twin = node->members()[i];
          node->members().push_back(twin);
        }
        return json->dump();
      }
      node = node->is_object() ? &node->members()[i].second : &node->items()[i];
    }
    *node = edge_value(*node);
    return json->dump();
  }

  Json edge_value(const Json& old) {
    const char* numbers[] = {"0",
                             "-1",
                             "1",
                             "2",
                             "3",
                             "31",
                             "32",
                             "33",
                             "64",
                             "1024",
                             "65536",
                             "2147483647",
                             "2147483648",
                             "4294967296",
                             "9223372036854775807",
                             "9223372036854775808",
                             "-9223372036854775808",
                             "1e400",
                             "0.5",
                             "1e3",
                             "1e-30",
                             "1000000007",
                             "131072"};
    switch (dice_.below(8)) {
      case 0: return Json();
      case 1: return Json("x");
      case 2: return Json::array();
      case 3: return Json::object();
      case 4:
        if (const auto value = old.to_int64("x")) return Json(*value + static_cast<int64_t>(dice_.below(3)) - 1);
        return Json(true);
      default: return Json::number(numbers[dice_.below(std::size(numbers))]);
    }
  }

  Dice& dice_;
};

TEST_F(CheckpointDamageTest, DamagedFilesNeverCrash) {
  constexpr uint64_t kRounds = 4000;
  int usable = 0;
  std::set<std::string> kinds;
  for (uint64_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    Dice dice(round);
    const Damage damage(dice, files_, contents_);
    put(files_[damage.which], damage.bytes);
    const auto weights = load(directory_);
    usable += weights.ok();
    if (!weights) {
      const std::string& message = weights.error().message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_NE(message.find(directory_), std::string::npos) << message;
      EXPECT_LT(message.size(), 1200u);
      kinds.insert(message.substr(0, message.size() / 2));
    }
    put(files_[damage.which], contents_[damage.which]);
    if (HasFailure()) break;
  }
  // The dice must reach both sides: harmless damage exists, and faults of many kinds.
  EXPECT_GT(usable, 20);
  EXPECT_LT(usable, static_cast<int>(kRounds) * 3 / 4);
  EXPECT_GT(kinds.size(), 100u);
  EXPECT_TRUE(load(directory_));
}

}  // namespace
}  // namespace deepinfer
