#include "recipe/prompt_map.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace deepinfer {

int32_t PromptMap::message_at(Position position) const {
  const auto behind = [](Position at, const Begin& begin) { return at < begin.position; };
  const auto next = std::upper_bound(begins.begin(), begins.end(), position, behind);
  return next == begins.begin() ? -1 : std::prev(next)->message;
}

// A text piece's ids are its bytes, token by token; a message that begins inside a token begins with it.
PromptMap map_prompt(const Prompt& prompt, std::span<const TokenId> ids, std::span<const ImageSpan> images,
                     const Tokenizer& tokenizer) {
  PromptMap map;
  auto mark = prompt.marks().begin();
  const auto end = prompt.marks().end();
  size_t at = 0, image = 0;
  for (size_t i = 0; i < prompt.pieces().size() && mark != end; ++i) {
    const PromptPiece& piece = prompt.pieces()[i];
    const auto pass = [&](size_t bytes, size_t position) {
      for (; mark != end && (mark->piece < i || (mark->piece == i && mark->offset <= bytes)); ++mark)
        map.begins.push_back({static_cast<Position>(position), mark->message});
    };
    pass(0, at);
    if (piece.kind == PromptPiece::Kind::kControl) ++at;
    if (piece.kind == PromptPiece::Kind::kImage) at += image < images.size() ? static_cast<size_t>(images[image++].rows) : 1;
    if (piece.kind != PromptPiece::Kind::kText) continue;
    for (size_t bytes = 0; bytes < piece.text.size() && at < ids.size(); ++at) {
      const size_t token = std::max<size_t>(tokenizer.token_bytes(ids[at]).size(), 1);
      pass(bytes + token - 1, at);
      bytes += token;
    }
  }
  return map;
}

}  // namespace deepinfer
