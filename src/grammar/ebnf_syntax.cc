#include "grammar/ebnf_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/utf8.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxRules = 10'000;
constexpr int32_t kMaxCount = 10'000;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class Parser {
 public:
  Parser(RegexArena& arena, std::string_view text) : arena_(arena), text_(text) { out_.text = text; }

  Result<EbnfGrammar> parse() {
    if (!is_valid_utf8(text_)) return invalid_argument("grammar: not valid UTF-8");
    skip_space();
    while (more()) DI_CHECK_OK(rule());
    if (out_.rules.empty()) return fault("no rule");
    for (const EbnfGrammar::Rule& rule : out_.rules) {
      if (!rule.defined) return out_.fault(rule.at, fmt::format("the rule '{}' is not defined", rule.name));
    }
    for (const char* name : {"start", "root"}) {
      if (const auto found = names_.find(name); found != names_.end()) out_.start = found->second;
    }
    return std::move(out_);
  }

 private:
  using Kind = EbnfExpression::Kind;

  Error fault(std::string_view what) const { return out_.fault(at_, what); }
  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    skip_space();
    return true;
  }
  void skip_space() {
    for (; more(); ++at_) {
      const char c = peek();
      if (c == '#' || (c == '/' && peek(1) == '/')) {
        while (more() && peek() != '\n') ++at_;
      }
      if (!more() || (peek() != ' ' && peek() != '\t' && peek() != '\r' && peek() != '\n')) break;
    }
  }
  std::string name() {
    name_at_ = at_;
    while (is_name_char(peek())) ++at_;
    std::string out(text_.substr(name_at_, at_ - name_at_));
    skip_space();
    return out;
  }
  size_t rule_number(const std::string& name) {
    const auto [entry, added] = names_.try_emplace(name, out_.rules.size());
    if (added) out_.rules.push_back({.name = name, .at = name_at_, .body = {}});
    return entry->second;
  }
  bool take_defines() { return take("::=") || take(":") || take("="); }
  // A name and what makes a rule of it, so that the sequence before has ended.
  bool at_rule() {
    const size_t back = at_;
    const bool out = !name().empty() && (peek() == ':' || peek() == '=');
    at_ = back;
    return out;
  }

  Status rule() {
    const std::string word = name();
    if (word.empty()) return fault("expected the name of a rule");
    if (!take_defines()) return fault(fmt::format("expected ::= behind '{}'", word));
    const size_t number = rule_number(word);
    if (out_.rules.size() > kMaxRules) return fault("more than 10,000 rules");
    if (out_.rules[number].defined) return fault(fmt::format("the rule '{}' is defined twice", word));
    out_.rules[number].defined = true;
    DI_TRY(EbnfExpression body, choices(0));
    out_.rules[number].body = std::move(body);
    take(";");
    if (more() && !at_rule()) return fault(fmt::format("'{}' does not fit here", peek()));
    return {};
  }

  Result<EbnfExpression> choices(int depth) {
    if (depth > kMaxDepth) return fault("groups nested too deep");
    EbnfExpression out{.kind = Kind::kChoice, .parts = {}};
    do {
      DI_TRY(EbnfExpression branch, sequence(depth));
      out.parts.push_back(std::move(branch));
    } while (take("|"));
    if (out.parts.size() == 1) return std::move(out.parts[0]);
    return out;
  }

  Result<EbnfExpression> sequence(int depth) {
    EbnfExpression out{.kind = Kind::kSequence, .parts = {}};
    while (more() && peek() != '|' && peek() != ')' && peek() != ';' && !at_rule()) {
      DI_TRY(EbnfExpression part, atom(depth));
      DI_CHECK_OK(counts(part));
      out.parts.push_back(std::move(part));
    }
    return out;
  }

  Result<EbnfExpression> atom(int depth) {
    const char c = peek();
    if (c == '(') {
      take("(");
      DI_TRY(EbnfExpression inner, choices(depth + 1));
      if (!take(")")) return fault("a '(' without ')'");
      return inner;
    }
    if (c == '"') return quoted();
    if (c == '[') return piece('[', ']');
    if (c == '/') return piece('/', '/');
    if (c == '.') return take("."), regex(".");
    if (!is_name_char(c)) return fault(fmt::format("'{}' does not fit here", c));
    EbnfExpression out{.kind = Kind::kRule, .parts = {}};
    out.rule = rule_number(name());
    return out;
  }

  // The end of a piece that begins at at_ and ends with an unescaped `close`.
  size_t end_of(char close) const {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != close) end += text_[end] == '\\' ? 2 : 1;
    return end;
  }

  Result<EbnfExpression> quoted() {
    const size_t end = end_of('"');
    if (end >= text_.size()) return fault("a '\"' without its end");
    const auto text = Json::parse(text_.substr(at_, end + 1 - at_));
    if (!text || !text->is_string()) return fault("a damaged string (JSON's escapes are known)");
    at_ = end + 1;
    skip_space();
    return EbnfExpression{.kind = Kind::kTerminal, .terminal = arena_.literal(text->as_string()), .parts = {}};
  }

  Result<EbnfExpression> piece(char open, char close) {
    const size_t end = end_of(close);
    if (end >= text_.size()) return fault(fmt::format("a '{}' without its end", open));
    const std::string text(open == '/' ? text_.substr(at_ + 1, end - at_ - 1) : text_.substr(at_, end + 1 - at_));
    DI_TRY(EbnfExpression out, regex(text));
    at_ = end + 1;
    skip_space();
    return out;
  }

  Result<EbnfExpression> regex(const std::string& text) {
    const auto rx = parse_regex(arena_, text, RegexUse::kWhole);
    if (!rx) return fault(rx.error().message);
    return EbnfExpression{.kind = Kind::kTerminal, .terminal = *rx, .parts = {}};
  }

  Status counts(EbnfExpression& part) {
    int32_t min = 0, max = kNoLimit;
    if (take("?")) {
      max = 1;
    } else if (take("+")) {
      min = 1;
    } else if (take("{")) {
      if (!number(min)) return fault("expected a number behind '{'");
      max = min;
      if (take(",") && !number(max)) max = kNoLimit;
      if (!take("}")) return fault("a '{' without '}'");
      if (max != kNoLimit && max < min) return fault("a count whose end lies before its beginning");
    } else if (!take("*")) {
      return {};
    }
    EbnfExpression out{.kind = Kind::kRepeat, .min = min, .max = max, .parts = {}};
    out.parts.push_back(std::move(part));
    part = std::move(out);
    return counts(part);
  }

  bool number(int32_t& out) {
    const size_t begin = at_;
    int32_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) value = std::min(kMaxCount, value * 10 + (peek() - '0'));
    if (at_ == begin) return false;
    out = value;
    skip_space();
    return true;
  }

  RegexArena& arena_;
  std::string_view text_;
  size_t at_ = 0, name_at_ = 0;  // of the last name
  EbnfGrammar out_;
  std::map<std::string, size_t, std::less<>> names_;
};

}  // namespace

Error EbnfGrammar::fault(size_t at, std::string_view what) const {
  const std::string_view before = text.substr(0, at);
  const size_t begin = before.rfind('\n') + 1;                    // of the line; 0 where there is none before
  const auto begins = [](char c) { return (c & 0xC0) != 0x80; };  // a character
  return invalid_argument(
      fmt::format("grammar, line {}, column {}: {}", 1 + std::count(before.begin(), before.end(), '\n'),
                  1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(begin), before.end(), begins), what));
}

Result<EbnfGrammar> parse_ebnf_text(RegexArena& arena, std::string_view text) { return Parser(arena, text).parse(); }

}  // namespace deepinfer
