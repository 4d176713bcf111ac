#include "lab/bench_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/function_ref.h"
#include "lab/sweep_drafters.h"
#include "lab/sweep_requests.h"
#include "model/oracle_drafter.h"
#include "policy/verification.h"
#include "scheduler/draft_control.h"

namespace deepinfer {
namespace {

double now_us() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr double kRunUs = 0.8e6;  // a run of more is made shorter

// Of steps in which every running sequence decodes; summed over runs.
struct Timing {
  double us = 0, steps = 0, tokens = 0;
  double draft_us = 0, verify_us = 0, passes = 0;
  double verified = 0, accepted = 0;  // drafts
  double speed() const { return us > 0 ? tokens / us * 1e6 : 0; }
  // Steps of single sequences: each gives a token and the drafts that stood.
  double turns() const { return std::max(tokens - accepted, 1.0); }
  void operator+=(const Timing& other) {
    us += other.us, steps += other.steps, tokens += other.tokens;
    draft_us += other.draft_us, verify_us += other.verify_us, passes += other.passes;
    verified += other.verified, accepted += other.accepted;
  }
};

double sum_of(const std::array<int64_t, kMaxDraft>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return 0.5 * (values[(values.size() - 1) / 2] + values[values.size() / 2]);
}

// Runs `requests` at once, and times the part after the prompts.
Result<Timing> run_group(Engine& engine, std::span<const Request> requests, SweepAnswers* answers) {
  size_t started = 0, ended = 0;
  int64_t tokens = 0;
  std::string error;
  for (const Request& request : requests) {
    const uint64_t seed = *request.sampling.seed;
    const auto id = engine.submit(request, [&, seed](const Event& event) {
      if (answers && event.token) (*answers)[seed].push_back(*event.token);
      started += event.token && event.index == 0;
      tokens += event.token.has_value();
      if (event.finish == FinishReason::kError) error = event.error;
      ended += event.finish != FinishReason::kNone;
    });
    if (!id) return id.error();
  }
  while (started < requests.size() && ended < requests.size() && engine.step()) {
  }
  Timing timing;
  const EngineStats before = engine.stats();
  const int64_t tokens_before = tokens;
  const double begin = now_us();
  while (ended < requests.size() && engine.step()) {
  }
  timing.us = now_us() - begin;
  const EngineStats after = engine.stats();
  timing.steps = static_cast<double>(after.steps - before.steps);
  timing.tokens = static_cast<double>(tokens - tokens_before);
  timing.passes = static_cast<double>(after.speculation.passes - before.speculation.passes);
  timing.draft_us = after.speculation.draft_us - before.speculation.draft_us;
  timing.verify_us = after.speculation.verify_us - before.speculation.verify_us;
  timing.verified = sum_of(after.speculation.verified) - sum_of(before.speculation.verified);
  timing.accepted = sum_of(after.speculation.accepted) - sum_of(before.speculation.accepted);
  if (!error.empty()) return internal_error(error);
  return timing;
}

// All of them, `streams` at once.
Result<Timing> run_all(Engine& engine, const std::vector<Request>& requests, int32_t streams, SweepAnswers* answers = nullptr) {
  Timing sum;
  for (size_t at = 0; at < requests.size(); at += static_cast<size_t>(streams)) {
    const size_t count = std::min(static_cast<size_t>(streams), requests.size() - at);
    DI_TRY(const Timing timing, run_group(engine, std::span(requests).subspan(at, count), answers));
    sum += timing;
  }
  return sum;
}

// One way to speculate, with the engine that does and what came of it.
struct Setting {
  std::string name;
  SpeculationOptions options;
  int32_t rounds = 1;
  std::unique_ptr<Engine> engine;
  Timing sum, off;             // of its rounds, and of `off` in the same ones
  std::vector<double> ratios;  // speed over that of `off`, by round
};

SpeculationOptions always(int32_t drafts) {
  return {.mode = SpeculationMode::kOn, .max_draft = drafts, .schedule = SpeculationSchedule::kFixed};
}

void report_setting(const std::string& name, const Setting& setting, const Timing& all, FigureReport& report) {
  const Timing &timing = setting.sum, &off = setting.off;
  const double gain = median(setting.ratios);
  report.add({.name = name, .value = gain * off.speed(), .unit = "tokens/s", .baseline = "off", .ratio = gain});
  if (timing.passes == 0) return;
  // Means over the runs, since sequences end at different times. Steps without a pass cost what they do without drafts.
  const double step = off.us / off.steps, streams = off.tokens / off.steps;
  const double expected_us = timing.draft_us + timing.verify_us + (timing.steps - timing.passes) * step;
  const double predicted = timing.tokens / streams * step / expected_us;
  report.add({.name = name + "/predicted", .value = predicted, .unit = "x"});
  report.add({.name = name + "/gain", .value = gain, .unit = "x", .baseline = "predicted", .ratio = gain / predicted});
  const auto add = [&](const char* what, double value, double whole, const char* unit) {
    report.add({.name = name + what, .value = value, .unit = unit, .baseline = "fixed5", .ratio = value / whole});
  };
  add("/verified", timing.verified / timing.turns(), all.verified / all.turns(), "drafts");
  add("/accepted", timing.accepted / timing.turns(), all.accepted / all.turns(), "drafts");
  add("/accepted_length", timing.tokens / timing.turns(), all.tokens / all.turns(), "tokens");
  report.add({.name = name + "/V", .value = timing.verify_us / timing.passes / 1e3, .unit = "ms"});
  report.add({.name = name + "/D", .value = timing.draft_us / timing.passes / 1e3, .unit = "ms"});
}

// Other decisions on drafts that were recorded.
struct Replayed {
  double verified = 0, tokens = 0, turns = 0;
  double length() const { return turns > 0 ? tokens / turns : 0; }
  double drafts() const { return turns > 0 ? verified / turns : 0; }
};

using Pass = std::vector<VerifiedBlock>;
using Decision = FunctionRef<void(const Pass& pass, std::span<int32_t> lengths)>;

Replayed replay(const std::vector<Pass>& passes, Decision decide) {
  Replayed out;
  std::vector<int32_t> lengths;
  for (const Pass& pass : passes) {
    lengths.assign(pass.size(), 0);
    decide(pass, lengths);
    for (size_t i = 0; i < pass.size(); ++i) {
      out.verified += lengths[i], out.tokens += 1 + std::min<int32_t>(pass[i].accepted, lengths[i]), out.turns += 1;
    }
  }
  return out;
}

constexpr auto take_all = [](const Pass& pass, std::span<int32_t> lengths) {
  for (size_t i = 0; i < pass.size(); ++i) lengths[i] = pass[i].observed;
};

// Three quarters of them, the most likely ones.
constexpr auto take_best = [](const Pass& pass, std::span<int32_t> lengths) {
  constexpr size_t kWidth = kMaxDraft;
  std::vector<float> survival(pass.size() * kWidth);
  std::vector<int32_t> limits(pass.size());
  take_all(pass, limits);
  for (size_t i = 0; i < pass.size(); ++i) {
    survival_of(pass[i].logits, kNoTemperatures, std::span(survival).subspan(i * kWidth, kWidth));
  }
  const int64_t all = std::accumulate(limits.begin(), limits.end(), int64_t{0});
  VerificationScheduler().admit({.survival = survival, .limits = limits, .width = kMaxDraft, .sequences = std::ssize(limits)},
                                (3 * all + 2) / 4, lengths);
};

// The product's schedule where rows are cheap: milliseconds of a step of the release on one of 64 H200s, put together from
// measured kernels at contexts of 77k; draft stages taken for layers.
class CheapRows {
 public:
  CheapRows() : control_({.mode = SpeculationMode::kOn}) {
    for (const auto& [rows, ms] : {std::pair{64, 10.04}, {128, 11.55}, {256, 16.23}}) control_.note_verify_cost(rows, ms * 1e3);
    for (const int64_t n : {8, 32, 64}) control_.note_draft_cost(n, control_.verify_costs().at(5 * n, 0) * 3 / 40);
  }
  void operator()(const Pass& pass, std::span<int32_t> lengths) {
    std::vector<ProposedBlock> blocks;
    std::vector<SurvivalHistory> histories(pass.size());
    for (size_t i = 0; i < pass.size(); ++i) {
      blocks.push_back({.limit = pass[i].observed,
                        .age = static_cast<int64_t>(i) + passes_,
                        .logits = pass[i].logits,
                        .history = &histories[i]});
    }
    ++passes_;
    control_.choose(blocks, {.sequences = std::ssize(pass)});
    for (size_t i = 0; i < pass.size(); ++i) lengths[i] = blocks[i].length;
  }

