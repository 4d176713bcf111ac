#include "model/script.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/json.h"

namespace deepinfer {
namespace {

constexpr int kVersion = 1;
constexpr int64_t kMaxMs = 3600 * 1000;

// Reads one line; every error gets the line's place in front.
class LineReader {
 public:
  LineReader(std::string where, const ScriptTokens& tokens, Script& script)
      : where_(std::move(where)), tokens_(tokens), script_(script) {}

  Status read_header(const Json& line) const {
    if (!line.is_object() || !line.find("scripted")) {
      return bad("the first line must be the header, for example {\"scripted\": 1}");
    }
    for (const auto& [key, value] : line.members()) DI_CHECK_OK(read_setting(key, value));
    if (script_.page_tokens % 8 != 0) return bad("page_tokens must be a multiple of 8");
    if (script_.eos >= script_.vocab)
      return bad(fmt::format("eos {} is not below the vocabulary size {}", script_.eos, script_.vocab));
    return {};
  }

  Status read_reply(const Json& line) const {
    if (!line.is_object()) return bad("a reply must be an object, for example {\"text\": \"Hello\"}");
    ScriptReply reply;
    int sources = 0;
    for (const auto& [key, value] : line.members()) {
      if (key == "match") {
        DI_TRY(reply.match, read_tokens(value, "match"));
      } else if (key == "delay_ms") {
        DI_TRY(reply.delay_ms, read_int(value, key, 0, kMaxMs));
      } else if (key == "faults") {
        DI_TRY(reply.faults, read_faults(value, "token", 0));
      } else {
        ++sources;
        DI_CHECK_OK(read_answer(key, value, reply));
      }
    }
    if (sources != 1) return bad("a reply needs exactly one of ids, text, bytes, hex or hash");
    script_.replies.push_back(std::move(reply));
    return {};
  }

  Error bad(const std::string& what) const { return invalid_argument(where_ + ": " + what); }

 private:
  Status read_setting(const std::string& key, const Json& value) const {
    constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
    if (key == "scripted") return read_int(value, key, kVersion, kVersion).ok() ? Status() : bad("only version 1 is known");
    if (key == "vocab") return assign(script_.vocab, value, key, 2, kMaxInt);
    if (key == "eos") return assign(script_.eos, value, key, 0, kMaxInt);
    if (key == "context") return assign(script_.context, value, key, 2, kMaxInt);
    if (key == "window") return assign(script_.window, value, key, 1, 4096);
    if (key == "page_tokens") return assign(script_.page_tokens, value, key, 8, 4096);
    if (key == "delay_ms") return assign(script_.delay_ms, value, key, 0, kMaxMs);
    if (key == "faults") {
      DI_TRY(script_.faults, read_faults(value, "step", 1));
      return {};
    }
    return bad(fmt::format("unknown setting \"{}\": vocab, eos, context, window, page_tokens, delay_ms or faults", key));
  }

  Status read_answer(const std::string& key, const Json& value, ScriptReply& reply) const {
    if (key == "hash") {
      DI_TRY(reply.hash_tokens, read_int(value.at("tokens"), "hash.tokens", 1, std::numeric_limits<int32_t>::max()));
      int64_t seed = 0;
      if (value.find("seed")) {
        DI_TRY(seed, read_int(value.at("seed"), "hash.seed", 0, std::numeric_limits<int64_t>::max()));
      }
      reply.hash_seed = static_cast<uint64_t>(seed);
      return {};
    }
    if (key == "ids" || key == "text") {
      if (value.is_array() != (key == "ids"))
        return bad(fmt::format("{} must be {}", key, key == "ids" ? "an array" : "a string"));
      DI_TRY(reply.ids, read_tokens(value, key));
      return {};
    }
    if (key == "bytes" || key == "hex") {
      if (!value.is_string()) return bad(key + " must be a string");
      std::string bytes = value.as_string();
      if (key == "hex") {
        DI_TRY(bytes, read_hex(bytes));
      }
      for (const char byte : bytes) reply.ids.push_back(token_of(static_cast<uint8_t>(byte)));
      return check_ids(reply.ids, key);
    }
    return bad(fmt::format("unknown key \"{}\": ids, text, bytes, hex, hash, match, delay_ms or faults", key));
  }

  TokenId token_of(uint8_t byte) const { return tokens_.byte_token ? tokens_.byte_token(byte) : byte; }

