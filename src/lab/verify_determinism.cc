#include "lab/verify_determinism.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>

#include "base/file.h"
#include "cpu/delayed_device.h"
#include "host/constraints.h"
#include "host/host.h"
#include "lab/determinism_worlds.h"
#include "model/oracle_drafter.h"

namespace deepinfer {
namespace {

struct SeenAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprobs;  // bits
  FinishReason finish = FinishReason::kNone;
  std::string error;
};

// One request whose values are kept.
struct Watch {
  size_t request;
  RowRecorder* recorder;
};

// Answers `requests` with `engine`, at most `together` at once. An engine may refuse for a while.
Result<std::vector<SeenAnswer>> answer_all(Engine& engine, const std::vector<Request>& requests, const World& world,
                                           const Watch* watch = nullptr) {
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
    DI_TRY(const RequestId id, engine.submit(requests[i], handler(i)));
    if (watch && watch->request == i) watch->recorder->watch(id);
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

// Requests with their answers alone, by replay mode.
struct Asked {
  std::vector<Request> requests;
  std::vector<SeenAnswer> alone;
};

class Verifier {
 public:
  explicit Verifier(const DeterminismOptions& options) : options_(options), hosts_(options.host) {}

  Result<DeterminismReport> run() {
    const auto begin = std::chrono::steady_clock::now();
    DI_TRY(Host* const host, hosts_.get({}));
    context_ = host->engine().options().context;
    plain_.requests = determinism_requests(host->model(), context_, options_.full);
    DI_CHECK_OK(constrain(*host));
    std::vector<World> list = determinism_worlds(options_.full);
    if (!options_.axis.empty()) {
      std::erase_if(list, [&](const World& world) { return world.axis != options_.axis; });
      if (list.empty()) return invalid_argument(fmt::format("--axis {}: there is no such axis", options_.axis));
    }
    total_ = 2 * list.size() + list.size();
    for (const ReplayMode mode : {ReplayMode::kOff, ReplayMode::kDecoder, ReplayMode::kFull}) DI_CHECK_OK(run_mode(mode, list));
    for (const char* axis : {"store on disk", "ranks of the engine", "prefill and decode apart"}) {
      report_.rows.push_back({"", axis, "", 0, true, "not built"});
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report_;
  }

 private:
  // An answer that may go many ways, and one that must end.
  Status constrain(Host& host) {
    const int32_t vocab = host.model().shape().vocab;
    std::vector<std::shared_ptr<const Constraint>> constraints;
    for (const char* ebnf : {"root ::= (\"a\" | \"b\" | [0-9])+", "root ::= \"[\" [0-9]+ (\",\" [0-9]+)* \"]\""}) {
      DI_TRY(const auto constraint, host.constraints().of_grammar(ebnf));
      if (constraint->vocab_size() <= vocab) constraints.push_back(constraint);
    }
    if (!constraints.empty()) constrained_.requests = constrained_requests(plain_.requests, constraints);
    return {};
  }

  Status run_mode(ReplayMode mode, const std::vector<World>& list) {
    for (Asked* asked : {&plain_, &constrained_}) asked->alone.clear();
    for (const World& world : list) {
      if (mode != ReplayMode::kDecoder && world.default_replay_only) continue;
      // In mode full an answer may depend on the hit, by design.
      if (mode == ReplayMode::kFull && (world.cached || world.prefixes || world.crowded)) continue;
      if (options_.progress) options_.progress(done_++, total_, fmt::format("{} {}", world.axis, world.value));
      DI_CHECK_OK(run_world(mode, world));
    }
    return {};
  }

  Status run_world(ReplayMode mode, const World& world) {
    Asked& asked = world.constrained ? constrained_ : plain_;
    DeterminismRow row{replay_mode_name(mode), world.axis, world.value};
    DI_TRY(Host * host, hosts_.get({}));
    // Bytes are promised within a numerics class; the delayed device runs on the host's cores.
    if (world.delayed && host->device().isa().starts_with("sm")) {
      row.what = "the host's cores are another numerics class";
      report_.rows.push_back(std::move(row));
      return {};
    }
    DI_TRY(host, hosts_.get(world));
    if (world.drafts > 0 && world.patterns.empty() && !host->model().drafter()) {
      row.what = "the model has no drafter";
    } else if (asked.requests.empty()) {
      row.what = "the model's vocabulary is smaller than its tokenizer's";
    } else {
      if (asked.alone.empty()) {
        DI_TRY(asked.alone, answer(asked, World{"", "alone"}, mode));
      }
      DI_TRY(const std::vector<SeenAnswer> got, answer(asked, world, mode));
      row.requests = static_cast<int32_t>(got.size());
      for (size_t i = 0; i < got.size() && row.holds; ++i) {
        const std::string what = difference(got[i], asked.alone[i]);
        if (what.empty()) continue;
        row.holds = false;
        row.what = fmt::format("prompt of {} tokens: {}", asked.requests[i].prompt.size(), what);
        if (options_.bisect) DI_CHECK_OK(bisect(asked, world, mode, i, got[i], row));
      }
    }
    report_.rows.push_back(std::move(row));
    return {};
  }

  // Once more both ways, with every value of the request that differs; only the first row that does not hold is kept in the file.
  Status bisect(const Asked& asked, const World& world, ReplayMode mode, size_t request, const SeenAnswer& got,
                DeterminismRow& row) {
    const World alone{"", "alone"};
    DI_TRY(Host* const first_host, hosts_.get(alone));
    DI_TRY(Host* const host, hosts_.get(world));
    RowRecorder want(first_host->device()), have(host->device());
    const Watch watch_alone{request, &want}, watch{request, &have};
    DI_TRY([[maybe_unused]] const auto one, answer(asked, alone, mode, &watch_alone));
    DI_TRY([[maybe_unused]] const auto two, answer(asked, world, mode, &watch));
    const ModelShape& shape = host->model().shape();
    const auto found = first_divergence(want, have, Position{shape.layers} * (shape.window - 1));
    Json first;
    if (found) {
      row.what += fmt::format("; first at row {}, layer {}, {}", found->position, found->layer, found->operation);
      first = Json::object({{"row", found->position}, {"layer", int64_t{found->layer}}, {"operation", found->operation}});
    } else {
      row.what += "; no value of the layers differs before it: look at the head, the draw and the loop";
    }
    if (options_.capture.empty() || std::exchange(captured_, true)) return {};
    const Json capture = Json::object({{"capture", "determinism"},
                                       {"model", host->model().name()},
                                       {"fingerprint", host->model().fingerprint()},
                                       {"replay", row.replay},
                                       {"axis", row.axis},
                                       {"value", row.value},
                                       {"prompt", ids_json(asked.requests[request].prompt)},
                                       {"seed", *asked.requests[request].sampling.seed},
                                       {"temperature", static_cast<double>(asked.requests[request].sampling.temperature)},
                                       {"max_tokens", int64_t{asked.requests[request].max_tokens}},
                                       {"alone", ids_json(asked.alone[request].tokens)},
                                       {"answer", ids_json(got.tokens)},
                                       {"first", std::move(first)}});
    return write_file(options_.capture, capture.dump(1) + "\n");
  }

  static Json ids_json(const std::vector<TokenId>& ids) {
    Json out = Json::array();
    for (const TokenId id : ids) out.push_back(int64_t{id});
    return out;
  }

  // What was answered alone teaches the drafter that knows the answers.
  Result<std::vector<SeenAnswer>> answer(const Asked& asked, const World& world, ReplayMode mode, const Watch* watch = nullptr) {
    DI_TRY(Host* const host, hosts_.get(world));
    const auto& requests = asked.requests;
    OracleDrafter oracle(world.patterns);
    for (size_t i = 0; i < asked.alone.size(); ++i)
      oracle.learn(*requests[i].sampling.seed, static_cast<int64_t>(requests[i].prompt.size()), asked.alone[i].tokens);
    size_t longest = 0;
    for (const Request& request : requests)
      longest = std::max(longest, request.prompt.size() + static_cast<size_t>(request.max_tokens));
    EngineOptions options = determinism_engine(world, mode, context_, options_.host.keep_tokens, static_cast<int64_t>(longest),
                                               host->model().layout().page_tokens);
    options.speculation.mode = world.drafts > 0 ? SpeculationMode::kOn : SpeculationMode::kOff;
    options.speculation.max_draft = world.drafts;
    options.speculation.schedule = world.schedule;
    if (!world.patterns.empty()) options.speculation.drafter = &oracle;
    const TracedModel traced(host->model(), [&](const TracedValue& value) {
      if (options_.hook) options_.hook(value);
      if (watch) watch->recorder->note(value);
    });
    const bool traces = options_.hook || watch;
    const LanguageModel& model = traces ? static_cast<const LanguageModel&>(traced) : host->model();
    DI_TRY(const auto engine, Engine::create(host->device(), model, options));
    if (world.prefixes) {
      std::vector<Request> shorter = requests;
      for (size_t i = 0; i < shorter.size(); ++i) {
        shorter[i].prompt.resize(shorter[i].prompt.size() - shorter[i].prompt.size() * (i % 4) / 5);
      }
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, shorter, {}));
    }
    if (world.cached) {
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, requests, {}));
    }
    return answer_all(*engine, requests, world, watch);
  }

  const DeterminismOptions& options_;
  Hosts hosts_;
  int64_t context_ = 0;
  Asked plain_, constrained_;
  DeterminismReport report_;
  size_t done_ = 0, total_ = 0;
  bool captured_ = false;
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
