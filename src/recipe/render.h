// recipe/render.h - conversation to prompt.
//
// A prompt is a sequence of pieces: control tokens written by the template, text, image placeholders. Encoding gives each
// control piece its one id and encodes each text piece with added tokens switched off, so a message that contains
// "<think>" or "<｜User｜>" is ordinary text and can never break the framing. Text pieces that touch are one piece: the
// tokenizer may merge across message borders, as the reference does.
// Promise: rendering cannot fail; encoding fails only when the tokenizer lacks a control token, and names it.
// Threads: pure functions.
//
//   Prompt prompt = render_prompt(conversation);
//   DI_TRY(std::vector<TokenId> ids, prompt.encode(tokenizer));
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/types.h"
#include "recipe/conversation.h"

namespace deepinfer {

class Tokenizer;

struct PromptPiece {
  enum class Kind { kText, kControl, kImage };
  Kind kind = Kind::kText;
  std::string text;  // spelling; for an image the placeholder
};

class Prompt {
 public:
  // Where a message of the request begins: in which piece, at which byte of it.
  struct Mark {
    size_t piece = 0, offset = 0;
    int32_t message = -1;
  };
  const std::vector<Mark>& marks() const { return marks_; }
  const std::vector<PromptPiece>& pieces() const { return pieces_; }
  const std::vector<ImageReference>& images() const { return images_; }  // in order of their placeholders

  // All pieces in a row, for people, logs and goldens.
  std::string text() const;
  // Half-open ranges of code points in text() that are control tokens or image placeholders.
  std::vector<std::pair<size_t, size_t>> special_ranges() const;
  // One id per control token and per image placeholder; how many rows an image really takes is known after preprocessing.
  Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer) const;
  // The same for the pieces from `first` on, behind `ids`. ends[i] is where piece i ends in ids.
  Status encode_from(size_t first, const Tokenizer& tokenizer, std::vector<TokenId>& ids, std::vector<uint32_t>& ends) const;

  void add_text(std::string_view text);
  void add_control(std::string_view spelling);
  // Text in which the spellings <think>, </think> and the markup bar are control tokens. Only for text of the template.
  void add_template(std::string_view text);
  void add_rich(const RichText& content);
  // What is added from here on is of that message.
  void mark(int32_t message);

 private:
  std::vector<Mark> marks_;
  std::vector<PromptPiece> pieces_;
  std::vector<ImageReference> images_;
};

Prompt render_prompt(const Conversation& conversation);

// The conversation as it is rendered: consecutive user messages merged, tool results in the order of their calls, a system
// message in front when tools or a response schema need one.
std::vector<Message> normalised_messages(const Conversation& conversation);

}  // namespace deepinfer
