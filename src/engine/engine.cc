#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/loop.h"
#include "engine/validate.h"
#include "grammar/constraint.h"

namespace deepinfer {

const char* step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::kDecode: return "decode";
    case StepKind::kPrefill: return "prefill";
    case StepKind::kMixed: return "mixed";
  }
  return "unknown";
}

double RankStats::imbalance() const {
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  return all > 0 ? busiest * ranks / all : 1;
}

namespace {

// Between two looks at a load of the store when nothing else is to do.
constexpr int64_t kLoadPollUs = 500;

Status at_least(const char* name, int64_t value, int64_t low) {
  if (value >= low) return {};
  return invalid_argument(fmt::format("{} must be at least {}, got {}", name, low, value));
}

}  // namespace

Result<EngineOptions> resolve(const LanguageModel& model, EngineOptions options) {
  const ModelShape& shape = model.shape();
  const int64_t page_tokens = model.layout().page_tokens;
  if (model.ranks() > kMaxRanks)
    return unsupported(fmt::format("a model over {} ranks: an engine has {} at most", model.ranks(), kMaxRanks));
  DI_CHECK_OK(at_least("max_batch", options.max_batch, 1));
  DI_CHECK_OK(at_least("step_tokens", options.step_tokens, options.max_batch));
  DI_CHECK_OK(at_least("queue_limit", options.queue_limit, 0));
  DI_CHECK_OK(at_least("snapshot_every", options.snapshot_every, 0));
  DI_CHECK_OK(at_least("pages", options.pages, 0));
  DI_CHECK_OK(at_least("max_draft", options.speculation.max_draft, 0));
  DI_CHECK_OK(at_least("lag", options.speculation.lag, 1));
  if (options.context == 0) {
    options.context = std::min(kDefaultContext, shape.max_context);
    if (options.pages > 0) options.context = std::min(options.context, options.pages * page_tokens);
  }
  DI_CHECK_OK(at_least("context", options.context, 2));
  if (options.context > shape.max_context) {
    return invalid_argument(
        fmt::format("context {} is more than the {} tokens of model {}", options.context, shape.max_context, model.name()));
  }
  if (options.pages == 0) {
    options.pages = static_cast<int32_t>(options.max_batch * ((options.context + page_tokens - 1) / page_tokens));
  }
  if (options.keep_tokens == 0) options.keep_tokens = shape.window;
  if (options.replay != ReplayMode::kOff && options.keep_tokens < shape.window) {
    return invalid_argument(
        fmt::format("keep_tokens must be at least the model's window of {}, got {}", shape.window, options.keep_tokens));
  }
  return options;
}

Engine::Loop::Loop(Device& device, const LanguageModel& model, const EngineOptions& options)
    : device_(device),
      model_(model),
      options_(options),
      replay_(replay_rules(model.shape(), options.replay, options.keep_tokens, model.layout().page_tokens)),
      by_slot_(static_cast<size_t>(options.max_batch)),
      rank_loads_(static_cast<size_t>(model.ranks())) {
  counts_.ranks.ranks = model.ranks();
}

