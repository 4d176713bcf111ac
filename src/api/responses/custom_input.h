// api/responses/custom_input.h - the free text of a custom tool out of the JSON arguments the model writes for it.
//
// The model calls apply_patch with {"input": "..."}; the client wants the text alone, while it is written. Text that does
// not begin that way is passed on unchanged; until that is decided nothing is given out.
// Promise: any split of the same text gives the same result; linear.
// Threads: one call, one thread at a time.
//
//   CustomInput input;
//   std::string shown = input.feed("{\"input\": \"a\\n");   // "a" and a line feed
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

class CustomInput {
 public:
  std::string feed(std::string_view text);
  // No more text: what was held back.
  std::string end();

 private:
  enum class State { kUndecided, kText, kAfter, kUnchanged };
  void text_byte(char byte, std::string& out);
  void escape(std::string& out);

  State state_ = State::kUndecided;
  size_t matched_ = 0;
  std::string held_;        // undecided start, or an escape that is not complete
  unsigned surrogate_ = 0;  // first half of a pair
};

}  // namespace deepinfer