 private:
  DraftControl control_;
  int64_t passes_ = 0;
};

class Sweep {
 public:
  Sweep(Host& host, const BenchSpeculationOptions& options, FigureReport& report)
      : host_(host), options_(options), report_(report) {
    if (options_.streams.empty()) options_.streams = options.tokens_per_step > 0 ? std::vector{1} : std::vector{1, 8, 32, 64};
  }

  Status run() {
    const bool told = options_.tokens_per_step > 0;
    if (!host_.model().drafter() && !told) {
      return unsupported(
          fmt::format("model {} has no drafter, so there is nothing to sweep; --spec-tokens-per-step N gives it one that was "
                      "told the answers",
                      host_.model().name()));
    }
    std::vector<SweepTraffic> list;
    for (const int32_t streams : options_.streams) {
      for (const SweepText text : {SweepText::kEasy, SweepText::kHard, SweepText::kAdversarial, SweepText::kMixed}) {
        if (options_.text != "all" && options_.text != text_name(text)) continue;
        if (text == SweepText::kMixed ? streams < 8 || told : text != SweepText::kEasy && told) continue;
        for (const bool sampled : {false, true}) list.push_back({text, sampled, streams});
      }
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (options_.progress) options_.progress(i, list.size(), name_of(list[i]));
      DI_CHECK_OK(run_traffic(list[i]));
    }
    report_calibration();
    return {};
  }

