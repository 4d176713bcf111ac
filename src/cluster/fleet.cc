#include "cluster/fleet.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

// A load is told ten times a second.
constexpr int64_t kStaleUs = 2'000'000, kSilentUs = 5'000'000;
// Newer measurements count for a quarter.
constexpr double kNewer = 0.25;
constexpr double kUnmeasuredUs = 100;

}  // namespace

Fleet::Fleet(RoutingPolicy policy, int32_t workers, int64_t stall_us)
    : policy_(policy),
      stall_us_(stall_us),
      workers_(static_cast<size_t>(workers)),
      index_(workers),
      views_(workers_.size()),
      decode_views_(workers_.size()),
      held_(workers_.size()) {}

Status Fleet::hear(int32_t worker, const HelloMessage& hello, int64_t now_us) {
  if (hello.protocol != kClusterProtocol) {
    return unsupported(
        fmt::format("it speaks protocol {}, this router {}: run the same build", hello.protocol, kClusterProtocol));
  }
  const ServiceFacts& other = hello.facts;
  if (other.model.empty() || other.shape.vocab < 1 || other.shape.hidden < 1 || other.context < 2 || other.max_batch < 1 ||
      other.queue_limit < 0 || other.pages < 1 || other.page_tokens < 1)
    return corrupt("its model has sizes that cannot be");
  if (facts_.model.empty()) facts_ = other;
  if (other.fingerprint != facts_.fingerprint || other.context != facts_.context || other.page_tokens != facts_.page_tokens) {
    return unsupported(
        fmt::format("it serves {} ({}, context {}), this router began with {} ({}, context {}): restart it for another model",
                    other.model, other.fingerprint, other.context, facts_.model, facts_.fingerprint, facts_.context));
  }
  // Answers that fit one worker only would not survive it.
  if (hello.role != WorkerRole::kEncode) facts_.pages = std::min(facts_.pages, other.pages);
  index_.clear(worker);
  Worker& w = at(worker);
  w = {.known = true,
       .is_open = true,
       .role = hello.role,
       .page_port = hello.page_port,
       .room = other.max_batch + other.queue_limit,
       .slots = hello.role == WorkerRole::kEncode ? kPicturesAtOnce : other.max_batch,
       .heard_us = now_us,
       .us_per_token = w.us_per_token,
       .us_per_drawn = w.us_per_drawn,
       .stall = w.stall,
       .next_load = w.next_load,
       .why_lost = ""};
  return {};
}

Status Fleet::hear(int32_t worker, const LoadMessage& load, int64_t now_us) {
  Worker& w = at(worker);
  if (load.sequence != w.next_load) return corrupt(fmt::format("its loads jump from {} to {}", w.next_load, load.sequence));
  ++w.next_load;
  w.heard_us = now_us;
  if (!w.known) return {};
  const auto learn = [](double& mean, int64_t rows, int64_t us) {
    if (rows <= 0 || us <= 0) return;
    const double measured = static_cast<double>(us) / static_cast<double>(rows);
    mean = mean == 0 ? measured : mean + kNewer * (measured - mean);
  };
  learn(w.us_per_token, load.prefill_rows - w.load.prefill_rows, load.prefill_us - w.load.prefill_us);
  learn(w.us_per_drawn, load.decode_rows - w.load.decode_rows, load.decode_us - w.load.decode_us);
  w.load = load;
  w.stall.note(load.step_age_us);
  return {};
}

Status Fleet::hear(int32_t worker, const BlocksMessage& blocks) {
  Worker& w = at(worker);
  if (!w.known) return {};
  if (blocks.sequence != w.next_blocks) {
    return corrupt(fmt::format("its page events jump from {} to {}", w.next_blocks, blocks.sequence));
  }
  ++w.next_blocks;
  index_.add(worker, blocks.stored);
  index_.remove(worker, blocks.removed);
  return {};
}

void Fleet::note_open(int32_t worker, int64_t now_us) {
  Worker& w = at(worker);
  w.is_open = true;
  w.heard_us = now_us;
  w.why_lost = "its model loads";
}

void Fleet::lose(int32_t worker, std::string why) {
  Worker& w = at(worker);
  if (w.known) index_.clear(worker);
  w = {.us_per_token = w.us_per_token, .us_per_drawn = w.us_per_drawn, .stall = w.stall, .why_lost = std::move(why)};
}

void Fleet::vacate(int32_t worker) {
  lose(worker, "left");
  at(worker) = {.is_member = false, .why_lost = "left"};
}

std::string Fleet::trouble(int32_t worker, int64_t now_us) const {
  const Worker& w = at(worker);
  if (!w.known) return w.why_lost;
  if (now_us - w.heard_us > kStaleUs) return fmt::format("silent for {:.1f} s", static_cast<double>(now_us - w.heard_us) / 1e6);
  if (!w.load.ready) return w.load.reason.empty() ? "not ready" : w.load.reason;
  if (is_slow(w)) {
    return fmt::format("its step has taken {:.1f} s, its steps take less than {:.1f} s",
                       static_cast<double>(w.load.step_age_us) / 1e6, static_cast<double>(w.stall.us(stall_us_)) / 1e6);
  }
  return "";
}

bool Fleet::is_choice(int32_t worker, int64_t now_us) const {
  const Worker& w = at(worker);
  return w.known && w.load.ready && now_us - w.heard_us <= kStaleUs;
}

