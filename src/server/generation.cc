#include "server/generation.h"

#include <algorithm>

#include "api/errors.h"
#include "api/finish_reason.h"
#include "base/hash.h"
#include "host/prefix_report.h"
#include "server/small_routes.h"

namespace deepinfer {

namespace {

// A whole answer begins early when it takes so many times as long as the silence a stream may have: most are shorter, and
// keep a status that says how they ended.
constexpr int64_t kSilencesBeforeWhole = 6;

}  // namespace

Generation::Generation(ServerContext& context, CallPtr call, AnswerPlan plan)
    : context_(context), call_(std::move(call)), plan_(std::move(plan)) {}

uint64_t answer_seed(std::string_view id) { return hash_bytes(id); }

void AnswerForm::end(const AnswerUsage&, const OutputStream&, std::string&) const {}

void AnswerForm::fail(const Error& error, std::string& out) { out += "data: " + error_body(error).dump() + "\n\n"; }

void Generation::start() {
  plan_.options.tenant = call_->tenant;
  listen_for_the_end();
  submit_all();
  if (over_) return;
  begun_us_ = written_us_ = context_.clock.now_us();
  const Status begun = plan_.form->begun([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
  if (!begun) return fail(begun.error());
  if (plan_.stream) begin_stream("text/event-stream; charset=utf-8");
  for (size_t i = 0; i < choices_.size(); ++i) show(i, choices_[i].ask->opening());
  write_out();
  if (!plan_.background || plan_.stream) return;
  unheard_ = true;
  call_->respond(200, "application/json", plan_.form->body({}, choices_[0].ask->stream()));
}

void Generation::listen_for_the_end() {
  call_->on_gone = [self = shared_from_this()] {
    if (!self->plan_.background) return self->abandon(self->call_->line.outcome);
    self->unheard_ = true;
  };
}

void Generation::begin_stream(const char* type) {
  HttpHeaders headers = call_->headers;
  headers.set("content-type", type);
  headers.set("cache-control", "no-cache");
  headers.set("x-accel-buffering", "no");
  call_->exchange->begin_stream(200, headers);
}

void Generation::submit_all() {
  const size_t answers = static_cast<size_t>(plan_.num_answers);
  choices_.resize(plan_.prompts.size() * answers);
  for (size_t i = 0; i < choices_.size(); ++i) {
    AskOptions options = plan_.options;
    // Answers of one seeded request differ from each other, and each is the same every time.
    if (options.seed) options.seed = (*options.seed + i % answers) & (~uint64_t{0} >> 1);
    auto ask = Ask::start(*context_.host, plan_.prompts[i / answers], options, context_.link.handler(shared_from_this(), i));
    if (!ask) return fail(ask.error());
    choices_[i].ask = std::move(*ask);
    ++left_;
  }
}

// Of the first answer that began: an exchange has one line in the log.
void Generation::note_report(size_t index, const Event& event) {
  if (index != 0 || !event.report) return;
  if (event.report->prefix && !call_->line.report) {
    const Ask& ask = *choices_[0].ask;
    context_.cache_log.add(
        {call_->request_id, call_->key, *event.report->prefix, ask.stream().usage().prompt_tokens, ask.prompt_map()});
    if (const auto hint = prefix_hint(*event.report->prefix, context_.host->tokenizer())) call_->line.cache_hint = hint->name;
  }
  call_->line.report = event.report;
}

void Generation::take(size_t index, const Event& event) {
  Choice& choice = choices_[index];
  if (over_ || choice.done || !choice.ask) return;
  note_report(index, event);
  if (event.token && first_token_us_ == 0) first_token_us_ = context_.clock.now_us();
  pieces_.clear();
  const Result<bool> done = choice.ask->take(event, pieces_);
  if (!done) return fail(done.error());
  if (*done && choice.ask->report().cancelled) {
    return fail({ErrorCode::kUnavailable, "the server is stopping: send the request elsewhere"});
  }
  show(index, pieces_);
  if (*done) {
    choice.done = true;
    if (--left_ == 0) return complete();
  }
  write_out();
}

void Generation::show(size_t index, const std::vector<OutputEvent>& events) {
  const OutputStream& stream = choices_[index].ask->stream();
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::kFinish) call_->line.finish = finish_reason_name(event.end);
    if (plan_.stream) {
      plan_.form->append(index, event, stream, out_);
    } else {
      plan_.form->collect(index, event, stream);
    }
  }
}

void Generation::write_out() {
  if (out_.empty()) return;
  written_us_ = context_.clock.now_us();
  if (!unheard_) call_->exchange->write(out_);
  out_.clear();
}

void Generation::keep_alive(int64_t now_us) {
  if (over_ || unheard_) return;
  if (is_overdue(now_us)) return fail({ErrorCode::kDeadline, "the answer did not begin in time: the server is too busy"});
  const bool has_begun = call_->exchange->has_begun();
  const auto silence_us = static_cast<int64_t>(static_cast<double>(context_.settings.keep_alive) * 1e6);
  if (now_us - written_us_ < silence_us * (has_begun ? 1 : kSilencesBeforeWhole)) return;
  if (!has_begun) begin_stream("application/json");
  plan_.stream ? plan_.form->keep_alive(out_) : out_.push_back('\n');
  write_out();
}

bool Generation::is_overdue(int64_t now_us) const {
  if (first_token_us_ > 0 || profile_rules(context_.api.profile).waits_to_begin) return false;
  return static_cast<double>(now_us - begun_us_) > static_cast<double>(context_.settings.start_timeout) * 1e6;
}

void Generation::cancel_rest() {
  for (Choice& choice : choices_) {
    if (choice.ask && !choice.done) choice.ask->cancel();
  }
}

void Generation::fail(const Error& error) {
  if (over_) return;
  over_ = true;
  cancel_rest();
  note_usage();
  call_->line.finish = error_code_name(error.code);
  context_.metrics.count_aborted(error_code_name(error.code));
  plan_.form->broken(error);
  call_->on_gone = nullptr;
  if (unheard_) return;
  if (!call_->exchange->has_begun())
    return call_->fail(error, error.code == ErrorCode::kExhausted ? retry_after_seconds(context_) : 1);
  if (plan_.stream) {
    plan_.form->fail(error, out_);
  } else {
    out_ += call_->error_json(error).dump();
  }
  write_out();
  call_->exchange->finish_stream();
}

void Generation::complete() {
  over_ = true;
  note_usage();
  call_->on_gone = nullptr;
  const OutputStream& stream = choices_[0].ask->stream();
  const double first = first_token_us_ > 0 ? static_cast<double>(first_token_us_ - call_->exchange->begin_us()) / 1e6 : 0;
  context_.metrics.count_answer(call_->line.prompt_tokens, call_->line.completion_tokens, first);
  plan_.form->completed(stream);
  if (unheard_) return;
  if (plan_.stream) {
    plan_.form->end(total_usage(), stream, out_);
  } else {
    out_ += plan_.form->body(total_usage(), stream);
    if (!call_->exchange->has_begun()) return call_->respond(200, "application/json", std::move(out_));
  }
  write_out();
  call_->exchange->finish_stream();
}

void Generation::cancel() {
  if (over_) return;
  abandon("cancelled");
  plan_.form->cancelled();
  call_->on_gone = nullptr;
  if (unheard_ || !call_->exchange->has_begun()) return;
  plan_.form->fail({ErrorCode::kCancelled, "the response was cancelled"}, out_);
  write_out();
  call_->exchange->finish_stream();
}

void Generation::abandon(const std::string& reason) {
  if (over_) return;
  over_ = true;
  cancel_rest();
  note_usage();
  call_->line.finish = "aborted";
  context_.metrics.count_aborted(reason);
}

AnswerUsage Generation::total_usage() const {
  AnswerUsage total;
  const size_t answers = static_cast<size_t>(plan_.num_answers);
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].ask) continue;
    const AnswerUsage& usage = choices_[i].ask->stream().usage();
    // A prompt with several answers is one prompt.
    if (i == 0) total.cache_debug = usage.cache_debug;
    if (i % answers == 0) {
      total.prompt_tokens += usage.prompt_tokens;
      total.cached_tokens += usage.cached_tokens;
    }
    total.completion_tokens += usage.completion_tokens;
    total.reasoning_tokens += usage.reasoning_tokens;
    total.has_token_ids |= usage.has_token_ids;
    total.tells_drafts |= usage.tells_drafts;
    total.accepted_drafts += usage.accepted_drafts;
    total.rejected_drafts += usage.rejected_drafts;
  }
  return total;
}

void Generation::note_usage() {
  const AnswerUsage total = total_usage();
  call_->line.prompt_tokens = total.prompt_tokens;
  call_->line.completion_tokens = total.completion_tokens;
  context_.quotas[call_->key].charge(0, total.prompt_tokens + total.completion_tokens);
}

}  // namespace deepinfer
