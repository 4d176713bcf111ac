#include "host/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/utf8.h"
#include "host/answer_constraint.h"
#include "host/image_encoder.h"
#include "host/prefix_report.h"
#include "recipe/prompt_cache.h"
#include "recipe/render.h"
#include "recipe/sampling.h"

namespace deepinfer {
namespace {

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status check_text(const Conversation& conversation) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    if (!is_valid_utf8(message.content.text) || !is_valid_utf8(message.reasoning.value_or(""))) {
      return invalid_argument(fmt::format("message {} ({}) is not valid UTF-8; convert it first, for example with iconv", i + 1,
                                          role_name(message.role)));
    }
  }
  return {};
}

SamplingParams sampling_of(const AskOptions& options, const GenerationDefaults& defaults, bool thinking) {
  const auto temperature = options.temperature ? options.temperature : defaults.temperature;
  const auto top_p = options.top_p ? options.top_p : defaults.top_p;
  const EffectiveSampling recommended = effective_sampling(thinking, std::nullopt, std::nullopt);
  SamplingParams sampling;
  sampling.temperature = temperature.value_or(recommended.temperature);
  sampling.top_p = top_p.value_or(recommended.top_p);
  sampling.top_k = options.top_k;
  sampling.min_p = options.min_p;
  sampling.seed = options.seed;
  sampling.frequency_penalty = options.frequency_penalty;
  sampling.presence_penalty = options.presence_penalty;
  sampling.repetition_penalty = options.repetition_penalty;
  sampling.logit_bias = options.logit_bias;
  sampling.num_logprobs = options.num_logprobs;
  return sampling;
}

// Agents come back within days to what they were at; what only talks is kept longer.
RetentionClass retention_of(const Conversation& conversation) {
  const auto uses_tools = [](const Message& message) { return message.role == Role::kTool || !message.announced.empty(); };
  const bool agent =
      !conversation.tools.empty() || std::any_of(conversation.messages.begin(), conversation.messages.end(), uses_tools);
  return agent ? RetentionClass::kAgent : RetentionClass::kChat;
}

// Each picture has one placeholder among the ids.
int64_t tokens_with(const std::vector<PreparedImage>& pictures, const std::vector<TokenId>& ids) {
  int64_t tokens = static_cast<int64_t>(ids.size());
  for (const PreparedImage& picture : pictures) tokens += picture.tokens - 1;
  return tokens;
}

// An answer has one token at least: a prompt that fills the context is one too long.
std::optional<int64_t> wanted_tokens(const AskOptions& options, int64_t prompt_tokens, int64_t context) {
  const int64_t left = context - prompt_tokens;
  std::optional<int64_t> wanted = options.max_tokens;
  if (options.fits_max_tokens && wanted) wanted = std::max<int64_t>(0, std::min(*wanted, left));
  return left == 0 ? std::max<int64_t>(1, wanted.value_or(1)) : wanted;
}

}  // namespace

Status set_thinking(Conversation& conversation, const std::string& think) {
  conversation.thinking = think != "off" && !think.empty();
  if (!conversation.thinking) return {};
  for (const Effort effort : {Effort::kLow, Effort::kHigh, Effort::kXhigh, Effort::kMax}) {
    if (think == effort_name(effort)) return conversation.effort = effort, Status();
  }
  return invalid_argument(fmt::format("thinking is one of off, low, high, max, not '{}'", think));
}

Result<int64_t> count_prompt_tokens(const Host& host, const Conversation& conversation) {
  DI_CHECK_OK(check_text(conversation));
  const Prompt prompt = render_prompt(conversation);
  DI_TRY(const std::vector<TokenId> ids, prompt.encode(host.tokenizer()));
  DI_TRY(const auto pictures, host.image_encoder().prepare(prompt.images()));
  return tokens_with(pictures, ids);
}

Result<AskPrompt> Ask::prepare(const Host& host, const Conversation& conversation, const AskOptions& options) {
  AskPrompt prompt;
  DI_CHECK_OK(check_text(conversation));
  DI_TRY(prompt.constraint, answer_constraint(host, conversation, options.grammar));
  const Prompt rendered = render_prompt(conversation);
  DI_TRY(prompt.ids, host.prompt_cache().encode(rendered, host.tokenizer(), options.tenant));
  DI_TRY(const auto pictures, host.image_encoder().prepare(rendered.images()));
  const int64_t prompt_tokens = tokens_with(pictures, prompt.ids);
  const int64_t context = host.facts().context;
  DI_TRY(prompt.max_tokens,
         resolve_max_tokens(conversation, wanted_tokens(options, prompt_tokens, context), prompt_tokens, context));
  // The tower runs for prompts that fit only.
  DI_TRY(prompt.images, host.image_encoder().encode(pictures, prompt.ids));
  prompt.map = map_prompt(rendered, prompt.ids, prompt.images, host.tokenizer());
  prompt.parsing = parse_options(conversation, options.stop);
  const bool formed = conversation.format.kind != ResponseFormat::Kind::kText || options.grammar;
  prompt.parsing.exact = prompt.constraint.grammar && formed;
  prompt.thinking = conversation.thinking;
  prompt.retention = options.retention.value_or(retention_of(conversation));
  return prompt;
}

