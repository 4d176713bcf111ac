#include "lab/verify_determinism.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <numeric>

#include "cpu/delayed_device.h"
#include "host/host.h"
#include "model/oracle_drafter.h"
#include "ops/portable/random.h"

namespace deepinfer {
namespace {

struct SeenAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprobs;  // bits
  FinishReason finish = FinishReason::kNone;
  std::string error;
};

// One way of answering the requests.
struct World {
  std::string axis, value;
  int32_t together = 1;     // requests in the engine at once
  int32_t step_tokens = 0;  // 0 = the default
  bool cached = false;      // from a cache that has answered everything once
  bool prefixes = false;    // from a cache that knows a shorter prefix of each prompt
  bool crowded = false;     // a pool that holds two of the longest requests
  bool aborts = false;      // others come and are cancelled in between
  int threads = 1;
  bool delayed = false;
  // Drafts verified per step, 0 = no speculation; by the model's own drafter, or by one that knows the answers and is right where
  // a pattern says so (model/oracle_drafter.h).
  int32_t drafts = 0;
  std::vector<uint32_t> patterns;
  SpeculationSchedule schedule = SpeculationSchedule::kFixed;
  bool default_replay_only = false;  // of the quick set: the others differ in where a prompt starts, not in how it goes on
};

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

std::vector<World> worlds(bool full) {
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
  const auto add_speculation = [&] {
    for (World& world : speculation_worlds(full)) list.push_back(std::move(world));
    return list;
  };
  if (!full) return add_speculation();
  for (const int32_t rows : {1, 63, 128, 129}) list.push_back({"chunk", fmt::format("{} rows", rows), 1, rows});
  list.push_back({"cache", "cached, in company", 8, 0, true});
  list.push_back({"cache", "prefixes, small chunks", 8, 33, false, true});
  list.push_back({"threads", "3", 1, 0, false, false, false, false, 3});
  list.push_back({"device", "delayed, cached, small chunks", 8, 40, true, false, false, false, 1, true});
  list.push_back({"device", "delayed, full pool", 8, 0, true, false, true, false, 1, true});
  return add_speculation();
}

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

std::vector<Request> make_requests(const LanguageModel& model, int64_t context, bool full) {
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

// Answers `requests` with `engine`, at most `together` at once. An engine may refuse for a while.
Result<std::vector<SeenAnswer>> answer_all(Engine& engine, const std::vector<Request>& requests, const World& world) {
  std::vector<SeenAnswer> answers(requests.size());
  int32_t open = 0;
  const auto handler = [&](size_t i) {
    return [&, i](const Event& event) {
      SeenAnswer& answer = answers[i];
      if (event.token) answer.tokens.push_back(*event.token);
      if (event.logprob) answer.logprobs.push_back(std::bit_cast<uint32_t>(event.logprob->logprob));
      if (event.finish == FinishReason::kNone) return;
      answer.finish = event.finish, answer.error = event.error;
      --open;
    };
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    if (world.aborts) {
      Request other = requests[(i + 1) % requests.size()];
      other.max_tokens = 4;
      DI_TRY(const RequestId id, engine.submit(std::move(other), [](const Event&) {}));
      for (size_t steps = 0; steps < i % 3; ++steps) engine.step();
      engine.cancel(id);
    }
    DI_TRY([[maybe_unused]] const RequestId id, engine.submit(requests[i], handler(i)));
    ++open;
    while (open >= world.together && engine.step()) {
    }
  }
  while (engine.step()) {
  }
  return answers;
}

// Where two answers first differ; empty when they do not.
std::string difference(const SeenAnswer& got, const SeenAnswer& want) {
  if (!got.error.empty()) return got.error;
  const size_t count = std::min(got.tokens.size(), want.tokens.size());
  for (size_t i = 0; i < count; ++i) {
    if (got.tokens[i] != want.tokens[i]) return fmt::format("token {} is {}, alone it was {}", i, got.tokens[i], want.tokens[i]);
    if (got.logprobs[i] != want.logprobs[i]) return fmt::format("log-probability of token {} differs", i);
  }
  if (got.tokens.size() != want.tokens.size()) return fmt::format("{} tokens, alone {}", got.tokens.size(), want.tokens.size());
  return got.finish == want.finish ? "" : "it ended for another reason";
}

// Hosts by device and threads; loading again would be most of the time.
class Hosts {
 public:
  explicit Hosts(const HostSettings& settings) : settings_(settings) {}

  Result<Host*> get(const World& world) {
    auto& host = hosts_[{world.delayed, world.threads}];
    if (!host) {
      HostSettings settings = settings_;
      settings.threads = world.threads;
      HostOptions options;
      if (world.delayed) {
        DI_TRY(options.device, make_delayed_device({.threads = world.threads}));
      }
      DI_TRY(host, Host::open(settings, std::move(options)));
    }
    return host.get();
  }

 private:
  HostSettings settings_;
  std::map<std::pair<bool, int>, std::unique_ptr<Host>> hosts_;
};

EngineOptions engine_options(const World& world, ReplayMode replay, int64_t context, int32_t keep_tokens, int64_t longest,
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

class Verifier {
 public:
  explicit Verifier(const DeterminismOptions& options) : options_(options), hosts_(options.host) {}

  Result<DeterminismReport> run() {
    const auto begin = std::chrono::steady_clock::now();
    DI_TRY(Host* const host, hosts_.get({}));
    context_ = host->engine().options().context;
    requests_ = make_requests(host->model(), context_, options_.full);
    const auto list = worlds(options_.full);
    total_ = 2 * list.size() + list.size();
    for (const ReplayMode mode : {ReplayMode::kOff, ReplayMode::kDecoder, ReplayMode::kFull}) DI_CHECK_OK(run_mode(mode, list));
    for (const char* axis : {"store on disk", "ranks of the engine", "prefill and decode apart", "grammar"}) {
      report_.rows.push_back({"", axis, "", 0, true, "not built"});
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report_;
  }

 private:
  Status run_mode(ReplayMode mode, const std::vector<World>& list) {
    DI_TRY(const std::vector<SeenAnswer> alone, answer(World{"", "alone"}, mode, {}));
    for (const World& world : list) {
      if (mode != ReplayMode::kDecoder && world.default_replay_only) continue;
      // In mode full an answer may depend on the hit, by design.
      if (mode == ReplayMode::kFull && (world.cached || world.prefixes || world.crowded)) continue;
      if (options_.progress) options_.progress(done_++, total_, fmt::format("{} {}", world.axis, world.value));
      DI_TRY(Host* const host, hosts_.get(world));
      if (world.drafts > 0 && world.patterns.empty() && !host->model().drafter()) {
        report_.rows.push_back({replay_mode_name(mode), world.axis, world.value, 0, true, "the model has no drafter"});
        continue;
      }
      DI_TRY(const std::vector<SeenAnswer> got, answer(world, mode, alone));
      DeterminismRow row{replay_mode_name(mode), world.axis, world.value, static_cast<int32_t>(got.size())};
      for (size_t i = 0; i < got.size() && row.holds; ++i) {
        const std::string what = difference(got[i], alone[i]);
        if (what.empty()) continue;
        row.holds = false;
        row.what = fmt::format("prompt of {} tokens: {}", requests_[i].prompt.size(), what);
      }
      report_.rows.push_back(std::move(row));
    }
    return {};
  }

  // `alone` teaches the drafter that knows the answers.
  Result<std::vector<SeenAnswer>> answer(const World& world, ReplayMode mode, const std::vector<SeenAnswer>& alone) {
    DI_TRY(Host* const host, hosts_.get(world));
    OracleDrafter oracle(world.patterns);
    for (size_t i = 0; i < alone.size(); ++i)
      oracle.learn(*requests_[i].sampling.seed, static_cast<int64_t>(requests_[i].prompt.size()), alone[i].tokens);
    size_t longest = 0;
    for (const Request& request : requests_)
      longest = std::max(longest, request.prompt.size() + static_cast<size_t>(request.max_tokens));
    EngineOptions options = engine_options(world, mode, context_, options_.host.keep_tokens, static_cast<int64_t>(longest),
                                           host->model().layout().page_tokens);
    options.speculation.mode = world.drafts > 0 ? SpeculationMode::kOn : SpeculationMode::kOff;
    options.speculation.max_draft = world.drafts;
    options.speculation.schedule = world.schedule;
    if (!world.patterns.empty()) options.speculation.drafter = &oracle;
    DI_TRY(const auto engine, Engine::create(host->device(), host->model(), options));
    if (world.prefixes) {
      std::vector<Request> shorter = requests_;
      for (size_t i = 0; i < shorter.size(); ++i) {
        shorter[i].prompt.resize(shorter[i].prompt.size() - shorter[i].prompt.size() * (i % 4) / 5);
      }
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, shorter, {}));
    }
    if (world.cached) {
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, requests_, {}));
    }
    return answer_all(*engine, requests_, world);
  }

