#include "text/detokenizer.h"

#include <utility>

#include "base/utf8.h"

namespace deepinfer {

std::string Detokenizer::push(TokenId id) {
  if (!tokenizer_->contains(id) || (skip_special_ && tokenizer_->is_special(id))) return {};
  std::string bytes = std::move(waiting_);
  bytes += tokenizer_->token_bytes(id);
  const size_t cut = incomplete_utf8_suffix(bytes);
  waiting_ = bytes.substr(bytes.size() - cut);
  bytes.resize(bytes.size() - cut);
  return is_valid_utf8(bytes) ? bytes : to_valid_utf8(bytes);
}

std::string Detokenizer::finish() { return to_valid_utf8(std::exchange(waiting_, {})); }

}  // namespace deepinfer