Result<std::unique_ptr<Ask>> Ask::start(Host& host, AskPrompt prompt, const AskOptions& options, EventHandler handler) {
  Request request;
  const int64_t prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  request.prompt = std::move(prompt.ids);
  request.images = std::move(prompt.images);
  request.sampling = sampling_of(options, host.generation_defaults(), prompt.thinking);
  request.constraint = std::move(prompt.constraint);
  request.stop_ids = {host.facts().shape.eos_id};
  request.max_tokens = static_cast<int32_t>(prompt.max_tokens);
  request.priority = options.priority;
  request.deadline_us = options.deadline_us;
  request.tenant = options.tenant;
  request.retention = options.retention.value_or(prompt.retention);
  std::unique_ptr<Ask> ask(new Ask(host, OutputStream(host.tokenizer(), std::move(prompt.parsing))));
  ask->begin_us_ = now_us();
  ask->draft_usage_ = options.draft_usage;
  ask->cache_debug_ = options.cache_debug;
  ask->map_ = std::move(prompt.map);
  ask->stream_.push_ready(prompt_tokens, 0, host.fingerprint(), ask->opening_);
  DI_TRY(ask->id_, host.service().submit(std::move(request), std::move(handler)));
  return ask;
}

Result<std::unique_ptr<Ask>> Ask::start(Host& host, const Conversation& conversation, const AskOptions& options,
                                        EventQueue& queue) {
  const int64_t begin_us = now_us();
  DI_TRY(AskPrompt prompt, prepare(host, conversation, options));
  DI_TRY(auto ask, start(host, std::move(prompt), options, queue.handler()));
  ask->begin_us_ = begin_us;
  return ask;
}

Result<bool> Ask::take(const Event& event, std::vector<OutputEvent>& out) {
  const size_t before = out.size();
  if (event.usage.cached_tokens > 0) stream_.note_cached_tokens(event.usage.cached_tokens);
  if (event.report) {
    report_.engine = *event.report;
    if (const auto& prefix = event.report->prefix; cache_debug_ && prefix)
      stream_.note_cache_debug(prefix_report(*prefix, stream_.usage().prompt_tokens, host_.tokenizer(), map_));
  }
  if (event.token && !stream_.finished()) {
    if (report_.first_token_us == 0) report_.first_token_us = now_us() - begin_us_;
    std::vector<TokenLogprobs> logprobs;
    if (event.logprob) {
      TokenLogprobs entry{event.logprob->logprob, {}};
      for (const TokenLogprob& other : event.top_logprobs) entry.top.emplace_back(other.token, other.logprob);
      logprobs.push_back(std::move(entry));
    }
    const TokenId token = *event.token;
    // A model's vocabulary may be padded beyond the tokenizer's.
    if (host_.tokenizer().contains(token)) {
      DI_CHECK_OK(stream_.push_tokens({&token, 1}, logprobs, out));
    } else {
      stream_.push_text("\uFFFD", 1, out);
    }
    if (stream_.finished()) host_.service().finish(id_, stream_.tokens_taken() - 1);
  }
  if (event.finish != FinishReason::kNone && draft_usage_) {
    stream_.note_drafts(event.usage.accepted_tokens, event.usage.drafted_tokens - event.usage.accepted_tokens);
  }
  if (event.finish == FinishReason::kStop) stream_.push_finish(AnswerEnd::kStop, out);
  if (event.finish == FinishReason::kLength) stream_.push_finish(AnswerEnd::kLength, out);
  const bool broken = event.finish == FinishReason::kError || event.finish == FinishReason::kDeadline;
  if (event.finish == FinishReason::kCancelled || broken) stream_.end_of_input(out);
  note_end(out, before);
  if (event.finish == FinishReason::kNone) return false;
  report_.cancelled = event.finish == FinishReason::kCancelled;
  report_.total_us = now_us() - begin_us_;
  report_.usage = stream_.usage();
  report_.drafted_tokens = event.usage.drafted_tokens;
  report_.accepted_tokens = event.usage.accepted_tokens;
  report_.expired = event.finish == FinishReason::kDeadline;
  if (report_.expired) return Error{ErrorCode::kDeadline, event.error};
  if (event.finish == FinishReason::kError) return Error{event.error_code, event.error};
  return true;
}

void Ask::note_end(const std::vector<OutputEvent>& events, size_t from) {
  for (size_t i = from; i < events.size(); ++i) {
    if (events[i].kind == OutputEvent::Kind::kFinish) report_.end = events[i].end;
  }
}

}  // namespace deepinfer