bool Fleet::hangs(int32_t worker, int64_t now_us) const {
  const Worker& w = at(worker);
  if (!w.is_open) return false;
  if (now_us - w.heard_us > kSilentUs || w.load.step_age_us > stall_us_) return true;
  return w.known && is_slow(w) && any_ready(now_us);  // the learnt bound only where there is somewhere to go
}

bool Fleet::any_ready(int64_t now_us) const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const bool answers = workers_[i].role != WorkerRole::kEncode;
    if (answers && is_choice(static_cast<int32_t>(i), now_us) && !is_slow(workers_[i])) return true;
  }
  return false;
}

ScaleSample Fleet::scale_sample(int64_t now_us, std::string_view role) const {
  ScaleSample sample;
  double used = 0, pages = 0, active = 0, slots = 0;
  const double unmeasured = mean_us_per_token();
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    const bool counts = role.empty() || role == kWorkerRoleNames[static_cast<size_t>(w.role)];
    if (!counts || !trouble(static_cast<int32_t>(i), now_us).empty()) continue;
    ++sample.workers;
    used += w.load.pages - w.load.free_pages - w.load.cached_pages;
    pages += w.load.pages;
    active += std::max(w.inside, w.load.running + w.load.waiting) + w.coming;
    slots += w.slots;
    sample.queue_seconds += static_cast<double>(w.queued_tokens) * (w.us_per_token > 0 ? w.us_per_token : unmeasured) * 1e-6;
  }
  if (sample.workers == 0) return sample;
  if (pages > 0) sample.kv_share = used / pages;
  sample.active_share = active / std::max(1.0, slots);
  sample.queue_seconds /= sample.workers;
  double prefill_us = 0, prefilled = 0, drawn_us = 0, drawn = 0;
  for (const Worker& w : workers_) {
    if (w.us_per_token > 0) prefill_us += w.us_per_token, prefilled += 1;
    if (w.us_per_drawn > 0) drawn_us += w.us_per_drawn, drawn += 1;
  }
  sample.rates = {.prefill_tokens_s = prefilled > 0 ? 1e6 * prefilled / prefill_us : 0,
                  .decode_tokens_s = drawn > 0 ? 1e6 * drawn / drawn_us : 0,
                  .uncached_prompt_tokens = uncached_tokens_,
                  .output_tokens = output_tokens_};
  return sample;
}

double Fleet::mean_us_per_token() const {
  double sum = 0, count = 0;
  for (const Worker& worker : workers_) {
    if (worker.us_per_token > 0) sum += worker.us_per_token, count += 1;
  }
  return count > 0 ? sum / count : kUnmeasuredUs;
}

Error Fleet::why_none(int64_t now_us) const {
  std::string reasons;
  bool full = false;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].is_member) continue;
    const std::string why = trouble(static_cast<int32_t>(i), now_us);
    if (why.empty()) full |= is_full(workers_[i]);
    if (!why.empty()) reasons += fmt::format("{}worker {}: {}", reasons.empty() ? "" : "; ", i + 1, why);
  }
  if (full) return exhausted("every worker that is ready has a full queue: try again later");
  return {ErrorCode::kUnavailable, "no worker is ready: " + (reasons.empty() ? "none is known" : reasons)};
}

Error Fleet::refusal(int64_t now_us) const {
  Error why = why_none(now_us);
  if (why.code == ErrorCode::kUnavailable) why.message = "no worker is ready: try again later";
  return why;
}

void Fleet::note_placed(const Placement& placed, std::span<const PageKey> keys) {
  Worker& w = at(placed.worker);
  ++w.inside;
  w.queued_tokens += placed.computed_tokens;
  index_.promise(placed.worker, keys);
}

void Fleet::note_computed(const Placement& placed, std::span<const PageKey> keys) {
  Worker& w = at(placed.worker);
  w.queued_tokens = std::max<int64_t>(0, w.queued_tokens - placed.computed_tokens);
  index_.withdraw(placed.worker, keys);
}

void Fleet::note_answer(int64_t uncached_prompt_tokens, int64_t output_tokens) {
  constexpr double kWeight = 1.0 / 64;
  const double weight = output_tokens_ == 0 ? 1 : kWeight;
  uncached_tokens_ += weight * (static_cast<double>(uncached_prompt_tokens) - uncached_tokens_);
  output_tokens_ += weight * (static_cast<double>(output_tokens) - output_tokens_);
}

Fleet::Capacity Fleet::capacity(int64_t now_us) const {
  const auto of = [&](auto counts) {
    Capacity out;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!counts(workers_[i].role) || !is_choice(static_cast<int32_t>(i), now_us)) continue;
      out.room += workers_[i].room;
      out.slots += workers_[i].slots;
    }
    return out;
  };
  // Where answers are given; prompts pass through the others.
  const Capacity answering = of([](WorkerRole role) { return role == WorkerRole::kAll || role == WorkerRole::kDecode; });
  return answering.room > 0 ? answering : of([](WorkerRole role) { return role == WorkerRole::kPrefill; });
}

void Fleet::note_end(int32_t worker) {
  Worker& w = at(worker);
  w.inside = std::max(0, w.inside - 1);
}

}  // namespace deepinfer