 private:
  // Settings of a kind of traffic; `off` first.
  std::vector<Setting> settings(const SweepTraffic& traffic) const {
    std::vector<Setting> list;
    const auto add = [&](std::string name, const SpeculationOptions& options, int32_t rounds) {
      list.push_back({std::move(name), options, std::min(rounds, options_.rounds)});
    };
    const bool easy = traffic.text == SweepText::kEasy;
    const int32_t rounds = easy || traffic.text == SweepText::kMixed ? 2 : 1;
    add("off", {.mode = SpeculationMode::kOff}, options_.rounds);
    for (int32_t n = easy && !traffic.sampled ? 1 : 5; n <= 5; ++n) add(fmt::format("fixed{}", n), always(n), n < 5 ? 1 : rounds);
    add("sync", {.mode = SpeculationMode::kOn}, rounds);
    add("async", {.mode = SpeculationMode::kOn, .schedule = SpeculationSchedule::kAsync}, rounds);
    add("auto", {}, options_.rounds);
    return list;
  }

  Result<std::unique_ptr<Engine>> make_engine(const SpeculationOptions& speculation, const Drafter* drafter, int32_t streams) {
    EngineOptions engine = host_.engine().options();
    engine.max_batch = streams, engine.prefix_cache = false, engine.pages = 0, engine.context = kSweepContext;
    engine.speculation = speculation;
    engine.speculation.drafter = drafter;
    engine.clock = nullptr, engine.step_end = nullptr;
    return Engine::create(host_.device(), host_.model(), engine);
  }

  // The answers without drafts; also makes the traffic short enough for this machine.
  Result<SweepAnswers> answers_to(std::vector<Request>& requests, int32_t streams) {
    DI_TRY(const auto engine, make_engine({.mode = SpeculationMode::kOff}, nullptr, streams));
    std::vector<Request> few(requests.begin(), requests.begin() + streams);
    for (Request& request : few) request.max_tokens = 8;
    DI_TRY(const Timing timing, run_all(*engine, few, streams));
    shorten(requests, streams, kRunUs / (timing.us / timing.steps));
    SweepAnswers answers;
    DI_TRY([[maybe_unused]] const Timing ignored, run_all(*engine, requests, streams, &answers));
    return answers;
  }

