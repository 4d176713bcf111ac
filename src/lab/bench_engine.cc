#include "lab/bench_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "cpu/cpu_device.h"
#include "kvcache/prefix_index.h"
#include "model/scripted_model.h"

namespace deepinfer {
namespace {

// Knows how long its forward passes took.
class TimedModel final : public LanguageModel {
 public:
  TimedModel(Device& device, const LanguageModel& model) : device_(device), model_(model) {}
  std::string name() const override { return model_.name(); }
  std::string fingerprint() const override { return model_.fingerprint(); }
  const ModelShape& shape() const override { return model_.shape(); }
  const KvLayout& layout() const override { return model_.layout(); }
  int32_t ranks() const override { return model_.ranks(); }
  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override {
    return model_.make_workspace(device, limits);
  }
  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override {
    const int64_t begin = clock_.now_us();
    DI_CHECK_OK(model_.forward(plan, state, workspace));
    DI_CHECK_OK(device_.wait(device_.record()));
    us_.push_back(static_cast<double>(clock_.now_us() - begin));
    return {};
  }
  std::vector<double>& us() const { return us_; }

 private:
  Device& device_;
  const LanguageModel& model_;
  SteadyClock clock_;
  mutable std::vector<double> us_;
};

double at_share(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}
double median(const std::vector<double>& values) { return at_share(values, 0.5); }

// Ids without sense; no two prompts share a page.
Request bench_request(int32_t vocab, int32_t prompt, int32_t salt, int32_t max_tokens) {
  Request request;
  for (int32_t i = 0; i < prompt; ++i) request.prompt.push_back(3 + (i * 7919 + salt * 104729) % std::max(1, vocab / 2));
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

void ignore(const Event&) {}

class EngineBench {
 public:
  EngineBench(Host& host, const BenchEngineOptions& options, FigureReport& report)
      : host_(host), options_(options), report_(report), vocab_(host.model().shape().vocab) {}

  Status run() {
    for (const int32_t streams : options_.streams) DI_CHECK_OK(overhead(streams));
    for (const int32_t streams : options_.streams) DI_CHECK_OK(overlap(streams));
    DI_CHECK_OK(token_gaps());
    DI_CHECK_OK(short_prompt());
    DI_CHECK_OK(prompts_together());
    DI_CHECK_OK(rank_imbalance());
    DI_CHECK_OK(planning());
    DI_CHECK_OK(prefix_match());
    for (const int32_t prompt : options_.replayed) DI_CHECK_OK(replay(prompt));
    return {};
  }

 private:
  static EngineOptions plain(int64_t context) {
    return {.context = context, .prefix_cache = false, .speculation = {.mode = SpeculationMode::kOff}};
  }

  // Medians of steps and of the passes inside them.
  Status overhead(int32_t streams) {
    const TimedModel model(host_.device(), host_.model());
    EngineOptions options = plain(512);
    options.max_batch = std::max(streams, 1);
    DI_TRY(const auto engine, Engine::create(host_.device(), model, options));
    for (int32_t i = 0; i < streams; ++i) DI_CHECK_OK(engine->submit(bench_request(vocab_, 32, i, options_.tokens), ignore));
    while (engine->stats().times[0].steps < 4) {
      if (!engine->step()) return internal_error("the model ended its answers at once: nothing to measure");
    }
    model.us().clear();
    std::vector<double> steps;
    const EngineStats before = engine->stats();
    for (int64_t begin = clock_.now_us(); engine->stats().running == streams;) {
      engine->step();
      steps.push_back(static_cast<double>(clock_.now_us() - begin));
      begin = clock_.now_us();
    }
    const EngineStats after = engine->stats();
    const double step = median(steps), forward = median(model.us());
    report_.add({.name = fmt::format("engine/overhead/{}", streams),
                 .value = step / 1e3,
                 .unit = "ms",
                 .baseline = "forward",
                 .ratio = step / forward});
    const double between = static_cast<double>(after.between_us - before.between_us);
    const double busy = static_cast<double>(after.times[0].us - before.times[0].us);
    report_.add({.name = fmt::format("engine/idle gap/{}", streams), .value = 100 * between / (between + busy), .unit = "%"});
    return {};
  }

  // The same steps launched before and behind the results of the last one, by turns; where a device computes beside the host.
  Status overlap(int32_t streams) {
    if (!host_.device().runs_beside_host()) return {};
    std::vector<double> steps[2];
    for (int32_t repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const OverlapMode mode : {OverlapMode::kOff, OverlapMode::kAuto}) {
        EngineOptions options = plain(512);
        options.max_batch = streams, options.overlap = mode;
        DI_TRY(const auto engine, Engine::create(host_.device(), host_.model(), options));
        for (int32_t i = 0; i < streams; ++i) DI_CHECK_OK(engine->submit(bench_request(vocab_, 32, i, options_.tokens), ignore));
        while (engine->stats().times[0].steps < 4 && engine->step()) {
        }
        for (int64_t begin = clock_.now_us(), end; engine->stats().running == streams; begin = end) {
          engine->step();
          end = clock_.now_us();
          steps[mode == OverlapMode::kAuto].push_back(static_cast<double>(end - begin));
        }
      }
    }
    const double without = median(steps[0]), with = median(steps[1]);
    report_.add({.name = fmt::format("engine/overlap/{}", streams),
                 .value = with / 1e3,
                 .unit = "ms",
                 .baseline = "one after the other",
                 .ratio = without > 0 ? with / without : 0});
    return {};
  }

  // Eight answers while long prompts come in one after the other.
  Status token_gaps() {
    const int32_t prompt = long_prompt();
    EngineOptions options = plain(prompt + 64);
    options.max_batch = 9;
    options.pages = 0;
    // Before the engine: its end still tells of the tokens of a step in flight.
    std::vector<double> gaps, steps;
    std::vector<int64_t> last(8, 0);
    int32_t ended = 0, begun = 0;
    DI_TRY(const auto engine, Engine::create(host_.device(), host_.model(), options));
    for (size_t i = 0; i < last.size(); ++i) {
      DI_CHECK_OK(engine->submit(bench_request(vocab_, 32, static_cast<int32_t>(i), 4096), [&, i](const Event& event) {
        if (!event.token) return;
        const int64_t now = clock_.now_us();
        if (last[i] > 0) gaps.push_back(static_cast<double>(now - last[i]));
        last[i] = now;
      }));
    }
    while (ended < options_.mixed_prompts) {
      if (begun == ended) {
        DI_CHECK_OK(engine->submit(bench_request(vocab_, prompt, 100 + begun++, 2),
                                   [&](const Event& event) { ended += event.finish != FinishReason::kNone; }));
      }
      const int64_t begin = clock_.now_us();
      engine->step();
      steps.push_back(static_cast<double>(clock_.now_us() - begin));
    }
    report_.add({.name = "engine/token gap p99",
                 .value = at_share(gaps, 0.99) / 1e3,
                 .unit = "ms",
                 .baseline = "median step",
                 .ratio = at_share(gaps, 0.99) / median(steps)});
    return {};
  }

  int32_t long_prompt() const {
    return static_cast<int32_t>(std::min<int64_t>(options_.mixed_prompt, host_.model().shape().max_context - 64));
  }

  // How long a prompt of 64 tokens waits for its first token beside a long one that has begun.
  Status short_prompt() {
    constexpr int32_t kShort = 64;
    std::vector<double> waits[2];
    for (int32_t repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const bool beside : {false, true}) {
        EngineOptions options = plain(long_prompt() + 64);
        options.max_batch = 2;
        bool told = false;
        DI_TRY(const auto engine, Engine::create(host_.device(), host_.model(), options));
        if (beside) {
          DI_CHECK_OK(engine->submit(bench_request(vocab_, long_prompt(), repeat, 1), ignore));
          engine->step();
        }
        const int64_t begin = clock_.now_us();
        DI_CHECK_OK(engine->submit(bench_request(vocab_, kShort, 50 + repeat, 2), [&](const Event&) { told = true; }));
        while (!told) engine->step();
        waits[beside].push_back(static_cast<double>(clock_.now_us() - begin) / 1e3);
      }
    }
    report_.add({.name = "engine/short prompt",
                 .value = median(waits[1]),
                 .unit = "ms",
                 .baseline = "alone",
                 .ratio = median(waits[1]) / median(waits[0])});
    return {};
  }

