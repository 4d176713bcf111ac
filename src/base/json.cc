#include "base/json.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "base/utf8.h"

namespace deepinfer {

class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Result<Json> document() {
    Json value;
    if (!parse_value(value, 0)) return failure();
    skip_space();
    if (at_ != text_.size()) {
      fail("unexpected text after the value");
      return failure();
    }
    return value;
  }

 private:
  Error failure() const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n';
    }
    return corrupt(fmt::format("invalid JSON at line {} column {}: {}", line, column, reason_));
  }

  bool fail(const char* reason) {
    reason_ = reason;
    return false;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
  }

  bool literal(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return fail("expected a value");
    at_ += word.size();
    return true;
  }

  bool parse_value(Json& out, int depth) {
    if (depth > limits_.max_depth) return fail("nested too deeply");
    skip_space();
    if (at_ >= text_.size()) return fail("unexpected end");
    switch (text_[at_]) {
      case '{': return parse_object(out, depth);
      case '[': return parse_array(out, depth);
      case '"': out.kind_ = Json::Kind::kString; return parse_string(out.text_);
      case 't': out = Json(true); return literal("true");
      case 'f': out = Json(false); return literal("false");
      case 'n': out = Json(); return literal("null");
      default: return parse_number(out);
    }
  }

  bool parse_object(Json& out, int depth) {
    out.kind_ = Json::Kind::kObject;
    ++at_;
    skip_space();
    if (at_ < text_.size() && text_[at_] == '}') return ++at_, true;
    while (true) {
      skip_space();
      if (at_ >= text_.size() || text_[at_] != '"') return fail("expected a key");
      std::string key;
      if (!parse_string(key)) return false;
      if (!limits_.allow_duplicate_keys && out.find(key)) return fail("duplicate key");
      skip_space();
      if (at_ >= text_.size() || text_[at_] != ':') return fail("expected ':'");
      ++at_;
      out.members_.emplace_back(std::move(key), Json());
      if (!parse_value(out.members_.back().second, depth + 1)) return false;
      skip_space();
      if (at_ >= text_.size()) return fail("unexpected end in an object");
      if (text_[at_] == '}') return ++at_, true;
      if (text_[at_] != ',') return fail("expected ',' or '}'");
      ++at_;
    }
  }

  bool parse_array(Json& out, int depth) {
    out.kind_ = Json::Kind::kArray;
    ++at_;
    skip_space();
    if (at_ < text_.size() && text_[at_] == ']') return ++at_, true;
    while (true) {
      out.items_.emplace_back();
      if (!parse_value(out.items_.back(), depth + 1)) return false;
      skip_space();
      if (at_ >= text_.size()) return fail("unexpected end in an array");
      if (text_[at_] == ']') return ++at_, true;
      if (text_[at_] != ',') return fail("expected ',' or ']'");
      ++at_;
    }
  }

  bool digits() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > start;
  }

  bool parse_number(Json& out) {
    const size_t start = at_;
    if (text_[at_] == '-') ++at_;
    if (at_ < text_.size() && text_[at_] == '0') {
      ++at_;
    } else if (!digits()) {
      return fail("expected a value");
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      if (!digits()) return fail("expected digits after '.'");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (!digits()) return fail("expected digits in the exponent");
    }
    out.kind_ = Json::Kind::kNumber;
    out.text_.assign(text_.substr(start, at_ - start));
    return true;
  }

  bool hex4(uint32_t& value) {
    if (at_ + 4 > text_.size()) return fail("short \\u escape");
    value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return fail("bad \\u escape");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return true;
  }

  bool parse_unicode_escape(std::string& out) {
    uint32_t code = 0;
    if (!hex4(code)) return false;
    if (code >= 0xDC00 && code < 0xE000) return fail("lone low surrogate");
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") return fail("lone high surrogate");
      at_ += 2;
      uint32_t low = 0;
      if (!hex4(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return fail("lone high surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
    return true;
  }

  bool parse_escape(std::string& out) {
    if (at_ >= text_.size()) return fail("unexpected end in a string");
    switch (text_[at_++]) {
      case '"': out += '"'; return true;
      case '\\': out += '\\'; return true;
      case '/': out += '/'; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'n': out += '\n'; return true;
      case 'r': out += '\r'; return true;
      case 't': out += '\t'; return true;
      case 'u': return parse_unicode_escape(out);
      default: return fail("unknown escape");
    }
  }

  bool parse_string(std::string& out) {
    ++at_;
    const size_t from = at_;
    while (true) {
      size_t run = at_;
      while (run < text_.size() && text_[run] != '"' && text_[run] != '\\' && static_cast<unsigned char>(text_[run]) >= 0x20)
        ++run;
      out.append(text_.substr(at_, run - at_));
      at_ = run;
      if (at_ >= text_.size()) return fail("unterminated string");
      if (text_[at_] == '"') break;
      if (text_[at_] != '\\') return fail("control character in a string");
      ++at_;
      if (!parse_escape(out)) return false;
    }
    ++at_;
    if (!is_valid_utf8(out)) {
      at_ = from;
      return fail("string is not valid UTF-8");
    }
    return true;
  }

  std::string_view text_;
  JsonLimits limits_;
  size_t at_ = 0;
  const char* reason_ = "";
};

Json::Json(int64_t value) : kind_(Kind::kNumber), text_(std::to_string(value)) {}
Json::Json(uint64_t value) : kind_(Kind::kNumber), text_(std::to_string(value)) {}
Json::Json(double value) {
  if (!std::isfinite(value)) return;
  kind_ = Kind::kNumber;
  text_ = fmt::format("{}", value);
}

Json Json::array(std::vector<Json> items) {
  Json out(Kind::kArray);
  out.items_ = std::move(items);
  return out;
}

Json Json::object(std::vector<Member> members) {
  Json out(Kind::kObject);
  out.members_ = std::move(members);
  return out;
}

Json Json::number(std::string text) {
  Json out(Kind::kNumber);
  out.text_ = std::move(text);
  return out;
}

Result<Json> Json::parse(std::string_view text, const JsonLimits& limits) { return JsonParser(text, limits).document(); }

const char* Json::kind_name() const {
  switch (kind_) {
    case Kind::kNull: return "null";
    case Kind::kBool: return "boolean";
    case Kind::kNumber: return "number";
    case Kind::kString: return "string";
    case Kind::kArray: return "array";
    case Kind::kObject: return "object";
  }
  return "unknown";
}

bool Json::is_integer() const { return is_number() && text_.find_first_of(".eE") == std::string::npos; }

const Json* Json::find(std::string_view key) const {
  for (auto it = members_.rbegin(); it != members_.rend(); ++it) {
    if (it->first == key) return &it->second;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

namespace {

const Json& null_json() {
  static const Json null;
  return null;
}

}  // namespace

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  return found ? *found : null_json();
}

const Json& Json::operator[](size_t index) const { return index < items_.size() ? items_[index] : null_json(); }

void Json::set(std::string key, Json value) {
  if (Json* found = find(key)) {
    *found = std::move(value);
  } else {
    members_.emplace_back(std::move(key), std::move(value));
  }
}

void Json::merge_duplicate_keys() {
  for (Json& item : items_) item.merge_duplicate_keys();
  for (Member& member : members_) member.second.merge_duplicate_keys();
  if (members_.size() < 2) return;
  std::unordered_map<std::string_view, size_t> place;
  place.reserve(members_.size());
  std::vector<Member> kept;
  kept.reserve(members_.size());  // the views in `place` stay valid because nothing moves
  for (Member& member : members_) {
    if (const auto found = place.find(member.first); found != place.end()) {
      kept[found->second].second = std::move(member.second);
    } else {
      kept.push_back(std::move(member));
      place.emplace(kept.back().first, kept.size() - 1);
    }
  }
  members_ = std::move(kept);
}

Result<int64_t> Json::to_int64(std::string_view name) const {
  int64_t value = 0;
  if (is_integer()) {
    const auto [end, status] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (status == std::errc() && end == text_.data() + text_.size()) return value;
    return invalid_argument(fmt::format("{} is out of range: {}", name, text_));
  }
  return invalid_argument(fmt::format("{} must be an integer, got {}", name, is_number() ? text_ : kind_name()));
}

Result<double> Json::to_double(std::string_view name) const {
  if (!is_number()) return invalid_argument(fmt::format("{} must be a number, got {}", name, kind_name()));
  return std::strtod(text_.c_str(), nullptr);
}

Result<bool> Json::to_bool(std::string_view name) const {
  if (!is_bool()) return invalid_argument(fmt::format("{} must be a boolean, got {}", name, kind_name()));
  return bool_;
}

Result<std::string> Json::to_string(std::string_view name) const {
  if (!is_string()) return invalid_argument(fmt::format("{} must be a string, got {}", name, kind_name()));
  return text_;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

namespace {

void break_line(std::string& out, int indent, int depth) {
  if (indent == 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent * depth), ' ');
}

void append(std::string& out, const Json& value, int indent, int depth) {
  switch (value.kind()) {
    case Json::Kind::kNull: out += "null"; return;
    case Json::Kind::kBool: out += value.as_bool() ? "true" : "false"; return;
    case Json::Kind::kNumber: out += value.number_text(); return;
    case Json::Kind::kString: append_json_string(out, value.as_string()); return;
    case Json::Kind::kArray:
    case Json::Kind::kObject: break;
  }
  const bool object = value.is_object();
  out += object ? '{' : '[';
  for (size_t i = 0; i < value.size(); ++i) {
    if (i) out += ',';
    break_line(out, indent, depth + 1);
    if (object) {
      append_json_string(out, value.members()[i].first);
      out += indent ? ": " : ":";
    }
    append(out, object ? value.members()[i].second : value.items()[i], indent, depth + 1);
  }
  if (value.size()) break_line(out, indent, depth);
  out += object ? '}' : ']';
}

}  // namespace

std::string Json::dump(int indent) const {
  std::string out;
  append(out, *this, indent, 0);
  return out;
}

bool Json::operator==(const Json& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNull: return true;
    case Kind::kBool: return bool_ == other.bool_;
    case Kind::kNumber:
    case Kind::kString: return text_ == other.text_;
    case Kind::kArray: return items_ == other.items_;
    case Kind::kObject: break;
  }
  if (members_.size() != other.members_.size()) return false;
  for (const auto& [key, value] : members_) {
    const Json* match = other.find(key);
    if (!match || !(*match == value)) return false;
  }
  return true;
}

}  // namespace deepinfer