  const DeterminismOptions& options_;
  Hosts hosts_;
  int64_t context_ = 0;
  std::vector<Request> requests_;
  DeterminismReport report_;
  size_t done_ = 0, total_ = 0;
};

}  // namespace

bool DeterminismReport::holds() const {
  return std::all_of(rows.begin(), rows.end(), [](const DeterminismRow& row) { return row.holds; });
}

std::string DeterminismReport::table() const {
  std::string out = fmt::format("{:<9}{:<26}{:<32}{:>9}  {}\n", "replay", "axis", "value", "requests", "same bytes");
  for (const DeterminismRow& row : rows) {
    const std::string result = row.requests == 0 ? row.what : row.holds ? "yes" : "NO: " + row.what;
    out += fmt::format("{:<9}{:<26}{:<32}{:>9}  {}\n", row.replay, row.axis, row.value,
                       row.requests > 0 ? fmt::format("{}", row.requests) : "-", result);
  }
  return out;
}

Json DeterminismReport::json() const {
  Json list = Json::array();
  for (const DeterminismRow& row : rows) {
    list.push_back(Json::object({{"replay", row.replay},
                                 {"axis", row.axis},
                                 {"value", row.value},
                                 {"requests", int64_t{row.requests}},
                                 {"holds", row.requests == 0 ? Json() : Json(row.holds)},
                                 {"what", row.what}}));
  }
  return Json::object({{"holds", holds()}, {"seconds", seconds}, {"rows", std::move(list)}});
}

Result<DeterminismReport> verify_determinism(const DeterminismOptions& options) { return Verifier(options).run(); }

}  // namespace deepinfer
