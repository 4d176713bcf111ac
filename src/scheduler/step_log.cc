#include "scheduler/step_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "policy/ranks.h"

namespace deepinfer {
namespace {

constexpr int64_t kVersion = 2;
// Tokens of a sequence that a log may claim: more would be memory for nothing.
constexpr int64_t kMostTokens = int64_t{1} << 22;

template <class T>
Json list_of(std::span<const T> values) {
  Json out = Json::array();
  for (const T value : values) out.push_back(int64_t{value});
  return out;
}
Json row(std::initializer_list<int64_t> values) { return list_of(std::span(values.begin(), values.size())); }

Json budget_json(const StepBudget& budget) {
  const ReplayRules& r = budget.replay;
  Json out = row({budget.step_tokens, budget.hidden, static_cast<int64_t>(r.mode), r.keep_tokens, r.window, r.encoder_layers,
                  r.layers, r.page_tokens});
  if (budget.ranks > 1) out.push_back(int64_t{budget.ranks});
  return out;
}

Json running_json(const RunningSequence& s) {
  Json out = Json::object({{"at", row({static_cast<int64_t>(s.request), s.slot, s.computed, s.original_prompt_tokens,
                                       s.write_floor, s.window_floor, s.cut, s.priority, s.tenant})},
                           {"tokens", list_of(s.tokens.subspan(static_cast<size_t>(s.computed)))}});
  if (s.rank > 0) out.set("rank", int64_t{s.rank});
  if (!s.drafts.empty()) out.set("drafts", list_of(s.drafts));
  if (s.draw >= 0) out.set("draw", int64_t{s.draw});
  if (!s.images.empty()) {
    Json images = Json::array();
    for (const ImageSpan& image : s.images) images.push_back(row({image.begin, image.rows}));
    out.set("images", std::move(images));
  }
  return out;
}

Json plan_json(const StepPlan& plan) {
  Json sequences = Json::array(), images = Json::array();
  for (const SequenceRows& s : plan.sequences) {
    sequences.push_back(row({static_cast<int64_t>(s.request), s.slot, s.begin, s.count, s.first_token, s.decoder_begin,
                             s.window_floor, s.encoder_window_floor, s.write_floor, s.prompt_tokens, s.num_logits}));
  }
  for (const ImageRows& image : plan.images) images.push_back(row({image.token_begin, image.rows}));
  return Json::object({{"tokens", list_of(std::span<const TokenId>(plan.tokens))},
                       {"sequences", std::move(sequences)},
                       {"images", std::move(images)}});
}

Result<std::vector<int64_t>> integers(const Json& list, std::string_view name, size_t least) {
  if (!list.is_array() || list.size() < least) return corrupt(fmt::format("step log: {} is no list of {} numbers", name, least));
  std::vector<int64_t> out;
  for (const Json& item : list.items()) {
    DI_TRY(const int64_t value, item.to_int64(name));
    out.push_back(value);
  }
  return out;
}

Result<StepBudget> read_budget(const Json& json) {
  DI_TRY(const auto v, integers(json, "budget", 8));
  if (v[2] < 0 || v[2] > static_cast<int64_t>(ReplayMode::kFull)) return corrupt("step log: budget names no replay mode");
  for (const int64_t value : v) {
    if (value < 0 || value > kMostTokens) return corrupt("step log: a number of the budget is out of range");
  }
  const auto small = [&](size_t i) { return static_cast<int32_t>(v[i]); };
  return StepBudget{.step_tokens = small(0),
                    .replay = {.mode = static_cast<ReplayMode>(v[2]),
                               .keep_tokens = small(3),
                               .window = small(4),
                               .encoder_layers = small(5),
                               .layers = small(6),
                               .page_tokens = small(7)},
                    .hidden = small(1),
                    .ranks = v.size() > 8 ? std::clamp(small(8), 1, kMaxRanks) : 1};
}

// A sequence with the memory its spans look at.
struct Recorded {
  std::vector<TokenId> tokens, drafts;
  std::vector<ImageSpan> images;
  RunningSequence view;
};

// `room`: what the sequences of one line may still take, in tokens and image values.
Status read_sequence(const Json& json, const StepBudget& budget, int64_t& room, Recorded& out) {
  const int32_t hidden = budget.hidden;
  int64_t rank = 0;
  if (const Json& owner = json.at("rank"); !owner.is_null()) {
    DI_TRY(rank, owner.to_int64("rank"));
  }
  if (rank < 0 || rank >= budget.ranks) return corrupt("step log: a sequence is of a rank that there is not");
  DI_TRY(const auto at, integers(json.at("at"), "at", 9));
  int64_t draw = -1;
  if (const Json& drawn = json.at("draw"); !drawn.is_null()) {
    DI_TRY(draw, drawn.to_int64("draw"));
    if (draw < 0 || draw > kMostTokens) return corrupt("step log: draw is out of range");
  }
  DI_TRY(const auto pending, integers(json.at("tokens"), "tokens", draw < 0 ? 1 : 0));
  if (at[2] < 0 || at[2] > room) return corrupt("step log: the sequences have more tokens than any step");
  room -= at[2];
  out.tokens.resize(static_cast<size_t>(at[2]));
  for (const int64_t id : pending) out.tokens.push_back(static_cast<TokenId>(id));
  if (const Json& drafts = json.at("drafts"); !drafts.is_null()) {
    DI_TRY(const auto ids, integers(drafts, "drafts", 0));
    for (const int64_t id : ids) out.drafts.push_back(static_cast<TokenId>(id));
  }
  for (const Json& image : json.at("images").items()) {
    DI_TRY(const auto v, integers(image, "images", 2));
    if (v[1] < 0 || v[1] > room / std::max(1, hidden)) return corrupt("step log: the images have more rows than any step");
    room -= v[1] * hidden;
    out.images.push_back({.begin = v[0], .rows = static_cast<int32_t>(v[1])});
    out.images.back().embeddings.resize(static_cast<size_t>(v[1] * hidden));
  }
  out.view = {.request = static_cast<RequestId>(at[0]),
              .slot = static_cast<SlotId>(at[1]),
              .tokens = out.tokens,
              .computed = at[2],
              .original_prompt_tokens = at[3],
              .write_floor = at[4],
              .window_floor = at[5],
              .cut = at[6],
              .images = out.images,
              .drafts = out.drafts,
              .draw = static_cast<int32_t>(draw),
              .priority = static_cast<int32_t>(at[7]),
              .tenant = static_cast<int32_t>(at[8]),
              .rank = static_cast<int32_t>(rank)};
  return {};
}

// Where two plans first differ, by part.
Status compare(const Json& got, const Json& want) {
  for (const char* part : {"tokens", "sequences", "images"}) {
    const Json &a = got.at(part), &b = want.at(part);
    if (a == b) continue;
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
    const auto show = [&](const Json& list) { return i < list.size() ? list[i].dump() : std::string("nothing"); };
    return corrupt(fmt::format("step log: {}[{}] of the plan is {}, recorded is {}", part, i, show(a), show(b)));
  }
  return {};
}

}  // namespace

std::string step_log_line(std::span<const RunningSequence> running, const StepBudget& budget, const StepPlan& plan) {
  Json sequences = Json::array();
  for (const RunningSequence& sequence : running) sequences.push_back(running_json(sequence));
  return Json::object({{"step_log", kVersion},
                       {"budget", budget_json(budget)},
                       {"running", std::move(sequences)},
                       {"plan", plan_json(plan)}})
      .dump();
}

Status replay_step(std::string_view line) {
  DI_TRY(const Json json, Json::parse(line));
  DI_TRY(const int64_t version, json.at("step_log").to_int64("step_log"));
  if (version != kVersion) return unsupported(fmt::format("step log of version {}, this program reads {}", version, kVersion));
  DI_TRY(const StepBudget budget, read_budget(json.at("budget")));
  std::vector<Recorded> recorded(json.at("running").items().size());
  std::vector<RunningSequence> running;
  int64_t room = 4 * kMostTokens;
  for (size_t i = 0; i < recorded.size(); ++i) {
    DI_CHECK_OK(read_sequence(json.at("running")[i], budget, room, recorded[i]));
    running.push_back(recorded[i].view);
  }
  StepPlan plan;
  PromptShares shares;
  plan_step(running, budget, shares, plan);
  return compare(plan_json(plan), json.at("plan"));
}

}  // namespace deepinfer
