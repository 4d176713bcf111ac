#include "lab/determinism_worlds.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/portable/random.h"

namespace deepinfer {
namespace {

std::vector<uint32_t> every_pattern() {
  std::vector<uint32_t> patterns(32);
  std::iota(patterns.begin(), patterns.end(), 0u);
  return patterns;
}

std::vector<World> speculation_worlds(bool full) {
  const std::string axis = "speculation";
  std::vector<World> list;
  for (int32_t drafts = 1; drafts <= 5; ++drafts) {
    list.push_back({.axis = axis, .value = fmt::format("{} drafted", drafts), .together = 8, .drafts = drafts});
  }
  list.push_back({.axis = axis, .value = "always right", .together = 8, .drafts = 5, .patterns = {0x1f}});
  list.push_back({.axis = axis,
                  .value = "always wrong, full pool",
                  .together = 8,
                  .cached = true,
                  .crowded = true,
                  .drafts = 5,
                  .patterns = {0}});
  list.push_back({.axis = axis,
                  .value = "every pattern, delayed",
                  .together = 8,
                  .delayed = true,
                  .drafts = 5,
                  .patterns = every_pattern()});
  list.push_back({.axis = axis, .value = "scheduled, sync", .together = 8, .drafts = 5, .schedule = SpeculationSchedule::kSync});
  list.push_back(
      {.axis = axis, .value = "scheduled, async", .together = 8, .drafts = 5, .schedule = SpeculationSchedule::kAsync});
  if (!full) {
    for (World& world : list) world.default_replay_only = world.value != "5 drafted" && world.value != "every pattern, delayed";
    return list;
  }
  list.push_back({.axis = axis, .value = "5 drafted, alone", .drafts = 5});
  list.push_back({.axis = axis, .value = "5 drafted, small chunks", .together = 8, .step_tokens = 33, .drafts = 5});
  list.push_back({.axis = axis, .value = "5 drafted, cached", .together = 8, .cached = true, .drafts = 5});
  list.push_back(
      {.axis = axis, .value = "5 drafted, prefixes, delayed", .together = 8, .prefixes = true, .delayed = true, .drafts = 5});
  list.push_back({.axis = axis,
                  .value = "every pattern, full pool",
                  .together = 8,
                  .cached = true,
                  .crowded = true,
                  .drafts = 5,
                  .patterns = every_pattern()});
  list.push_back({.axis = axis,
                  .value = "every pattern, prefixes",
                  .together = 8,
                  .prefixes = true,
                  .drafts = 5,
                  .patterns = every_pattern()});
  return list;
}

std::vector<World> cache_worlds(bool full) {
  const auto world = [&](const char* axis, const char* value, Questions questions, StoreWay store, int32_t together) {
    return World{.axis = axis,
                 .value = value,
                 .together = together,
                 .questions = questions,
                 .default_replay_only = !full || store != StoreWay::kNone,
                 .before = true,
                 .store = store};
  };
  std::vector<World> list = {world("cache", "a hit at each page border", Questions::kBorders, StoreWay::kNone, 1),
                             world("cache", "short suffixes of a snapshot", Questions::kTurns, StoreWay::kNone, 1),
                             world("store on disk", "after a restart", Questions::kTurns, StoreWay::kRestart, 1),
                             world("store on disk", "after a kill", Questions::kTurns, StoreWay::kKilled, 1)};
  if (!full) return list;
  list.push_back(world("store on disk", "of a running neighbour", Questions::kTurns, StoreWay::kShared, 1));
  list.push_back(world("store on disk", "each page border, in company", Questions::kBorders, StoreWay::kRestart, 8));
  return list;
}

// Other lengths of replay, each a configuration of its own, and ranks.
std::vector<World> replay_worlds(bool full) {
  std::vector<World> list;
  const auto add = [&](int32_t keep, World world) {
    world.axis = "replay", world.value = fmt::format("R = {}, {}", keep, world.value), world.keep_tokens = keep;
    list.push_back(std::move(world));
  };
  add(140, {.value = "cached, small chunks", .together = 8, .step_tokens = 33, .cached = true});
  if (full) {
    add(140, {.value = "a shorter prefix cached", .together = 8, .prefixes = true});
    add(140, {.value = "snapshot", .questions = Questions::kTurns, .before = true});
    add(2414, {.value = "full pool, preemption", .together = 8, .cached = true, .crowded = true});
  }
  for (const int32_t ranks : {2, 4, 8}) {
    if (!full && ranks > 2) break;
    list.push_back({.axis = "ranks",
                    .value = fmt::format("{} threads", ranks),
                    .together = 8,
                    .step_tokens = 64,
                    .default_replay_only = true,
                    .ranks = ranks});
  }
  return list;
}

}  // namespace

std::vector<World> determinism_worlds(bool full) {
  std::vector<World> list = {
      {"company", "8 at once", 8},
      {"company", "all at once, others cancelled", 32, 0, false, false, false, true},
      {"company", "full pool, preemption", 8, 0, true, false, true},
      {"chunk", "7 rows", 4, 7},
      {"chunk", "64 rows", 1, 64},
      {"cache", "whole prompt cached", 1, 0, true},
      {"cache", "a shorter prefix cached", 1, 0, false, true},
      {"threads", "2", 8, 0, false, false, false, false, 2},
      {"device", "delayed", 8, 0, false, false, false, false, 1, true},
  };
  const auto grammar = [](const char* value, int32_t together, int32_t step_tokens, bool cached, int32_t drafts) {
    return World{.axis = "grammar",
                 .value = value,
                 .together = together,
                 .step_tokens = step_tokens,
                 .cached = cached,
                 .drafts = drafts,
                 .questions = Questions::kConstrained,
                 .default_replay_only = true};
  };
  list.push_back(grammar("8 at once", 8, 0, false, 0));
  list.push_back(grammar("5 drafted, cached, small chunks", 8, 33, true, 5));
  const auto add_others = [&] {
    for (World& world : cache_worlds(full)) list.push_back(std::move(world));
    for (World& world : replay_worlds(full)) list.push_back(std::move(world));
    for (World& world : speculation_worlds(full)) list.push_back(std::move(world));
    return list;
  };
  list.push_back({.axis = "company", .value = "64 at once", .together = 64, .default_replay_only = true, .copies = full ? 4 : 8});
  list.push_back(
      {.axis = "sampling", .value = "n = 3", .together = 6, .questions = Questions::kChoices, .default_replay_only = true});
  list.push_back({.axis = "expert memory",
                  .value = "1 MB",
                  .together = 8,
                  .threads = 2,
                  .default_replay_only = true,
                  .expert_memory = 0.001f});
  if (!full) return add_others();
  list.push_back(grammar("alone, 7 rows", 1, 7, false, 0));
  list.push_back(grammar("5 drafted", 8, 0, false, 5));
  list.push_back({.axis = "chunk", .value = "whole, in company", .together = 4, .step_tokens = kWholePrompt});
  for (const int32_t rows : {1, 63, 128, 129}) list.push_back({"chunk", fmt::format("{} rows", rows), 1, rows});
  list.push_back({"cache", "cached, in company", 8, 0, true});
  list.push_back({"cache", "prefixes, small chunks", 8, 33, false, true});
  list.push_back({"threads", "3", 1, 0, false, false, false, false, 3});
  list.push_back({.axis = "threads", .value = "all", .together = 8, .cached = true, .threads = 0, .default_replay_only = true});
  list.push_back({"device", "delayed, cached, small chunks", 8, 40, true, false, false, false, 1, true});
  list.push_back({"device", "delayed, full pool", 8, 0, true, false, true, false, 1, true});
  return add_others();
}

namespace {

// Drawing in all its ways, by turns.
SamplingParams sampling_of(int32_t i) {
  SamplingParams sampling;
  sampling.seed = static_cast<uint64_t>(1000 + i);
  sampling.num_logprobs = 0;
  switch (i % 6) {
    case 0: sampling.temperature = 0; break;
    case 1: sampling.temperature = 0.7f; break;
    case 2: sampling.top_p = 0.9f; break;
    case 3: sampling.top_k = 20; break;
    case 4: sampling.frequency_penalty = 0.5f, sampling.presence_penalty = 0.2f; break;
    default: sampling.repetition_penalty = 1.2f, sampling.min_p = 0.02f; break;
  }
  return sampling;
}

// Lengths on both sides of the borders of window, pages, exact replay and exact decoder; the shorter ones when `full` is off.
std::vector<int64_t> prompt_lengths(const LanguageModel& model, int64_t context, bool full) {
  const ModelShape& shape = model.shape();
  const int64_t w = shape.window, page = model.layout().page_tokens;
  const int64_t reach = w + (shape.candidate_source < 0 ? shape.layers : shape.candidate_source) * (w - 1);
  const int64_t exact = w + std::max(0, shape.candidate_source < 0 ? 0 : shape.layers - shape.candidate_source - 2) * (w - 1);
  std::vector<int64_t> lengths = {1, w - 1, w, w + 1, page, page + 1, 3 * page, 3 * page + 1};
  if (full) {
    for (const int64_t n : {2 * w - 1, 2 * w + 1, 2 * page - 1, 2 * page, 5 * page - 1, exact - 1, exact, exact + 1, reach - 1,
                            reach + 1, reach + w + page + 1, 2 * reach})
      lengths.push_back(n);
  }
  std::erase_if(lengths, [&](int64_t n) { return n < 1 || n + 40 > context; });
  return lengths;
}

// Ids that are the same in every run.
class Ids {
 public:
  explicit Ids(const LanguageModel& model) : ids_(static_cast<uint32_t>(model.shape().vocab - 3)) {}
  TokenId next() { return 3 + static_cast<TokenId>(philox({{count_++, 0, 0, 0}}, {2026, 1}).word[0] % ids_); }
  void append(std::vector<TokenId>& to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to.push_back(next());
  }

