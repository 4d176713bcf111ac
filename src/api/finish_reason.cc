#include "api/finish_reason.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace deepinfer {

const char* finish_reason_name(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop:
    case AnswerEnd::kStopString: return "stop";
    case AnswerEnd::kToolCalls: return "tool_calls";
    case AnswerEnd::kLength: return "length";
    case AnswerEnd::kContentFilter: return "content_filter";
  }
  return "stop";
}

std::string visible_bytes(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    next_code_point(bytes, at);
    if (is_valid_utf8(bytes.substr(begin, at - begin))) {
      out += bytes.substr(begin, at - begin);
      continue;
    }
    for (size_t i = begin; i < at; ++i) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[i]));
  }
  return out;
}

void add_draft_usage(const AnswerUsage& usage, Json& details) {
  if (!usage.tells_drafts) return;
  details.set("accepted_prediction_tokens", usage.accepted_drafts);
  details.set("rejected_prediction_tokens", usage.rejected_drafts);
}

}  // namespace deepinfer
