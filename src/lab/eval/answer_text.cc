#include "lab/eval/answer_text.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/utf8.h"
#include "text/char_classes.h"

namespace deepinfer {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

size_t digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

// The number that begins at `at`, which moves behind it. REQUIRES: a digit, or '-' and a digit.
std::string read_number(std::string_view text, size_t& at) {
  std::string out;
  if (text[at] == '-') out += text[at++];
  size_t run = digits_at(text, at);
  out += text.substr(at, run);
  at += run;
  while (run <= 3 && at < text.size() && text[at] == ',' && digits_at(text, at + 1) == 3) {
    out += text.substr(at + 1, 3);
    at += 4;
  }
  if (at < text.size() && text[at] == '.' && (run = digits_at(text, at + 1)) > 0) {
    out += text.substr(at, run + 1);
    at += run + 1;
  }
  return out;
}

bool number_begins(std::string_view text, size_t at) {
  return is_digit(text[at]) || (text[at] == '-' && at + 1 < text.size() && is_digit(text[at + 1]));
}

// "-0012.50" -> "-12.5"; nothing for a number with an exponent.
std::optional<std::string> plain_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  const size_t dot = std::min(text.find('.'), text.size());
  std::string_view whole = text.substr(0, dot), fraction = text.substr(std::min(dot + 1, text.size()));
  while (whole.size() > 1 && whole[0] == '0') whole.remove_prefix(1);
  while (fraction.ends_with('0')) fraction.remove_suffix(1);
  std::string out(whole.empty() ? "0" : whole);
  if (!fraction.empty()) out.append(".").append(fraction);
  return out == "0" ? out : (negative ? "-" : "") + out;
}

double as_double(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool is_word_part(uint32_t code_point) {
  if (code_point < 0x80)
    return is_digit(static_cast<char>(code_point)) ||
           (lower(static_cast<char>(code_point)) >= 'a' && lower(static_cast<char>(code_point)) <= 'z');
  const CharClass kind = CharClasses().of(code_point);
  return kind == kLetter || kind == kNumber || kind == kHanLetter;
}

bool word_part_before(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return is_word_part(next_code_point(text, begin));
}

bool word_part_at(std::string_view text, size_t at) { return at < text.size() && is_word_part(next_code_point(text, at)); }

// The text between the brace at `open` and its partner; nothing when it never closes.
std::optional<std::string> braced(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return std::string(trimmed(text.substr(open + 1, i - open - 1)));
  }
  return std::nullopt;
}

// A letter that stands for a choice and nothing else: "B", "(B)", "**B.**", "\text{B}", "B) because".
std::optional<char> lone_letter(std::string_view text, int num_choices) {
  for (const std::string_view dress : {"\\text", "\\mathrm", "\\textbf"}) {
    if (const size_t at = text.find(dress); at != std::string_view::npos) text.remove_prefix(at + dress.size());
  }
  const size_t at = text.find_first_not_of(" \t*_`($[{\"'");
  if (at == std::string_view::npos || word_part_at(text, at + 1)) return std::nullopt;
  const char letter = static_cast<char>(lower(text[at]) - 32);
  return letter >= 'A' && letter < 'A' + num_choices ? std::optional<char>(letter) : std::nullopt;
}

void erase_all(std::string& text, std::string_view piece) {
  for (size_t at = 0; (at = text.find(piece, at)) != std::string::npos;) text.erase(at, piece.size());
}

// \text{x} and the like become x.
void unwrap(std::string& text, std::string_view command) {
  const std::string begin = std::string(command) + "{";
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    const auto inner = braced(text, at + command.size());
    if (!inner) return;
    text.replace(at, text.find('}', at + begin.size() + inner->size()) + 1 - at, *inner);
  }
}

std::vector<std::string_view> fenced_blocks(std::string_view text) {
  std::vector<std::string_view> blocks;
  for (size_t at = text.find("```"); at != std::string_view::npos; at = text.find("```", at)) {
    const size_t begin = text.find('\n', at);
    if (begin == std::string_view::npos) break;
    // A fence closes at the begin of a line; an answer that was cut off has none.
    const size_t close = text.find("\n```", begin);
    std::string_view block = text.substr(begin + 1, close == std::string_view::npos ? close : close - begin);
    if (close == std::string_view::npos && trimmed(block).ends_with("```")) block = block.substr(0, block.rfind("```"));
    blocks.push_back(block);
    if (close == std::string_view::npos) break;
    at = close + 4;
  }
  return blocks;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> found;
  for (size_t at = 0; at < text.size();) {
    if (number_begins(text, at)) {
      found = read_number(text, at);
    } else {
      ++at;
    }
  }
  return found;
}

