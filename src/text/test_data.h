// text/test_data.h - files, small tokenizers and random texts the tests of this room share.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace deepinfer::test {

// A file of the shared reference data, or of what a fresh clone has of it; nothing when it is not there.
inline std::optional<std::string> shared_file(const std::string& path) {
  for (const char* root : {"/../shared/", "/", "/tests/"}) {
    const std::string full = std::string(DEEPINFER_SOURCE_DIR) + root + path;
    if (!file_exists(full)) continue;
    auto text = read_file(full);
    return text ? std::optional(*std::move(text)) : std::nullopt;
  }
  return std::nullopt;
}

inline constexpr const char* kTinyV41 = "models/tiny-v41/tokenizer.json";
inline constexpr const char* kTinyA = "golden/model/tiny-a/tokenizer.json";

using Merges = std::vector<std::pair<std::string, std::string>>;  // in bytes, by rank

// A tokenizer.json of V4.1's kind: the 256 bytes are ids 0 to 255, products follow by rank, then the added tokens.
inline Json tokenizer_json(const Merges& merges, const std::vector<std::pair<std::string, bool>>& added = {}) {
  std::vector<Json::Member> vocab;
  for (int byte = 0; byte < 256; ++byte) vocab.emplace_back(spell_bytes(std::string(1, static_cast<char>(byte))), byte);
  Json list = Json::array();
  for (const auto& [left, right] : merges) {
    list.push_back(Json::array({spell_bytes(left), spell_bytes(right)}));
    const std::string product = spell_bytes(left + right);
    bool known = false;
    for (const auto& [text, id] : vocab) known |= text == product;
    if (!known) vocab.emplace_back(product, static_cast<int>(vocab.size()));
  }
  Json added_list = Json::array();
  for (const auto& [text, special] : added) {
    const int id = static_cast<int>(vocab.size() + added_list.size());
    added_list.push_back(Json::object({{"id", id}, {"content", text}, {"special", special}, {"normalized", !special}}));
  }
  Json steps = Json::array();
  for (const std::string_view pattern : {kNumberSplit, kHanSplit, kWordSplit}) {
    steps.push_back(Json::object(
        {{"type", "Split"}, {"pattern", Json::object({{"Regex", pattern}})}, {"behavior", "Isolated"}, {"invert", false}}));
  }
  steps.push_back(Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}));
  Json json = Json::object();
  json.set("added_tokens", added_list);
  json.set("normalizer", Json());
  json.set("pre_tokenizer", Json::object({{"type", "Sequence"}, {"pretokenizers", steps}}));
  json.set("decoder", Json::object({{"type", "ByteLevel"}}));
  json.set("model", Json::object({{"type", "BPE"}, {"vocab", Json::object(vocab)}, {"merges", list}}));
  return json;
}

// Texts rich in what the splits look at; some with bytes that are not UTF-8.
inline std::string random_text(std::mt19937_64& random, size_t length, bool valid) {
  static const std::vector<std::string> kParts = {
      "a",      "b",      "the",    "Z",      "é",  "e\u0301", "\u0300", "中",  "、",     "カ",     "゠",  "・",
      "゙",       "\u3040", "一",     "龥",     "龦", " ",       "  ",     "\t",  "\n",     "\r\n",   "\v",  "\u0085",
      "\u3000", "\u00A0", "\u200B", "\u2028", "1",  "23",      "4567",   "²",   "Ⅷ",      "〇",     ".",   ",",
      "!",      "(",      ";",      "$",      "€",  "「",      "。",     "😀",   "\u0E49", "\uE000", "#",   "_",
      "'",      "`",      "ñ",      "Ж",      "한", "ﬀ",       "user",   "ing", "return", "====",   "aaaa"};
  static const std::vector<std::string> kBroken = {"\x80", "\xC3",         "\xE4\xB8", "\xF0\x9F\x98",
                                                   "\xFF", "\xED\xA0\x80", "\xC0\x80", "\xF5"};
  std::string out;
  while (out.size() < length) {
    if (!valid && random() % 6 == 0)
      out += kBroken[random() % kBroken.size()];
    else if (random() % 40 == 0)
      append_utf8(out, static_cast<uint32_t>(random() % 0xD800 + (random() % 3 == 0 ? 0x10000 : 0)));
    else
      out += kParts[random() % kParts.size()];
  }
  return out;
}

}  // namespace deepinfer::test
