// cluster/fleet.h - what a router knows of its workers, and the choice among them.
//
// Fed by messages and the clock, it answers which worker takes a prompt; it sends nothing. A worker is a choice while its link is
// open, its facts are those of the fleet, its last load is young and says ready, its steps end, and it has room. Promise: the
// same calls give the same choices. Threads: one at a time.
//
//   Fleet fleet(RoutingPolicy::kDefault, 8, 30'000'000);
//   fleet.hear(0, hello, now_us);  fleet.hear(0, load, now_us);
//   const Placement placed = fleet.place({.tokens = ids.size(), .hash = number}, keys, avoided, now_us);
//   fleet.note_placed(placed, keys);   ...   fleet.note_computed(placed, keys); fleet.note_end(worker);
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/wire.h"
#include "kvcache/fleet_index.h"
#include "policy/autoscale.h"
#include "policy/routing.h"
#include "policy/stall_bound.h"

namespace deepinfer {

// What a worker is wanted for: whole requests, prompts whose answers go on elsewhere, pictures.
enum class Work : uint8_t { kWhole, kPrompt, kPicture };

// Where a request goes, and where it goes on behind its prompt.
struct RouteChoice {
  Placement placed;
  int32_t decode = -1;     // -1: it stays
  int64_t held_pages = 0;  // of the prompt, that are there already
};

class Fleet {
 public:
  // `stall_us`: the longest step of a worker that does not hang.
  Fleet(RoutingPolicy policy, int32_t workers, int64_t stall_us);

  // Error: it serves something else than the first.
  Status hear(int32_t worker, const HelloMessage& hello, int64_t now_us);
  // Errors of these two: messages are missing; the link has to begin anew.
  Status hear(int32_t worker, const LoadMessage& load, int64_t now_us);
  Status hear(int32_t worker, const BlocksMessage& blocks);
  void lose(int32_t worker, std::string why);
  // There is nobody in this slot, until lose() says why somebody new is not connected yet.
  void vacate(int32_t worker);
  // Its link is open; a hello should follow.
  void note_open(int32_t worker, int64_t now_us);

  // Workers of `avoided` are no choice. worker < 0: nobody is; why_none() says why, to operators; refusal() to clients, whom the
  // parts of a cluster do not concern. `tight`: what would wait behind the slots of a worker is no choice either, as somebody
  // else decides whose turn it is.
  Placement place(const PromptView& prompt, std::span<const PageKey> keys, std::span<const int32_t> avoided, int64_t now_us,
                  bool tight = false);
  Placement place(Work work, const PromptView& prompt, std::span<const PageKey> keys, std::span<const int32_t> avoided,
                  int64_t now_us, bool tight = false);
  // The same for a request whose state may grow to `need_tokens`: a prompt of which much has to be computed goes to a worker that
  // does nothing else, where there is one. With roles, whoever is left does everything.
  RouteChoice route(const PromptView& prompt, int64_t need_tokens, std::span<const PageKey> keys,
                    std::span<const int32_t> avoided, int64_t now_us, bool tight = false);
  // Takes a request now.
  bool can_take(int32_t worker, int64_t now_us) const { return can_take(worker, now_us, any_ready(now_us), false); }
  // A request will come when its prompt has been computed elsewhere, and: it has come, or never will.
  void note_coming(int32_t worker, int64_t tokens);
  void note_came(int32_t worker, int64_t tokens);
  uint16_t page_port(int32_t worker) const { return at(worker).page_port; }
  Error why_none(int64_t now_us) const;
  Error refusal(int64_t now_us) const;
  void note_placed(const Placement& placed, std::span<const PageKey> keys);
  // What note_placed() added has been computed, or never will be; what the worker keeps of it is told by its events.
  void note_computed(const Placement& placed, std::span<const PageKey> keys);
  void note_end(int32_t worker);
  // What a request asked for, for P:D.
  void note_answer(int64_t uncached_prompt_tokens, int64_t output_tokens);

  // Requests that ready workers take, and those of them that run at once.
  struct Capacity {
    int64_t room = 0, slots = 0;
  };
  Capacity capacity(int64_t now_us) const;
  // Its steps do not end, or it says nothing: what runs there has to go on elsewhere.
  bool hangs(int32_t worker, int64_t now_us) const;
  // It is left for that.
  void note_hung(int32_t worker) { at(worker).stall.relax(); }
  // "" = it is a choice.
  std::string trouble(int32_t worker, int64_t now_us) const;
  bool any_ready(int64_t now_us) const;
  // Of the ready workers of a role, "" = of all.
  ScaleSample scale_sample(int64_t now_us, std::string_view role = "") const;
  // Of the first worker that said hello, kept for good; model "" before.
  const ServiceFacts& facts() const { return facts_; }

 private:
  struct Worker {
    bool is_member = true, known = false, is_open = false;
    WorkerRole role = WorkerRole::kAll;
    uint16_t page_port = 0;
    int32_t room = 0, slots = 0;  // requests it takes, and runs at once
    LoadMessage load;
    int64_t heard_us = 0;
    int32_t inside = 0;         // requests of this router
    int32_t coming = 0;         // prompts computed elsewhere that go on there
    int64_t coming_tokens = 0;  // of those
    int64_t queued_tokens = 0;  // of those, still to be computed before their first token
    double us_per_token = 0;    // 0: not measured yet
    double us_per_drawn = 0;    // the same of decoding
    StallBound stall;
    uint64_t next_blocks = 0, next_load = 0;
    std::string why_lost = "not connected yet";
  };
  Worker& at(int32_t worker) { return workers_[static_cast<size_t>(worker)]; }
  const Worker& at(int32_t worker) const { return workers_[static_cast<size_t>(worker)]; }
  static bool is_full(const Worker& worker, bool tight = false) {
    // A few may stand ready behind the slots, or these would be empty between two requests.
    const int32_t most = tight ? std::min(worker.room, worker.slots + worker.slots / 8 + 1) : worker.room;
    return std::max(worker.inside, worker.load.running + worker.load.waiting) + worker.coming >= most;
  }
  // Its step takes longer than its steps do; others are better.
  bool is_slow(const Worker& worker) const { return worker.load.step_age_us > worker.stall.us(stall_us_); }
  bool is_choice(int32_t worker, int64_t now_us) const;
  // `any_quick`: there is somebody ready whose step is not slow.
  bool can_take(int32_t worker, int64_t now_us, bool any_quick, bool tight) const {
    return is_choice(worker, now_us) && !(any_quick && is_slow(at(worker))) && !is_full(at(worker), tight);
  }
  double mean_us_per_token() const;
  bool any_for(Work work, std::span<const int32_t> avoided, int64_t now_us) const;
  Placement place_among(Work work, const PromptView& prompt, std::span<const int32_t> avoided, int64_t now_us, bool tight);
  int32_t place_decode_of(const PromptView& prompt, int64_t need_tokens, std::span<const int32_t> avoided, int64_t now_us,
                          bool tight);

  const RoutingPolicy policy_;
  const int64_t stall_us_;
  ServiceFacts facts_;
  std::vector<Worker> workers_;
  FleetIndex index_;
  std::vector<PrefillView> views_;
  std::vector<DecodeView> decode_views_;
  std::vector<int32_t> held_;
  uint64_t placements_ = 0;
  double uncached_tokens_ = 0, output_tokens_ = 0;  // of a request, in the mean
};

}  // namespace deepinfer