bool same_number(std::string_view a, std::string_view b) {
  const auto left = plain_decimal(a), right = plain_decimal(b);
  return left && right ? *left == *right : as_double(a) == as_double(b);
}

bool contains_word(std::string_view text, std::string_view word) {
  const std::string in = lower(text), wanted = lower(word);
  for (size_t at = 0; (at = in.find(wanted, at)) != std::string::npos; ++at) {
    if (!word_part_before(in, at) && !word_part_at(in, at + wanted.size())) return true;
  }
  return false;
}

bool same_json(const Json& a, const Json& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Json::Kind::kNull: return true;
    case Json::Kind::kBool: return a.as_bool() == b.as_bool();
    case Json::Kind::kNumber: return same_number(a.number_text(), b.number_text());
    case Json::Kind::kString: return a.as_string() == b.as_string();
    case Json::Kind::kArray: return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same_json);
    case Json::Kind::kObject:
      return a.size() == b.size() && std::all_of(a.members().begin(), a.members().end(), [&](const Json::Member& member) {
               const Json* other = b.find(member.first);
               return other && same_json(member.second, *other);
             });
  }
  return false;
}

std::optional<std::string> last_boxed(std::string_view text) {
  for (size_t at = text.size(); (at = text.rfind("boxed{", at)) != std::string_view::npos && at > 0; --at) {
    if (text[at - 1] == '\\' || text[at - 1] == 'f') {
      if (auto found = braced(text, at + 5)) return found;
    }
  }
  return std::nullopt;
}

std::optional<std::string> after_answer_mark(std::string_view text) {
  const std::string in = lower(text);
  for (size_t at = in.size(); (at = in.rfind("answer", at)) != std::string::npos;) {
    size_t next = at + 6;
    while (next < in.size() && (in[next] == '*' || in[next] == ' ')) ++next;
    if (next < in.size() && in[next] == ':' && !word_part_before(in, at)) {
      std::string_view line = text.substr(next + 1, text.find('\n', next) - next - 1);
      while (!line.empty() && (line[0] == '*' || is_space(line[0]))) line.remove_prefix(1);
      return std::string(trimmed(line));
    }
    if (at-- == 0) break;
  }
  return std::nullopt;
}

std::optional<char> chosen_letter(std::string_view text, int num_choices) {
  if (const auto line = after_answer_mark(text)) {
    if (const auto letter = lone_letter(last_boxed(*line).value_or(*line), num_choices)) return letter;
  }
  if (const auto boxed = last_boxed(text)) {
    if (const auto letter = lone_letter(*boxed, num_choices)) return letter;
  }
  const std::string_view all = trimmed(text);
  return all.size() <= 8 ? lone_letter(all, num_choices) : std::nullopt;
}

std::optional<std::string> last_integer(std::string_view text) {
  std::string marked(text);
  if (const auto boxed = last_boxed(text)) {
    marked = *boxed;
  } else if (const auto line = after_answer_mark(text)) {
    marked = *line;
  }
  const auto number = last_number(marked);
  if (!number) return std::nullopt;
  const auto plain = plain_decimal(*number);
  return plain && plain->find('.') == std::string::npos ? plain : std::nullopt;
}

std::string normalised_answer(std::string_view text) {
  std::string out = lower(trimmed(text));
  for (const std::string_view command : {"\\text", "\\mathrm", "\\textbf", "\\mathbf", "\\boxed"}) unwrap(out, command);
  for (const std::string_view piece :
       {"$", "\\(", "\\)", "\\[", "\\]", "\\left", "\\right", "\\,", "\\!", "\\;", "**", "`", "\""})
    erase_all(out, piece);
  std::string spaced;
  for (const char c : trimmed(out)) {
    if (!is_space(c)) spaced += c;
    if (is_space(c) && spaced.back() != ' ') spaced += ' ';
  }
  while (spaced.ends_with('.')) spaced.pop_back();
  return spaced;
}

std::string code_of(std::string_view text, std::string_view wanted) {
  const std::vector<std::string_view> blocks = fenced_blocks(text);
  for (const std::string_view block : blocks) {
    if (block.find(wanted) != std::string_view::npos) return std::string(block);
  }
  return std::string(blocks.empty() ? text : blocks[0]);
}

}  // namespace deepinfer
