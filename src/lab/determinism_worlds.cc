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
                 .constrained = true,
                 .default_replay_only = true};
  };
  list.push_back(grammar("8 at once", 8, 0, false, 0));
  list.push_back(grammar("5 drafted, cached, small chunks", 8, 33, true, 5));
  const auto add_speculation = [&] {
    for (World& world : speculation_worlds(full)) list.push_back(std::move(world));
    return list;
  };
  if (!full) return add_speculation();
  list.push_back(grammar("alone, 7 rows", 1, 7, false, 0));
  list.push_back(grammar("5 drafted", 8, 0, false, 5));
  for (const int32_t rows : {1, 63, 128, 129}) list.push_back({"chunk", fmt::format("{} rows", rows), 1, rows});
  list.push_back({"cache", "cached, in company", 8, 0, true});
  list.push_back({"cache", "prefixes, small chunks", 8, 33, false, true});
  list.push_back({"threads", "3", 1, 0, false, false, false, false, 3});
  list.push_back({"device", "delayed, cached, small chunks", 8, 40, true, false, false, false, 1, true});
  list.push_back({"device", "delayed, full pool", 8, 0, true, false, true, false, 1, true});
  return add_speculation();
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

// Lengths on both sides of the borders of window, pages and exact replay; the shorter ones when `full` is off.
std::vector<int64_t> prompt_lengths(const LanguageModel& model, int64_t context, bool full) {
  const ModelShape& shape = model.shape();
  const int64_t w = shape.window, page = model.layout().page_tokens;
  const int64_t reach = w + (shape.candidate_source < 0 ? shape.layers : shape.candidate_source) * (w - 1);
  std::vector<int64_t> lengths = {1, w - 1, w, w + 1, page, page + 1, 3 * page, 3 * page + 1};
  if (full) {
    for (const int64_t n :
         {2 * w - 1, 2 * w + 1, 2 * page - 1, 2 * page, 5 * page - 1, reach - 1, reach + 1, reach + w + page + 1, 2 * reach})
      lengths.push_back(n);
  }
  std::erase_if(lengths, [&](int64_t n) { return n < 1 || n + 40 > context; });
  return lengths;
}

}  // namespace

std::vector<Request> determinism_requests(const LanguageModel& model, int64_t context, bool full) {
  uint32_t count = 0;
  const auto random = [&] { return philox({{count++, 0, 0, 0}}, {2026, 1}).word[0]; };
  const int32_t vocab = model.shape().vocab;
  // Prompts have a beginning in common, as those of one application do.
  std::vector<TokenId> trunk;
  for (int i = 0; i < 100; ++i) trunk.push_back(3 + static_cast<TokenId>(random() % static_cast<uint32_t>(vocab - 3)));
  std::vector<Request> requests;
  for (const int64_t length : prompt_lengths(model, context, full)) {
    Request request;
    for (int64_t i = 0; i < length; ++i) {
      const bool common = i < 100 && requests.size() % 2 == 0;
      request.prompt.push_back(common ? trunk[static_cast<size_t>(i)]
                                      : 3 + static_cast<TokenId>(random() % static_cast<uint32_t>(vocab - 3)));
    }
    request.sampling = sampling_of(static_cast<int32_t>(requests.size()));
    request.max_tokens = full ? 32 : 10;
    request.stop_ids = {model.shape().eos_id};
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Request> constrained_requests(const std::vector<Request>& requests,
                                          const std::vector<std::shared_ptr<const Constraint>>& constraints) {
  std::vector<Request> out;
  for (size_t i = 0; i < requests.size() && i < 4 * constraints.size(); ++i) {
    out.push_back(requests[i]);
    out.back().constraint.grammar = constraints[i % constraints.size()];
  }
  return out;
}

EngineOptions determinism_engine(const World& world, ReplayMode replay, int64_t context, int32_t keep_tokens, int64_t longest,
                                 int64_t page_tokens) {
  EngineOptions options;
  options.replay = replay;
  options.keep_tokens = keep_tokens;
  options.context = context;
  options.prefix_cache = world.cached || world.prefixes || world.crowded;
  options.max_batch = std::min(world.together, 16);
  options.queue_limit = 1024;
  options.step_tokens = std::max(options.max_batch, world.step_tokens > 0 ? world.step_tokens : 512);
  const int64_t pages = (longest + page_tokens - 1) / page_tokens + 1;
  options.pages = static_cast<int32_t>(world.crowded ? 2 * pages : pages * 24);
  return options;
}

}  // namespace deepinfer