Result<std::unique_ptr<Engine::Loop>> Engine::Loop::create(Device& device, const LanguageModel& model,
                                                           const EngineOptions& options) {
  DI_TRY(const EngineOptions resolved, resolve(model, options));
  std::unique_ptr<Loop> loop(new Loop(device, model, resolved));
  DI_TRY(loop->cache_,
         SequenceCache::create(device, model.layout(),
                               {.store = {.slots = resolved.max_batch, .pages = resolved.pages, .context = resolved.context},
                                .replay = loop->replay_,
                                .fingerprint = model.fingerprint(),
                                .share_prefixes = resolved.prefix_cache,
                                .snapshot_bytes = resolved.snapshot_bytes,
                                .snapshot_every = resolved.snapshot_every,
                                .tier = resolved.store}));
  if (resolved.pages_changed) loop->cache_->keep_page_changes();
  loop->speculation_ = Speculation::create(device, model, resolved.speculation, resolved.max_batch);
  loop->overlaps_ = resolved.overlap == OverlapMode::kOn || (resolved.overlap == OverlapMode::kAuto && device.runs_beside_host());
  const bool drafts = loop->speculation_ != nullptr;
  const int32_t max_logits = resolved.max_batch * (drafts ? 1 + loop->speculation_->width() : 1);
  DI_TRY(loop->workspace_, model.make_workspace(device, {.max_rows = resolved.step_tokens,
                                                         .max_logits = max_logits,
                                                         .max_context = resolved.context,
                                                         .max_drafts = drafts ? resolved.max_batch : 0}));
  if (drafts) DI_CHECK_OK(loop->speculation_->check(*loop->workspace_));
  DI_TRY(loop->sampler_, Sampler::create(device, model.shape().vocab, max_logits, drafts && loop->speculation_->rejects()));
  const bool measures =
      resolved.speculation.mode == SpeculationMode::kAuto || resolved.speculation.schedule != SpeculationSchedule::kFixed;
  if (drafts && measures) {
    const int64_t most = std::min({int64_t{resolved.step_tokens}, resolved.context, int64_t{model.layout().page_tokens}});
    DI_CHECK_OK(loop->speculation_->probe(model, loop->state(), *loop->workspace_, static_cast<int32_t>(most)));
  }
  loop->publish({}, nullptr);
  return loop;
}