  // Prompts that share steps, and the same ones after the other: what the shares cost.
  Status prompts_together() {
    constexpr int32_t kPrompts = 16, kTokens = 1024;
    std::vector<double> ms[2];
    for (int32_t repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const bool together : {false, true}) {
        EngineOptions options = plain(kTokens + 64);
        options.max_batch = together ? kPrompts : 1;
        DI_TRY(const auto engine, Engine::create(host_.device(), host_.model(), options));
        for (int32_t i = 0; i < kPrompts; ++i) DI_CHECK_OK(engine->submit(bench_request(vocab_, kTokens, i, 1), ignore));
        const int64_t begin = clock_.now_us();
        while (engine->step()) {
        }
        ms[together].push_back(static_cast<double>(clock_.now_us() - begin) / 1e3);
      }
    }
    report_.add({.name = fmt::format("engine/prompts/{}", kPrompts),
                 .value = kPrompts * kTokens * 1e3 / median(ms[1]),
                 .unit = "tokens/s",
                 .baseline = "one after the other",
                 .ratio = median(ms[0]) / median(ms[1])});
    return {};
  }

  // Uneven prompts, of which always four for each rank are inside.
  Status rank_imbalance() {
    const int32_t ranks = host_.model().ranks();
    if (ranks == 1) return {};
    EngineOptions options = plain(4096 + 64);
    options.max_batch = 4 * ranks;
    DI_TRY(const auto engine, Engine::create(host_.device(), host_.model(), options));
    for (int32_t i = 0; i < 16 * ranks; ++i) DI_CHECK_OK(engine->submit(bench_request(vocab_, 64 << (i * 5 % 7), i, 4), ignore));
    while (engine->step()) {
    }
    report_.add({.name = "engine/rank imbalance", .value = engine->stats().ranks.imbalance(), .unit = "max/mean"});
    return {};
  }

