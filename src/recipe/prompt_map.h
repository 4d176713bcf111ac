// recipe/prompt_map.h - which message of its request a token of a prompt belongs to.
//
// Made where the prompt is, kept as long as somebody may ask why it was not cached: a few numbers a message.
// Threads: values.
//
//   const PromptMap map = map_prompt(rendered, ids, images, tokenizer);
//   map.message_at(300)   // 2: messages[2]; -1: what the template writes before all of them
#pragma once

#include <span>
#include <vector>

#include "core/types.h"
#include "recipe/render.h"

namespace deepinfer {

struct PromptMap {
  struct Begin {
    Position position = 0;
    int32_t message = -1;
  };
  std::vector<Begin> begins;  // by position

  int32_t message_at(Position position) const;
};

// `ids` with the rows of `images` in place of their placeholders.
PromptMap map_prompt(const Prompt& prompt, std::span<const TokenId> ids, std::span<const ImageSpan> images,
                     const Tokenizer& tokenizer);

}  // namespace deepinfer
