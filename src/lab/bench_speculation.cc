#include "lab/bench_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "model/oracle_drafter.h"
#include "recipe/conversation.h"
#include "recipe/render.h"

namespace deepinfer {
namespace {

double now_us() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Setting {
  std::string name;
  SpeculationOptions options;
};

constexpr size_t kAll = 5;  // of settings(): always five drafts

std::vector<Setting> settings() {
  std::vector<Setting> list = {{"off", {.mode = SpeculationMode::kOff}}};
  for (int32_t n = 1; n <= 5; ++n) {
    list.push_back(
        {fmt::format("fixed{}", n), {.mode = SpeculationMode::kOn, .max_draft = n, .schedule = SpeculationSchedule::kFixed}});
  }
  list.push_back({"sync", {.mode = SpeculationMode::kOn}});
  list.push_back({"async", {.mode = SpeculationMode::kOn, .schedule = SpeculationSchedule::kAsync}});
  list.push_back({"auto", {}});
  return list;
}

constexpr const char* kTasks[] = {"Tell me a short story about a fox.",
                                  "What is the capital of France?",
                                  "Sort these numbers: 5, 3, 19, 8",
                                  "Tell me a short story about a boat.",
                                  "Tom has 3 boxes of 4 pens. How many pens does he have?",
                                  "Tell me a short story about a clever dog.",
                                  "What is 12 + 30?",
                                  "Tell me a short story about winter."};

enum class Text { kTask, kSampled, kRandom };
constexpr Text kTexts[] = {Text::kTask, Text::kSampled, Text::kRandom};
const char* text_name(Text text) { return text == Text::kTask ? "task" : text == Text::kSampled ? "sampled" : "random"; }

// Task prompts drawn greedily or at temperature 1, or ids without sense at temperature 1, which no drafter can guess.
Result<std::vector<Request>> make_requests(const Host& host, Text text, int32_t streams, int32_t tokens) {
  const int32_t vocab = std::min(host.model().shape().vocab, host.tokenizer().vocab_size());
  std::vector<Request> requests;
  for (int32_t i = 0; i < std::max(streams, 8); ++i) {
    Request request;
    request.max_tokens = tokens;
    request.sampling.temperature = text == Text::kTask ? 0.0f : 1.0f;
    request.sampling.seed = static_cast<uint64_t>(100 + i);
    if (text == Text::kRandom) {
      for (int32_t k = 0; k < 48; ++k) request.prompt.push_back(3 + (k * 7919 + i * 104729) % std::max(1, vocab / 2));
    } else {
      Conversation conversation;
      conversation.messages.push_back(Message::user(kTasks[static_cast<size_t>(i) % std::size(kTasks)]));
      DI_TRY(request.prompt, render_prompt(conversation).encode(host.tokenizer()));
      request.stop_ids = {host.model().shape().eos_id};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Of steps in which every running sequence decodes.
struct Timing {
  double us = 0, steps = 0, tokens = 0;
  double draft_us = 0, verify_us = 0, passes = 0;
  double verified = 0, accepted = 0;  // drafts
  double speed() const { return us > 0 ? tokens / us * 1e6 : 0; }
};

// Runs `requests`, `streams` at once, and times the part after the prompts.
using Answers = std::map<uint64_t, std::vector<TokenId>>;  // by the seed of the request

double sum_of(const std::array<int64_t, kMaxDraft>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

Result<Timing> run_group(Engine& engine, std::span<const Request> requests, Answers* answers) {
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

Result<Timing> run_all(Engine& engine, const std::vector<Request>& requests, int32_t streams, Answers* answers = nullptr) {
  Timing sum;
  for (size_t at = 0; at < requests.size(); at += static_cast<size_t>(streams)) {
    const size_t count = std::min(static_cast<size_t>(streams), requests.size() - at);
    DI_TRY(const Timing timing, run_group(engine, std::span(requests).subspan(at, count), answers));
    sum.us += timing.us, sum.steps += timing.steps, sum.tokens += timing.tokens;
    sum.passes += timing.passes, sum.draft_us += timing.draft_us, sum.verify_us += timing.verify_us;
    sum.verified += timing.verified, sum.accepted += timing.accepted;
  }
  return sum;
}

void report_drafts(const std::string& name, const char* what, double drafts, double tokens, double all, FigureReport& report) {
  report.add(
      {.name = name + what, .value = drafts / tokens, .unit = "drafts/token", .baseline = "fixed5", .ratio = drafts / all});
}

void report_setting(const std::string& name, const Timing& timing, const Timing& off, const Timing& all, FigureReport& report) {
  report.add(
      {.name = name, .value = timing.speed(), .unit = "tokens/s", .baseline = "off", .ratio = timing.speed() / off.speed()});
  if (timing.passes == 0) return;
  // Means over the run, since sequences end at different times. Steps without a pass cost what they do without drafts.
  const double step = off.us / off.steps, streams = off.tokens / off.steps;
  const double expected_us = timing.draft_us + timing.verify_us + (timing.steps - timing.passes) * step;
  const double gain = timing.speed() / off.speed(), predicted = timing.tokens / streams * step / expected_us;
  report.add({.name = name + "/gain", .value = gain, .unit = "x", .baseline = "predicted", .ratio = gain / predicted});
  report.add({.name = name + "/tokens_per_step", .value = timing.tokens / timing.steps / streams, .unit = "tokens"});
  report_drafts(name, "/verified", timing.verified, timing.tokens, all.verified, report);
  report_drafts(name, "/accepted", timing.accepted, timing.tokens, all.accepted, report);
  report.add({.name = name + "/V", .value = timing.verify_us / timing.passes / 1e3, .unit = "ms"});
  report.add({.name = name + "/D", .value = timing.draft_us / timing.passes / 1e3, .unit = "ms"});
}

// Patterns of which the five drafts of a block stand, so that a step gives `tokens` on average.
std::vector<uint32_t> patterns_for(double tokens) {
  constexpr int kPatterns = 20;
  std::vector<uint32_t> patterns;
  for (int i = 0; i < kPatterns; ++i) {
    const double before = (tokens - 1) * i, after = (tokens - 1) * (i + 1);
    const int right = std::clamp(static_cast<int>(std::floor(after + 1e-9) - std::floor(before + 1e-9)), 0, 5);
    patterns.push_back((1u << right) - 1);
  }
  return patterns;
}

// The answers of `requests`, for a drafter that is told them.
Result<std::unique_ptr<OracleDrafter>> informed_drafter(Host& host, const std::vector<Request>& requests, int32_t streams,
                                                        double tokens) {
  EngineOptions options = host.engine().options();
  options.max_batch = streams, options.prefix_cache = false, options.pages = 0, options.clock = nullptr,
  options.step_end = nullptr;
  options.speculation = {.mode = SpeculationMode::kOff};
  DI_TRY(const auto engine, Engine::create(host.device(), host.model(), options));
  Answers answers;
  DI_TRY(const Timing timing, run_all(*engine, requests, streams, &answers));
  static_cast<void>(timing);
  auto drafter = std::make_unique<OracleDrafter>(patterns_for(tokens));
  for (const Request& request : requests) {
    const uint64_t seed = *request.sampling.seed;
    drafter->learn(seed, static_cast<int64_t>(request.prompt.size()), std::move(answers[seed]));
  }
  return drafter;
}

}  // namespace

Status bench_speculation(Host& host, const BenchSpeculationOptions& options, FigureReport& report) {
  if (!host.model().drafter() && options.tokens_per_step == 0)
    return unsupported(
        fmt::format("model {} has no drafter, so there is nothing to sweep; --spec-tokens-per-step N gives it one "
                    "that was told the answers",
                    host.model().name()));
  const std::vector<Setting> list = settings();
  for (const int32_t streams : options.streams) {
    for (const Text text : kTexts) {
      DI_TRY(const auto requests, make_requests(host, text, streams, options.tokens));
      std::unique_ptr<OracleDrafter> informed;
      if (options.tokens_per_step > 0) {
        DI_TRY(informed, informed_drafter(host, requests, streams, options.tokens_per_step));
      }
      std::vector<std::unique_ptr<Engine>> engines;
      std::vector<Timing> best(list.size());
      for (const Setting& setting : list) {
        EngineOptions engine = host.engine().options();
        engine.max_batch = streams, engine.prefix_cache = false, engine.pages = 0, engine.speculation = setting.options;
        engine.speculation.drafter = informed.get();
        engine.clock = nullptr, engine.step_end = nullptr;
        DI_TRY(engines.emplace_back(), Engine::create(host.device(), host.model(), engine));
      }
      for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
        for (size_t i = 0; i < list.size(); ++i) {
          DI_TRY(const Timing timing, run_all(*engines[i], requests, streams));
          if (timing.speed() > best[i].speed()) best[i] = timing;
        }
      }
      const std::string group = fmt::format("spec/{}/{}/", text_name(text), streams);
      for (size_t i = 0; i < list.size(); ++i) report_setting(group + list[i].name, best[i], best[0], best[kAll], report);
    }
  }
  return {};
}

}  // namespace deepinfer
