// text/detokenizer.h - ids to text one by one, for streaming.
//
// A token may end in the middle of a character; what is cut off waits for the next one.
// Promise: all push() results and the finish() after them, joined, are Tokenizer::decode() of all ids; every single one
// is valid UTF-8.
// Threads: a value for one thread; the tokenizer must outlive it.
//
//   Detokenizer out(tokenizer);
//   for (TokenId id : ids) print(out.push(id));
//   print(out.finish());
#pragma once

#include <string>

#include "core/types.h"
#include "text/tokenizer.h"

namespace deepinfer {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that this id completes; may be empty.
  std::string push(TokenId id);
  // What is still waiting, as U+FFFD, and back to the start.
  std::string finish();
  // Bytes that wait for the rest of a character (0 to 3).
  size_t waiting() const { return waiting_.size(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string waiting_;
};

}  // namespace deepinfer