 private:
  const uint32_t ids_;
  uint32_t count_ = 0;
};

Request request_of(const LanguageModel& model, std::vector<TokenId> prompt, int32_t number, bool full) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = sampling_of(number);
  request.max_tokens = full ? 32 : 10;
  request.stop_ids = {model.shape().eos_id};
  return request;
}

Asked plain_questions(const LanguageModel& model, int64_t context, bool full) {
  Ids ids(model);
  // Prompts have a beginning in common, as those of one application do.
  std::vector<TokenId> trunk;
  ids.append(trunk, 100);
  Asked asked;
  for (const int64_t length : prompt_lengths(model, context, full)) {
    const bool common = asked.requests.size() % 2 == 0;
    std::vector<TokenId> prompt(trunk.begin(), trunk.begin() + (common ? std::min<int64_t>(length, 100) : 0));
    ids.append(prompt, length - static_cast<int64_t>(prompt.size()));
    asked.requests.push_back(request_of(model, std::move(prompt), static_cast<int32_t>(asked.requests.size()), full));
  }
  return asked;
}

Asked choice_questions(const Asked& plain) {
  Asked out;
  for (size_t i = 1; i < plain.requests.size() && i < 5; ++i) {
    for (uint32_t choice = 0; choice < 3; ++choice) {
      out.requests.push_back(plain.requests[i]);
      out.requests.back().sampling.seed = choice_seed(*plain.requests[i].sampling.seed, choice);
    }
  }
  return out;
}

Asked border_questions(const LanguageModel& model, int64_t context, bool full) {
  const int64_t page = model.layout().page_tokens, pages = full ? 8 : 3, length = pages * page + 9;
  Asked out;
  if (length + 40 > context) return out;
  Ids ids(model);
  std::vector<TokenId> prompt;
  ids.append(prompt, length);
  for (int64_t border = 1; border <= pages; ++border) {
    out.requests.push_back(request_of(model, prompt, static_cast<int32_t>(border), full));
    out.requests.back().tenant = fmt::format("border {}", border);
    out.before.push_back(border * page);
  }
  return out;
}

Asked turn_questions(const LanguageModel& model, int64_t context, bool full) {
  const int64_t w = model.shape().window, said = 7 * model.layout().page_tokens + 2;
  Ids ids(model);
  std::vector<TokenId> history;
  ids.append(history, said);
  std::vector<int64_t> lengths = {1, 2 * w - 1};
  if (full) lengths = {1, w - 1, w, w + 1, 2 * w - 1};
  Asked out;
  for (const int64_t length : lengths) {
    if (said + length + 40 > context) continue;
    std::vector<TokenId> prompt = history;
    ids.append(prompt, length);
    out.requests.push_back(request_of(model, std::move(prompt), static_cast<int32_t>(out.requests.size()), full));
    out.before.push_back(said);
  }
  return out;
}

}  // namespace