  // A scripted model, so that steps are short; every step some answers end and others start.
  Status planning() {
    DI_TRY(Script script,
           parse_script("{\"scripted\": 1, \"vocab\": 512, \"context\": 256}\n{\"hash\": {\"tokens\": 200, \"seed\": 3}}\n",
                        "bench"));
    const ScriptedModel model(std::move(script));
    EngineOptions options = plain(256);
    options.max_batch = 256, options.step_tokens = 512, options.queue_limit = 20'000, options.prefix_cache = true;
    DI_TRY(const auto device, make_cpu_device({.threads = 1}));
    DI_TRY(const auto engine, Engine::create(*device, model, options));
    const auto submit = [&](int32_t i) {
      Request request = bench_request(512, 8, i, 24 + i % 16);
      request.tenant = fmt::format("tenant {}", i % 16);
      request.priority = i % 3;
      return engine->submit(std::move(request), ignore);
    };
    int32_t next = 0;
    while (next < 10'256) DI_CHECK_OK(submit(next++));
    std::vector<double> plans;
    for (int i = 0; i < 600; ++i) {
      const EngineStats before = engine->stats();
      engine->step();
      const EngineStats after = engine->stats();
      if (i >= 100 && after.running + 8 >= 256) plans.push_back(static_cast<double>(after.plan_us - before.plan_us));
      for (int64_t ended = before.ended; ended < after.ended; ++ended) DI_CHECK_OK(submit(next++));
    }
    report_.add({.name = "engine/plan", .value = median(plans), .unit = "us"});
    report_.add({.name = "engine/plan p99", .value = at_share(plans, 0.99), .unit = "us"});
    engine->stop();
    return {};
  }

  Status prefix_match() {
    constexpr int32_t kPages = 1000, kTokens = 64;
    PagePool pool(kPages);
    SnapshotShelf shelf(16, 4, kPages);
    PrefixIndex index(pool, shelf, kTokens);
    const std::vector<TokenId> tokens = bench_request(100'000, kPages * kTokens, 0, 1).prompt;
    const PageKey root = root_key("bench", false, "");
    std::vector<PageKey> keys;
    DI_TRY(const PageLease lease, pool.lease(kPages));
    std::vector<double> named, matched;
    PrefixMatch found;
    for (int repeat = 0; repeat < 200; ++repeat) {
      keys.clear();
      const int64_t begin = clock_.now_us();
      extend_page_keys(root, tokens, {}, kTokens, keys);
      named.push_back(static_cast<double>(clock_.now_us() - begin));
      for (size_t i = 0; repeat == 0 && i < keys.size(); ++i)
        index.publish(root, keys, i, tokens, i == 0 ? -1 : lease.pages()[i - 1], lease.pages()[i]);
      const int64_t middle = clock_.now_us();
      index.match(root, keys, tokens, found);
      matched.push_back(static_cast<double>(clock_.now_us() - middle));
      if (found.pages.size() != kPages) return internal_error("a published prefix was not found");
    }
    report_.add({.name = "cache/keys/1000 pages", .value = median(named), .unit = "us"});
    report_.add({.name = "cache/match/1000 pages", .value = median(matched), .unit = "us"});
    return {};
  }

  // Modes by turns, so that what disturbs disturbs all.
  Status replay(int32_t prompt) {
    if (prompt + 2 > host_.model().shape().max_context) return {};
    constexpr ReplayMode kModes[] = {ReplayMode::kOff, ReplayMode::kDecoder, ReplayMode::kFull};
    std::vector<double> ms[3];
    for (int32_t repeat = 0; repeat < options_.repeats; ++repeat) {
      for (size_t mode = 0; mode < 3; ++mode) {
        EngineOptions options = plain(prompt + 2);
        options.max_batch = 1, options.replay = kModes[mode];
        DI_TRY(const auto engine, Engine::create(host_.device(), host_.model(), options));
        DI_CHECK_OK(engine->submit(bench_request(vocab_, prompt, repeat, 1), ignore));
        const int64_t begin = clock_.now_us();
        while (engine->step()) {
        }
        ms[mode].push_back(static_cast<double>(clock_.now_us() - begin) / 1e3);
      }
    }
    const ModelShape& shape = host_.model().shape();
    // Of `off`, which runs all layers on all tokens. `limit` is what the split of the layers allows: LC / L, and a tenth.
    const double whole = median(ms[0]);
    for (size_t mode = 0; mode < 3; ++mode) {
      FigureRow row{.name = fmt::format("replay/{}/{}", replay_mode_name(kModes[mode]), prompt),
                    .value = median(ms[mode]),
                    .unit = "ms",
                    .baseline = "all layers on all tokens",
                    .ratio = median(ms[mode]) / whole};
      if (kModes[mode] == ReplayMode::kDecoder && shape.candidate_source >= 0)
        row.limit = whole * (static_cast<double>(shape.candidate_source) / shape.layers + 0.1);
      report_.add(std::move(row));
    }
    return {};
  }

  Host& host_;
  const BenchEngineOptions& options_;
  FigureReport& report_;
  const int32_t vocab_;
  SteadyClock clock_;
};

}  // namespace

Status bench_engine(Host& host, const BenchEngineOptions& options, FigureReport& report) {
  return EngineBench(host, options, report).run();
}

}  // namespace deepinfer
