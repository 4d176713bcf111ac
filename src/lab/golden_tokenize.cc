#include "lab/golden_tokenize.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "text/detokenizer.h"

namespace deepinfer {
namespace {

using Ids = std::vector<TokenId>;

Result<Ids> read_ids(const Json& value) {
  if (!value.is_array()) return corrupt("ids must be an array");
  Ids ids;
  for (const Json& item : value.items()) {
    DI_TRY(const int64_t id, item.to_int64("ids"));
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids) {
  Detokenizer out(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += out.push(id);
  return text + out.finish();
}

// What differs, or "".
std::string compare_ids(const Ids& wanted, const Ids& got) {
  if (wanted == got) return "";
  const auto [w, g] = std::mismatch(wanted.begin(), wanted.end(), got.begin(), got.end());
  return fmt::format("id {} of {} is {}, expected {} of {}", w - wanted.begin(), got.size(),
                     g == got.end() ? "missing" : fmt::to_string(*g), w == wanted.end() ? "none" : fmt::to_string(*w),
                     wanted.size());
}

std::string compare_text(std::string_view name, const Json& wanted, const std::string& got) {
  if (wanted == Json(got)) return "";
  return fmt::format("{} is {}, expected {}", name, Json(got).dump(), wanted.dump());
}

std::string check_decode(const Json& golden, const Tokenizer& tokenizer, const Ids& ids) {
  std::string difference = compare_text("bytes_hex", golden.at("bytes_hex"), to_hex(tokenizer.decode_bytes(ids)));
  if (difference.empty()) difference = compare_text("text", golden.at("text"), tokenizer.decode(ids));
  if (difference.empty())
    difference = compare_text("text_skip_special", golden.at("text_skip_special"), tokenizer.decode(ids, true));
  if (difference.empty()) difference = compare_text("streamed text", golden.at("text"), stream(tokenizer, ids));
  return difference;
}

Result<std::string> run_case(const Json& golden, const Tokenizer& tokenizer) {
  DI_TRY(const std::string op, golden.at("op").to_string("op"));
  DI_TRY(const Ids ids, read_ids(golden.at("ids")));
  if (op == "decode") return check_decode(golden, tokenizer, ids);
  DI_TRY(const std::string text, golden.at("text").to_string("text"));
  if (op == "encode") return compare_ids(ids, tokenizer.encode(text));
  if (op == "encode_content") return compare_ids(ids, tokenizer.encode_content(text));
  return corrupt(fmt::format("unknown op {}", op));
}

}  // namespace

Result<GoldenCounts> run_tokenize_cases(std::string_view lines, const Tokenizer& tokenizer) {
  GoldenCounts counts;
  int number = 0;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    ++number;
    if (line.empty()) continue;
    auto golden = Json::parse(line);
    if (!golden) return corrupt(fmt::format("line {}: {}", number, golden.error().message));
    auto difference = run_case(*golden, tokenizer);
    if (!difference) return corrupt(fmt::format("line {}: {}", number, difference.error().message));
    const Json& id = golden->at("id");
    if (difference->empty())
      counts.pass();
    else
      counts.fail(fmt::format("{}: {}", id.is_string() ? id.as_string() : fmt::format("line {}", number), *difference));
  }
  return counts;
}

}  // namespace deepinfer