  // An array of ids, or a text.
  Result<std::vector<TokenId>> read_tokens(const Json& value, const std::string& key) const {
    std::vector<TokenId> ids;
    if (value.is_string()) {
      if (tokens_.tokenize) {
        ids = tokens_.tokenize(value.as_string());
      } else {
        for (const char byte : value.as_string()) ids.push_back(token_of(static_cast<uint8_t>(byte)));
      }
    } else if (value.is_array()) {
      for (const Json& item : value.items()) {
        DI_TRY(const int64_t id, read_int(item, key, 0, script_.vocab - 1));
        ids.push_back(static_cast<TokenId>(id));
      }
    } else {
      return bad(key + " must be an array of ids or a string");
    }
    DI_CHECK_OK(check_ids(ids, key));
    return ids;
  }

  Status check_ids(const std::vector<TokenId>& ids, const std::string& key) const {
    for (const TokenId id : ids) {
      if (id < 0 || id >= script_.vocab) {
        return bad(
            fmt::format("{} gives token {}, not below the vocabulary size {}: set vocab in the header", key, id, script_.vocab));
      }
    }
    return {};
  }

  Result<std::string> read_hex(const std::string& text) const {
    if (text.size() % 2 != 0) return bad("hex needs two digits per byte");
    std::string bytes;
    for (size_t i = 0; i < text.size(); i += 2) {
      int value = 0;
      for (const char digit : text.substr(i, 2)) {
        const size_t found = std::string_view("0123456789abcdef").find(digit);
        if (found == std::string_view::npos) return bad(fmt::format("hex has '{}': use 0-9 and a-f", digit));
        value = value * 16 + static_cast<int>(found);
      }
      bytes.push_back(static_cast<char>(value));
    }
    return bytes;
  }

  Result<std::vector<ScriptFault>> read_faults(const Json& value, const char* at_key, int64_t first) const {
    if (!value.is_array()) return bad("faults must be an array");
    std::vector<ScriptFault> faults;
    for (const Json& item : value.items()) {
      ScriptFault fault;
      DI_TRY(fault.at, read_int(item.at(at_key), fmt::format("faults.{}", at_key), first, std::numeric_limits<int64_t>::max()));
      const Json& kind = item.at("kind");
      const std::string name = kind.is_string() ? kind.as_string() : "";
      if (name == "nan") {
        fault.kind = ScriptFaultKind::kNan;
      } else if (name == "stall") {
        fault.kind = ScriptFaultKind::kStall;
        DI_TRY(fault.ms, read_int(item.at("ms"), "faults.ms", 0, kMaxMs));
      } else if (name == "error" && first == 1) {
        fault.kind = ScriptFaultKind::kError;
      } else {
        return bad(fmt::format("faults.kind must be {}\"nan\" or \"stall\"", first == 1 ? "\"error\", " : ""));
      }
      faults.push_back(fault);
    }
    return faults;
  }

  Result<int64_t> read_int(const Json& value, const std::string& key, int64_t low, int64_t high) const {
    auto number = value.to_int64(key);
    if (!number) return bad(number.error().message);
    if (*number < low || *number > high) return bad(fmt::format("{} must be {} to {}, got {}", key, low, high, *number));
    return *number;
  }

  template <class T>
  Status assign(T& target, const Json& value, const std::string& key, int64_t low, int64_t high) const {
    DI_TRY(const int64_t number, read_int(value, key, low, high));
    target = static_cast<T>(number);
    return {};
  }

  std::string where_;
  const ScriptTokens& tokens_;
  Script& script_;
};

}  // namespace

Result<Script> parse_script(std::string_view text, const std::string& path, const ScriptTokens& tokens) {
  Script script;
  script.name = "scripted:" + path;
  script.vocab = tokens.vocab;
  script.eos = tokens.eos;
  bool header = true;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const LineReader reader(fmt::format("{}:{}", path, number), tokens, script);
    auto json = Json::parse(line);
    if (!json) return reader.bad(json.error().message);
    DI_CHECK_OK(header ? reader.read_header(*json) : reader.read_reply(*json));
    header = false;
  }
  if (header) return invalid_argument(path + ": empty script, the first line must be the header, for example {\"scripted\": 1}");
  return script;
}

}  // namespace deepinfer
