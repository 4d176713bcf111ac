// Who is chosen among workers with roles.
#include <algorithm>

#include "cluster/fleet.h"

namespace deepinfer {
namespace {

constexpr Disaggregation kDisaggregation;

bool takes(WorkerRole role, Work work) {
  switch (work) {
    case Work::kWhole: return role == WorkerRole::kAll || role == WorkerRole::kDecode;
    case Work::kPrompt: return role == WorkerRole::kPrefill;
    case Work::kPicture: return role == WorkerRole::kEncode;
  }
  return false;
}

bool is_among(std::span<const int32_t> workers, int32_t worker) {
  return std::find(workers.begin(), workers.end(), worker) != workers.end();
}

}  // namespace

Placement Fleet::place(const PromptView& prompt, std::span<const PageKey> keys, std::span<const int32_t> avoided, int64_t now_us,
                       bool tight) {
  return place(Work::kWhole, prompt, keys, avoided, now_us, tight);
}

Placement Fleet::place(Work work, const PromptView& prompt, std::span<const PageKey> keys, std::span<const int32_t> avoided,
                       int64_t now_us, bool tight) {
  index_.match(keys, held_);
  const Placement placed = place_among(work, prompt, avoided, now_us, tight);
  if (placed.worker >= 0 || work == Work::kPrompt || any_for(work, avoided, now_us)) return placed;
  // Nobody is there for it, and any engine can do all of it.
  const Placement other = work == Work::kPicture ? place_among(Work::kWhole, prompt, avoided, now_us, tight) : placed;
  return other.worker >= 0 ? other : place_among(Work::kPrompt, prompt, avoided, now_us, tight);
}

bool Fleet::any_for(Work work, std::span<const int32_t> avoided, int64_t now_us) const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto worker = static_cast<int32_t>(i);
    if (takes(workers_[i].role, work) && !is_among(avoided, worker) && is_choice(worker, now_us)) return true;
  }
  return false;
}

// REQUIRES: held_ is of its keys.
Placement Fleet::place_among(Work work, const PromptView& prompt, std::span<const int32_t> avoided, int64_t now_us, bool tight) {
  const bool any_quick = any_ready(now_us);
  const double unmeasured = mean_us_per_token();
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    const auto worker = static_cast<int32_t>(i);
    views_[i] = {.ready = takes(w.role, work) && !is_among(avoided, worker) && can_take(worker, now_us, any_quick, tight),
                 .hit_tokens = std::min(int64_t{held_[i]} * facts_.page_tokens, prompt.tokens - 1),
                 .queued_tokens = w.queued_tokens,
                 .active_requests = std::max(w.inside, w.load.running + w.load.waiting) + w.coming,
                 .held_tokens = int64_t{w.load.pages - w.load.free_pages - w.load.cached_pages} * facts_.page_tokens,
                 .capacity_tokens = int64_t{w.load.pages} * facts_.page_tokens,
                 .us_per_token = w.us_per_token > 0 ? w.us_per_token : unmeasured};
  }
  PromptView numbered = prompt;
  numbered.number = placements_++;
  return place_prefill(policy_, numbered, views_);
}

RouteChoice Fleet::route(const PromptView& prompt, int64_t need_tokens, std::span<const PageKey> keys,
                         std::span<const int32_t> avoided, int64_t now_us, bool tight) {
  RouteChoice whole{.placed = place(prompt, keys, avoided, now_us, tight)};
  const int32_t there = whole.placed.worker;
  // Where the conversation was before, little is to be computed.
  if (there < 0 || at(there).role == WorkerRole::kPrefill || !kDisaggregation.pays(whole.placed.computed_tokens, 0)) return whole;
  RouteChoice apart{.placed = place_among(Work::kPrompt, prompt, avoided, now_us, tight)};
  if (apart.placed.worker < 0) return whole;
  apart.decode = place_decode_of(prompt, need_tokens, avoided, now_us, tight);
  if (apart.decode < 0) return whole;
  apart.held_pages = held_[static_cast<size_t>(apart.decode)];
  return apart;
}

int32_t Fleet::place_decode_of(const PromptView& prompt, int64_t need_tokens, std::span<const int32_t> avoided, int64_t now_us,
                               bool tight) {
  const bool any_quick = any_ready(now_us);
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    const auto worker = static_cast<int32_t>(i);
    const int64_t used = int64_t{w.load.pages - w.load.free_pages - w.load.cached_pages} * facts_.page_tokens;
    decode_views_[i] = {.ready = takes(w.role, Work::kWhole) && w.page_port > 0 && !is_among(avoided, worker) &&
                                 can_take(worker, now_us, any_quick, tight),
                        .used_tokens = used + w.coming_tokens,
                        .capacity_tokens = int64_t{w.load.pages} * facts_.page_tokens,
                        .active_requests = std::max(w.inside, w.load.running + w.load.waiting) + w.coming,
                        .max_requests = w.room};
  }
  return place_decode(need_tokens, prompt.hash, decode_views_);
}

void Fleet::note_coming(int32_t worker, int64_t tokens) {
  ++at(worker).coming;
  at(worker).coming_tokens += tokens;
}

void Fleet::note_came(int32_t worker, int64_t tokens) {
  Worker& w = at(worker);
  w.coming = std::max(0, w.coming - 1);
  w.coming_tokens = std::max<int64_t>(0, w.coming_tokens - tokens);
}

}  // namespace deepinfer
