#include "api/responses/custom_input.h"

#include <charconv>

#include "base/utf8.h"

namespace deepinfer {

namespace {
constexpr std::string_view kStart = "{\"input\": \"";
}

std::string CustomInput::feed(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (state_) {
      case State::kUnchanged: out += text.substr(i); return out;
      case State::kAfter: return out;
      case State::kText: text_byte(text[i], out); break;
      case State::kUndecided:
        held_ += text[i];
        if (text[i] != kStart[matched_]) {
          state_ = State::kUnchanged;
          out += held_;
          held_.clear();
        } else if (++matched_ == kStart.size()) {
          state_ = State::kText;
          held_.clear();
        }
    }
  }
  return out;
}

void CustomInput::text_byte(char byte, std::string& out) {
  if (held_.empty()) {
    if (byte == '"') {
      state_ = State::kAfter;
    } else if (byte == '\\') {
      held_ = "\\";
    } else {
      out += byte;
    }
    return;
  }
  held_ += byte;
  if (held_[1] == 'u' && held_.size() < 6) return;
  escape(out);
  held_.clear();
}

// One whole escape in held_.
void CustomInput::escape(std::string& out) {
  switch (held_[1]) {
    case 'n': out += '\n'; return;
    case 't': out += '\t'; return;
    case 'r': out += '\r'; return;
    case 'b': out += '\b'; return;
    case 'f': out += '\f'; return;
    case 'u': break;
    default: out += held_[1]; return;
  }
  unsigned code = 0;
  const auto [end, status] = std::from_chars(held_.data() + 2, held_.data() + 6, code, 16);
  if (status != std::errc() || end != held_.data() + 6) {
    out += held_;
    return;
  }
  if (code >= 0xD800 && code < 0xDC00) {
    surrogate_ = code;
    return;
  }
  if (surrogate_ && code >= 0xDC00 && code < 0xE000) code = 0x10000 + ((surrogate_ - 0xD800) << 10) + (code - 0xDC00);
  surrogate_ = 0;
  append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
}

std::string CustomInput::end() {
  std::string out;
  if (state_ == State::kUndecided) out.swap(held_);
  held_.clear();
  return out;
}

}  // namespace deepinfer
