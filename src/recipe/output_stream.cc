#include "recipe/output_stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace deepinfer {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool ends_in_replacement(std::string_view text) { return text.size() >= 3 && text.substr(text.size() - 3) == kReplacement; }

OutputEvent::Kind event_kind(OutputDelta::Kind kind) {
  switch (kind) {
    case OutputDelta::Kind::kReasoning: return OutputEvent::Kind::kReasoning;
    case OutputDelta::Kind::kContent: return OutputEvent::Kind::kContent;
    case OutputDelta::Kind::kToolName: return OutputEvent::Kind::kToolBegin;
    case OutputDelta::Kind::kToolArguments: return OutputEvent::Kind::kToolArguments;
  }
  return OutputEvent::Kind::kContent;
}

}  // namespace

OutputStream::OutputStream(const Tokenizer& tokenizer, ParseOptions options)
    : tokenizer_(&tokenizer), parser_(std::move(options)) {}

std::string OutputStream::bytes_of(TokenId id) const {
  return tokenizer_->contains(id) ? std::string(tokenizer_->token_bytes(id)) : std::string();
}

LoggedToken OutputStream::logged(TokenId id, const TokenLogprobs& logprobs) const {
  LoggedToken out{{bytes_of(id), logprobs.logprob}, {}};
  for (const auto& [token, logprob] : logprobs.top) out.top.push_back({bytes_of(token), logprob});
  return out;
}

void OutputStream::start(std::vector<OutputEvent>& out) {
  if (started_) return;
  started_ = true;
  out.push_back({OutputEvent::Kind::kStart, {}, 0, {}, {}});
}

void OutputStream::push_ready(int64_t prompt_tokens, int64_t cached_tokens, std::optional<std::string> fingerprint,
                              std::vector<OutputEvent>& out) {
  if (started_ || finished_) return;
  usage_.prompt_tokens = prompt_tokens;
  usage_.cached_tokens = cached_tokens;
  fingerprint_ = std::move(fingerprint);
  start(out);
}

Status OutputStream::push_tokens(std::span<const TokenId> ids, std::span<const TokenLogprobs> logprobs,
                                 std::vector<OutputEvent>& out) {
  if (!logprobs.empty() && logprobs.size() != ids.size()) {
    return internal_error(
        fmt::format("invalid log probabilities: {} log probabilities for {} token IDs", logprobs.size(), ids.size()));
  }
  if (finished_) return {};
  // The reference gives a special token, which only a misled engine reports, a delta of its own.
  const auto is_special = [&](TokenId id) { return tokenizer_->contains(id) && tokenizer_->is_special(id); };
  if (const auto at = std::find_if(ids.begin(), ids.end(), is_special); at != ids.end() && ids.size() > 1) {
    const auto cut = std::max<size_t>(1, static_cast<size_t>(at - ids.begin()));
    const size_t head = logprobs.empty() ? 0 : cut;
    DI_CHECK_OK(push_tokens(ids.first(cut), logprobs.first(head), out));
    return push_tokens(ids.subspan(cut), logprobs.subspan(head), out);
  }
  usage_.has_token_ids = true;
  keeps_logprobs_ = keeps_logprobs_ || !logprobs.empty();
  for (size_t i = 0; i < ids.size(); ++i) {
    waiting_marks_.push_back({waiting_bytes_.size(), tokens_taken_++});
    waiting_.push_back(ids[i]);
    waiting_bytes_ += bytes_of(ids[i]);
    if (keeps_logprobs_) {
      logged_.resize(static_cast<size_t>(tokens_taken_));
      logged_.back() = logged(ids[i], logprobs.empty() ? TokenLogprobs{} : logprobs[i]);
    }
  }
  std::string text = to_valid_utf8(waiting_bytes_);
  if (text.empty() || ends_in_replacement(text)) return {};
  if (text.size() != waiting_bytes_.size()) {
    for (TokenMark& mark : waiting_marks_) {
      mark.offset = std::min(to_valid_utf8(std::string_view(waiting_bytes_).substr(0, mark.offset)).size(), text.size() - 1);
    }
  }
  usage_.completion_tokens += static_cast<int64_t>(waiting_.size());
  take_text(text, waiting_marks_, out);
  waiting_.clear();
  waiting_bytes_.clear();
  waiting_marks_.clear();
  return {};
}

void OutputStream::push_text(std::string_view text, int64_t num_tokens, std::vector<OutputEvent>& out) {
  if (finished_) return;
  usage_.completion_tokens += num_tokens;
  take_text(to_valid_utf8(text), {}, out);
}

void OutputStream::take_text(std::string_view text, const std::vector<TokenMark>& marks, std::vector<OutputEvent>& out) {
  std::vector<OutputDelta> deltas;
  parser_.feed(text, marks, deltas);
  emit(deltas, out);
  if (parser_.stopped()) finish(AnswerEnd::kStopString, parser_.stop_string(), out);
}

void OutputStream::emit(std::vector<OutputDelta>& deltas, std::vector<OutputEvent>& out) {
  for (OutputDelta& delta : deltas) {
    start(out);
    OutputEvent event{event_kind(delta.kind), std::move(delta.text), delta.tool_index, {}, {}};
    if (delta.kind == OutputDelta::Kind::kReasoning) usage_.reasoning_tokens += static_cast<int64_t>(delta.tokens.size());
    if (keeps_logprobs_) {
      for (const int64_t token : delta.tokens) event.logged.push_back(logged_[static_cast<size_t>(token)]);
    }
    out.push_back(std::move(event));
  }
}

void OutputStream::push_finish(AnswerEnd end, std::vector<OutputEvent>& out) {
  if (finished_) return;
  std::vector<OutputDelta> deltas;
  parser_.end(deltas);
  emit(deltas, out);
  if (end == AnswerEnd::kStop && parser_.num_tool_calls() > 0) end = AnswerEnd::kToolCalls;
  finish(end, {}, out);
}

void OutputStream::end_of_input(std::vector<OutputEvent>& out) {
  if (finished_) return;
  std::vector<OutputDelta> deltas;
  parser_.end(deltas);
  emit(deltas, out);
  finish(AnswerEnd::kStop, {}, out);
}

void OutputStream::finish(AnswerEnd end, std::string stop, std::vector<OutputEvent>& out) {
  start(out);
  finished_ = true;
  out.push_back({OutputEvent::Kind::kFinish, std::move(stop), 0, {}, end});
}

}  // namespace deepinfer
