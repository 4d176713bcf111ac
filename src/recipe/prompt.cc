// The Prompt itself: pieces, text form, ids.
#include <array>

#include <fmt/format.h>

#include "recipe/control_tokens.h"
#include "recipe/render.h"
#include "text/tokenizer.h"

namespace deepinfer {

namespace {

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

constexpr std::array<std::string_view, 3> kTemplateTokens{control::kThink, control::kEndThink, control::kMarkup};

// Where the next template token stands, and which.
std::pair<size_t, std::string_view> next_template_token(std::string_view text) {
  size_t best = std::string_view::npos;
  std::string_view token;
  for (const std::string_view candidate : kTemplateTokens) {
    const size_t at = text.find(candidate);
    if (at < best) {
      best = at;
      token = candidate;
    }
  }
  return {best, token};
}

}  // namespace

void Prompt::add_text(std::string_view text) {
  if (text.empty()) return;
  if (pieces_.empty() || pieces_.back().kind != PromptPiece::Kind::kText) pieces_.push_back({PromptPiece::Kind::kText, {}});
  pieces_.back().text += text;
}

void Prompt::mark(int32_t message) {
  const bool goes_on = !pieces_.empty() && pieces_.back().kind == PromptPiece::Kind::kText;
  marks_.push_back({pieces_.size() - (goes_on ? 1 : 0), goes_on ? pieces_.back().text.size() : 0, message});
}

void Prompt::add_control(std::string_view spelling) { pieces_.push_back({PromptPiece::Kind::kControl, std::string(spelling)}); }

void Prompt::add_template(std::string_view text) {
  while (true) {
    const auto [at, token] = next_template_token(text);
    if (at == std::string_view::npos) return add_text(text);
    add_text(text.substr(0, at));
    add_control(token);
    text.remove_prefix(at + token.size());
  }
}

void Prompt::add_rich(const RichText& content) {
  const std::string_view text = content.text;
  size_t at = 0;
  for (const RichText::Placement& placement : content.images) {
    add_text(text.substr(at, placement.offset - at));
    pieces_.push_back({PromptPiece::Kind::kImage, std::string(control::kImage)});
    images_.push_back(placement.image);
    at = placement.offset;
  }
  add_text(text.substr(at));
}

std::string Prompt::text() const {
  std::string out;
  for (const PromptPiece& piece : pieces_) out += piece.text;
  return out;
}

std::vector<std::pair<size_t, size_t>> Prompt::special_ranges() const {
  std::vector<std::pair<size_t, size_t>> ranges;
  size_t at = 0;
  for (const PromptPiece& piece : pieces_) {
    const size_t end = at + count_code_points(piece.text);
    if (piece.kind != PromptPiece::Kind::kText) ranges.emplace_back(at, end);
    at = end;
  }
  return ranges;
}

Result<std::vector<TokenId>> Prompt::encode(const Tokenizer& tokenizer) const {
  std::vector<TokenId> ids;
  std::vector<uint32_t> ends;
  DI_CHECK_OK(encode_from(0, tokenizer, ids, ends));
  return ids;
}

Status Prompt::encode_from(size_t first, const Tokenizer& tokenizer, std::vector<TokenId>& ids,
                           std::vector<uint32_t>& ends) const {
  for (size_t i = first; i < pieces_.size(); ++i) {
    const PromptPiece& piece = pieces_[i];
    if (piece.kind == PromptPiece::Kind::kText) {
      tokenizer.append_content(piece.text, ids);
    } else {
      const bool image = piece.kind == PromptPiece::Kind::kImage;
      const std::string_view spelling = image ? control::kImageInTokenizer : std::string_view(piece.text);
      const auto id = tokenizer.added_token(spelling);
      if (!id)
        return unsupported(fmt::format("the tokenizer has no token {}: use the tokenizer.json of a V4.1 checkpoint", spelling));
      ids.push_back(*id);
    }
    ends.push_back(static_cast<uint32_t>(ids.size()));
  }
  return {};
}

}  // namespace deepinfer