  Status run_traffic(const SweepTraffic& traffic) {
    DI_TRY(auto requests, sweep_requests(host_, traffic));
    DI_TRY(const SweepAnswers answers, answers_to(requests, traffic.streams));
    OracleDrafter oracle(patterns_for(options_.tokens_per_step));
    std::map<uint64_t, size_t> prompts;
    for (const Request& request : requests) {
      const uint64_t seed = *request.sampling.seed;
      prompts[seed] = request.prompt.size();
      oracle.learn(seed, static_cast<int64_t>(request.prompt.size()), answers.at(seed));
    }
    const Drafter& inner = options_.tokens_per_step > 0 ? oracle : *host_.model().drafter();
    const SpoiledDrafter spoiled(inner, host_.device());
    const Drafter& drafter = traffic.text == SweepText::kAdversarial ? static_cast<const Drafter&>(spoiled) : inner;
    DI_TRY(const auto passes, record(requests, traffic.streams, drafter, answers, prompts));
    std::vector<Setting> list = settings(traffic);
    for (Setting& setting : list) {
      DI_TRY(setting.engine, make_engine(setting.options, &drafter, traffic.streams));
    }
    for (int32_t round = 0; round < options_.rounds; ++round) DI_CHECK_OK(run_round(list, round, requests, traffic.streams));
    const Timing& all = std::find_if(list.begin(), list.end(), [](const Setting& s) { return s.name == "fixed5"; })->sum;
    for (const Setting& setting : list) report_setting(name_of(traffic) + '/' + setting.name, setting, all, report_);
    report_passes(traffic, passes);
    return {};
  }

  // What always five drafts come to, pass by pass.
  Result<std::vector<Pass>> record(const std::vector<Request>& requests, int32_t streams, const Drafter& drafter,
                                   const SweepAnswers& answers, const std::map<uint64_t, size_t>& prompts) {
    const RecordingDrafter recorder(drafter, host_.device());
    DI_TRY(const auto engine, make_engine(always(5), &recorder, streams));
    DI_TRY([[maybe_unused]] const Timing ignored, run_all(*engine, requests, streams));
    return recorder.blocks(answers, prompts);
  }

  Status run_round(std::vector<Setting>& list, int32_t round, const std::vector<Request>& requests, int32_t streams) {
    std::vector<Timing> seen(list.size());
    for (const bool back : {false, true}) {
      for (size_t i = 0; i < list.size(); ++i) {
        const size_t at = back ? list.size() - 1 - i : i;
        if (round >= list[at].rounds) continue;
        DI_TRY(const Timing timing, run_all(*list[at].engine, requests, streams));
        seen[at] += timing;
      }
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (round >= list[i].rounds) continue;
      list[i].sum += seen[i], list[i].off += seen[0];
      list[i].ratios.push_back(seen[i].speed() / seen[0].speed());
    }
    return {};
  }

  void report_passes(const SweepTraffic& traffic, const std::vector<Pass>& passes) {
    const Replayed all = replay(passes, take_all);
    const auto add = [&](const char* what, double value, double whole, const char* unit) {
      report_.add({.name = name_of(traffic) + what, .value = value, .unit = unit, .baseline = "fixed5", .ratio = value / whole});
    };
    add("/best75/accepted_length", replay(passes, take_best).length(), all.length(), "tokens");
    CheapRows cheap;
    const Replayed scheduled = replay(passes, cheap);
    add("/cheap_rows/verified", scheduled.drafts(), all.drafts(), "drafts");
    add("/cheap_rows/accepted_length", scheduled.length(), all.length(), "tokens");
    // Other numbers of streams have the same answers.
    const bool largest = traffic.streams == *std::max_element(options_.streams.begin(), options_.streams.end());
    if (!largest || traffic.text == SweepText::kAdversarial || traffic.text == SweepText::kMixed) return;
    for (const auto& pass : passes) blocks_.insert(blocks_.end(), pass.begin(), pass.end());
  }

  // Fitted on every other block, told of the rest.
  void report_calibration() {
    if (blocks_.empty() || options_.tokens_per_step > 0) return;
    std::vector<VerifiedBlock> halves[2];
    for (size_t i = 0; i < blocks_.size(); ++i) halves[i % 2].push_back(blocks_[i]);
    const int32_t width = std::min(host_.model().drafter()->width(), kMaxDraft);
    const Temperatures fitted = fit_temperatures(halves[0], width, 500);
    for (int32_t k = 1; k <= width; ++k) {
      const double before = calibration_error(halves[1], k, kNoTemperatures), after = calibration_error(halves[1], k, fitted);
      report_.add({.name = fmt::format("spec/calibration/{}", k),
                   .value = after,
                   .unit = "error",
                   .baseline = "unscaled",
                   .ratio = before > 0 ? after / before : 1});
    }
  }

  Host& host_;
  BenchSpeculationOptions options_;
  FigureReport& report_;
  std::vector<VerifiedBlock> blocks_;
};

}  // namespace

Status bench_speculation(Host& host, const BenchSpeculationOptions& options, FigureReport& report) {
  return Sweep(host, options, report).run();
}

}  // namespace deepinfer