Asked determinism_questions(Questions questions, const LanguageModel& model, int64_t context, bool full) {
  switch (questions) {
    case Questions::kChoices: return choice_questions(plain_questions(model, context, full));
    case Questions::kBorders: return border_questions(model, context, full);
    case Questions::kTurns: return turn_questions(model, context, full);
    default: return plain_questions(model, context, full);
  }
}

Asked constrained_questions(const Asked& plain, const std::vector<std::shared_ptr<const Constraint>>& constraints) {
  Asked out;
  for (size_t i = 0; i < plain.requests.size() && i < 4 * constraints.size(); ++i) {
    out.requests.push_back(plain.requests[i]);
    out.requests.back().constraint.grammar = constraints[i % constraints.size()];
  }
  return out;
}

EngineOptions determinism_engine(const World& world, ReplayMode replay, int64_t context, int32_t keep_tokens, int64_t longest,
                                 int64_t page_tokens) {
  EngineOptions options;
  options.replay = replay;
  options.keep_tokens = world.keep_tokens > 0 ? world.keep_tokens : keep_tokens;
  options.context = context;
  const bool choices = world.questions == Questions::kChoices && world.together > 1;
  options.prefix_cache = world.cached || world.prefixes || world.crowded || world.before || choices;
  options.max_batch = std::min(world.together, 64);
  options.queue_limit = 1024;
  // Whole prompts, as many as run.
  const auto whole = static_cast<int32_t>(std::min<int64_t>(longest * options.max_batch, kWholePrompt));
  options.step_tokens = std::clamp(world.step_tokens > 0 ? world.step_tokens : 512, options.max_batch, std::max(512, whole));
  const int64_t pages = (longest + page_tokens - 1) / page_tokens + 1;
  options.pages = static_cast<int32_t>(world.crowded ? 2 * pages : pages * std::max(24, options.max_batch));
  return options;
}

}  // namespace deepinfer