// What can be known before the first token is refused here; the pages of the longest answer are known, too.
Result<std::unique_ptr<Sequence>> Engine::Loop::accept(Request request, EventHandler handler) const {
  DI_CHECK_OK(validate_request(request, model_.shape(), options_.context));
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  DI_TRY(const int64_t limit,
         answer_limit(prompt_tokens, request.max_tokens, options_.context, options_.pages, model_.layout().page_tokens));
  if (static_cast<int64_t>(request.answered.size()) >= limit) {
    return invalid_argument(fmt::format("the answer has {} tokens already, {} are its limit", request.answered.size(), limit));
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->phase_since_us = now_us();
  if (!request.sampling.seed) {
    DI_TRY(request.sampling.seed, draw_seed());
  }
  if (request.original_prompt_tokens == 0) request.original_prompt_tokens = prompt_tokens;
  sequence->tokens = std::move(request.prompt);
  sequence->prompt_tokens = prompt_tokens;
  sequence->answer_limit = limit;
  if (request.constraint.grammar) {
    sequence->mask = request.constraint.grammar->start(request.stop_ids);
    sequence->masked = request.constraint.begins_after < 0;
  }
  sequence->request = std::move(request);
  sequence->handler = std::move(handler);
  if (sequence->request.sampling.repetition_penalty != 1.0f) {
    for (const TokenId token : sequence->tokens) sequence->counts.add_prompt(token);
  }
  return sequence;
}

// What another engine gave of the answer is taken over as if this one had committed it.
Status Engine::Loop::take_over(Sequence& sequence) {
  const std::vector<TokenId> answered = std::exchange(sequence.request.answered, {});
  const bool counts = has_penalties(sequence.request.sampling);
  for (const TokenId token : answered) {
    if (!follow_constraint(sequence, token))
      return invalid_argument(fmt::format("token {} of the answer so far does not fit the constraint", sequence.answer_tokens()));
    sequence.tokens.push_back(token);
    if (counts) sequence.counts.add_answer(token);
  }
  return {};
}

Result<RequestId> Engine::Loop::submit(Request request, EventHandler handler, std::unique_ptr<TokenMask> mask,
                                       PageTransfer transfer) {
  DI_TRY(auto sequence, accept(std::move(request), std::move(handler)));
  sequence->transfer = std::move(transfer);
  if (mask) {
    sequence->mask = std::move(mask);
    sequence->masked = sequence->request.constraint.begins_after < 0;
  }
  DI_CHECK_OK(take_over(*sequence));
  if (num_inside_.load(std::memory_order_relaxed) == 0) note_progress();
  if (num_inside_.fetch_add(1) >= options_.max_batch + options_.queue_limit) {
    num_inside_.fetch_sub(1);
    return exhausted(fmt::format("the queue is full: {} requests may run and {} wait, try again later", options_.max_batch,
                                 options_.queue_limit));
  }
  const RequestId id = next_id_.fetch_add(1);
  sequence->request.id = id;
  InboxMessage message{.kind = InboxMessage::Kind::kSubmit, .id = id, .sequence = std::move(sequence)};
  if (!inbox_.push(std::move(message))) {
    num_inside_.fetch_sub(1);
    return Error{ErrorCode::kUnavailable, "the engine is stopped: send the request elsewhere"};
  }
  return id;
}

void Engine::Loop::start() {
  DI_CHECK(!thread_.joinable());
  thread_ = std::thread([this] {
    while (!inbox_.closed()) {
      if (!step()) {
        inbox_.wait();
      } else if (running_.empty() && loading_) {
        inbox_.wait_for(kLoadPollUs);
      }
    }
  });
}

void Engine::Loop::stop() {
  inbox_.close();
  if (thread_.joinable()) thread_.join();
  if (in_flight_) settle();
  read_inbox();
  const auto end = [](Sequence& sequence) { sequence.end(FinishReason::kCancelled, "the engine was stopped"); };
  waiting_.for_each(end);
  for (auto& sequence : running_) end(*sequence);
  retire_waiting();
  retire();
  cache_->settle_all();
  publish({}, nullptr);
  if (options_.step_end) options_.step_end();
}

Status Engine::Loop::health() const {
  const std::lock_guard lock(published_mutex_);
  return health_;
}

EngineProgress Engine::Loop::progress() const {
  EngineProgress out{.inside = num_inside_.load()};
  if (out.inside > 0 && options_.clock) out.since_us = std::max<int64_t>(0, options_.clock->now_us() - progress_us_.load());
  return out;
}

EngineStats Engine::Loop::stats() const {
  const std::lock_guard lock(published_mutex_);
  EngineStats out = published_;
  out.store = cache_->tier_stats();
  return out;
}

Engine::Engine(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

Engine::~Engine() { stop(); }

Result<std::unique_ptr<Engine>> Engine::create(Device& device, const LanguageModel& model, const EngineOptions& options) {
  DI_TRY(auto loop, Loop::create(device, model, options));
  return std::unique_ptr<Engine>(new Engine(std::move(loop)));
}

Result<RequestId> Engine::submit(Request request, EventHandler handler) {
  return loop_->submit(std::move(request), std::move(handler), nullptr, {});
}

Result<RequestId> Engine::submit(Request request, EventHandler handler, std::unique_ptr<TokenMask> mask) {
  return loop_->submit(std::move(request), std::move(handler), std::move(mask), {});
}

Result<RequestId> Engine::submit(Request request, EventHandler handler, PageTransfer transfer) {
  return loop_->submit(std::move(request), std::move(handler), nullptr, std::move(transfer));
}

void Engine::cancel(RequestId id) { loop_->post({.kind = InboxMessage::Kind::kCancel, .id = id}); }

void Engine::finish(RequestId id, int64_t last_index) {
  loop_->post({.kind = InboxMessage::Kind::kFinish, .id = id, .last_index = last_index});
}

bool Engine::step() { return loop_->step(); }
void Engine::start() { loop_->start(); }
void Engine::stop() { loop_->stop(); }
Status Engine::health() const { return loop_->health(); }
EngineStats Engine::stats() const { return loop_->stats(); }
EngineProgress Engine::progress() const { return loop_->progress(); }
Engine::TransferSizes Engine::transfer_sizes() const { return std::as_const(*loop_).transfer_sizes(); }
const EngineOptions& Engine::options() const { return loop_->options(); }

}  // namespace deepinfer
