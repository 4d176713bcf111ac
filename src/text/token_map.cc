#include "text/token_map.h"

#include <utf8proc.h>

#include <unordered_map>

#include <fmt/format.h>

#include "base/utf8.h"

namespace deepinfer {
namespace {

// Stands for a lone space while the ends are stripped. The reference turns it into a space wherever it came from.
constexpr uint32_t kSentinel = 0xE000;

using CodePoints = std::vector<utf8proc_int32_t>;

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

bool is_blank(utf8proc_int32_t code) { return code == ' ' || code == '\t' || code == '\r' || code == '\n'; }

bool is_white_space(utf8proc_int32_t code) {
  if ((code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85) return true;
  const utf8proc_category_t category = code < 0x80 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
}

bool is_mark(utf8proc_int32_t code) {
  const utf8proc_category_t category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

// NFKC followed by NFD is NFKD: one step. False when utf8proc refuses the text.
bool decompose(std::string_view text, CodePoints& out) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE);
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  out.resize(4 * text.size() + 16);
  while (true) {
    const utf8proc_ssize_t needed =
        utf8proc_decompose(bytes, size, out.data(), static_cast<utf8proc_ssize_t>(out.size()), options);
    if (needed < 0) return false;
    const bool fits = static_cast<size_t>(needed) <= out.size();
    out.resize(static_cast<size_t>(needed));
    if (fits) return true;
  }
}

void fold_wide(CodePoints& codes) {
  size_t kept = 0;
  for (const utf8proc_int32_t code : codes) {
    if (code < 0x80) {
      codes[kept++] = code >= 'A' && code <= 'Z' ? code + 32 : code;
    } else if (!is_mark(code)) {
      codes[kept++] = utf8proc_tolower(code);
    }
  }
  codes.resize(kept);
}

void fold_ascii(std::string_view text, CodePoints& codes) {
  codes.clear();
  for (const char c : text) codes.push_back(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

void join_blanks(CodePoints& codes) {
  size_t kept = 0;
  for (const utf8proc_int32_t code : codes) {
    if (!is_blank(code))
      codes[kept++] = code;
    else if (kept == 0 || codes[kept - 1] != ' ')
      codes[kept++] = ' ';
  }
  codes.resize(kept);
  if (codes.size() == 1 && codes[0] == ' ') codes[0] = kSentinel;
}

}  // namespace

std::string fold_token_text(std::string_view text) {
  CodePoints codes;
  if (is_ascii(text)) {
    fold_ascii(text, codes);
  } else if (decompose(text, codes)) {
    fold_wide(codes);
  } else {
    return std::string(text);
  }
  join_blanks(codes);
  size_t begin = 0, end = codes.size();
  while (begin < end && is_white_space(codes[begin])) ++begin;
  while (begin < end && is_white_space(codes[end - 1])) --end;
  if (begin == end) return std::string(text);
  std::string out;
  for (size_t i = begin; i < end; ++i) append_utf8(out, codes[i] == kSentinel ? ' ' : static_cast<uint32_t>(codes[i]));
  return out;
}

Result<TokenMap> make_token_map(const Tokenizer& tokenizer, int32_t vocab_size) {
  if (vocab_size > tokenizer.vocab_size()) {
    return invalid_argument(
        fmt::format("the tokenizer has {} tokens, the model {}: token map not possible", tokenizer.vocab_size(), vocab_size));
  }
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  TokenMap map;
  map.class_of.reserve(static_cast<size_t>(vocab_size));
  std::unordered_map<std::string, int32_t> classes;
  classes.reserve(static_cast<size_t>(vocab_size));
  for (TokenId id = 0; id < vocab_size; ++id) {
    const std::string_view text = tokenizer.token_bytes(id);
    const bool whole = is_valid_utf8(text) && text.find(kReplacement) == std::string_view::npos;
    std::string key = whole ? fold_token_text(text) : tokenizer.token_spelling(id);
    const auto place = classes.emplace(std::move(key), static_cast<int32_t>(classes.size())).first;
    map.class_of.push_back(place->second);
  }
  map.num_classes = static_cast<int32_t>(classes.size());
  return map;
}

}  // namespace deepinfer
