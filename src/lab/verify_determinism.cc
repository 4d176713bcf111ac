#include "lab/verify_determinism.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <tuple>

#include "base/file.h"
#include "base/scratch_folder.h"
#include "cpu/cpu_device.h"
#include "cpu/delayed_device.h"
#include "host/constraints.h"
#include "host/host.h"
#include "host/open_device.h"
#include "lab/determinism_answers.h"
#include "lab/determinism_worlds.h"
#include "lab/mortal_disk.h"
#include "model/oracle_drafter.h"
#include "model/ranked_model.h"

namespace deepinfer {
namespace {

// Hosts by device, threads and memory for experts; loading again would be most of the time.
class Hosts {
 public:
  explicit Hosts(const HostSettings& settings) : settings_(settings) {}

  Result<Host*> get(const World& world) {
    auto& host = hosts_[{world.delayed, world.threads, world.expert_memory}];
    if (!host) {
      HostSettings settings = settings_;
      settings.threads = world.threads;
      settings.expert_memory = world.expert_memory;
      HostOptions options;
      if (world.delayed) {
        DI_TRY(options.device, make_delayed_device({.threads = world.threads, .isa = cpu_kernels_of(settings.device)}));
      }
      DI_TRY(host, Host::open(settings, std::move(options)));
    }
    return host.get();
  }

 private:
  HostSettings settings_;
  std::map<std::tuple<bool, int, float>, std::unique_ptr<Host>> hosts_;
};

// Questions with their answers alone, by R, in the replay mode at hand.
struct AskedAlone {
  Asked asked;
  std::map<int32_t, std::vector<SeenAnswer>> alone;
};

struct Answered {
  std::vector<SeenAnswer> answers;
  std::string missing;  // why the world was not what its name says; "" = it was
};

// A world, or the lonely one, of some questions.
struct Setting {
  const AskedAlone& set;
  const World& world;
  ReplayMode mode;
};

World alone_with(const World& world) {
  return {
      .axis = "", .value = "alone", .step_tokens = kWholePrompt, .questions = world.questions, .keep_tokens = world.keep_tokens};
}

bool is_run(ReplayMode mode, const World& world) {
  if (mode != ReplayMode::kDecoder && (world.default_replay_only || world.keep_tokens > 0)) return false;
  // In mode full an answer may depend on the hit, by design.
  const bool hits = world.cached || world.prefixes || world.crowded || world.before || world.questions == Questions::kChoices;
  return mode != ReplayMode::kFull || !hits;
}

class Verifier {
 public:
  explicit Verifier(const DeterminismOptions& options) : options_(options), hosts_(options.host) {}

  Result<DeterminismReport> run() {
    const auto begin = std::chrono::steady_clock::now();
    DI_TRY(Host* const host, hosts_.get({}));
    context_ = host->engine().options().context;
    std::vector<World> list = determinism_worlds(options_.full);
    if (!options_.axis.empty()) {
      std::erase_if(list, [&](const World& world) { return world.axis != options_.axis; });
      if (list.empty()) return invalid_argument(fmt::format("--axis {}: there is no such axis", options_.axis));
    }
    for (const World& world : list)
      sets_[world.questions].asked = determinism_questions(world.questions, host->model(), context_, options_.full);
    if (sets_.contains(Questions::kConstrained)) DI_CHECK_OK(constrain(*host, sets_[Questions::kConstrained].asked));
    constexpr ReplayMode kModes[] = {ReplayMode::kOff, ReplayMode::kDecoder, ReplayMode::kFull};
    for (const ReplayMode mode : kModes)
      total_ += static_cast<size_t>(std::ranges::count_if(list, [mode](const World& world) { return is_run(mode, world); }));
    for (const ReplayMode mode : kModes) DI_CHECK_OK(run_mode(mode, list));
    for (const char* axis : {"expert placements", "pinned threads"}) report_.rows.push_back({"", axis, "", 0, true, "not built"});
    report_.rows.push_back({"", "prefill and decode apart", "", 0, true, "needs several workers: tests/roles_test.py"});
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report_;
  }

 private:
  // An answer that may go many ways, and one that must end.
  static Status constrain(Host& host, Asked& asked) {
    const int32_t vocab = host.model().shape().vocab;
    std::vector<std::shared_ptr<const Constraint>> constraints;
    for (const char* ebnf : {"root ::= (\"a\" | \"b\" | [0-9])+", "root ::= \"[\" [0-9]+ (\",\" [0-9]+)* \"]\""}) {
      DI_TRY(const auto constraint, host.constraints().of_grammar(ebnf));
      if (constraint->vocab_size() <= vocab) constraints.push_back(constraint);
    }
    asked = constrained_questions(asked, constraints);
    return {};
  }

  Status run_mode(ReplayMode mode, const std::vector<World>& list) {
    for (auto& [questions, set] : sets_) set.alone.clear();
    for (const World& world : list) {
      if (!is_run(mode, world)) continue;
      if (options_.progress) options_.progress(done_++, total_, fmt::format("{} {}", world.axis, world.value));
      DI_CHECK_OK(run_world(mode, world));
    }
    return {};
  }

  // Why this model cannot be in this world; "" = it can.
  Result<std::string> unfit(const World& world, const AskedAlone& set) {
    DI_TRY(Host* const plain, hosts_.get({}));
    // Bytes are promised within a numerics class; the delayed device runs on the host's cores.
    if (world.delayed && numerics_class(plain->device().isa()) != "portable")
      return std::string("that device's kernels are another numerics class");
    DI_TRY(Host* const host, hosts_.get(world));
    if (world.drafts > 0 && world.patterns.empty() && !host->model().drafter()) return std::string("the model has no drafter");
    if (world.ranks > 1) {
      DI_TRY(const LanguageModel* const model, ranked(world));
      if (!model) return std::string("ranks are threads on a CPU, of a checkpoint");
    }
    if (!set.asked.requests.empty()) return std::string();
    return std::string(world.questions == Questions::kConstrained ? "the model's vocabulary is smaller than its tokenizer's"
                                                                  : "the context is too short");
  }

  Status run_world(ReplayMode mode, const World& world) {
    AskedAlone& set = sets_[world.questions];
    DeterminismRow row{replay_mode_name(mode), world.axis, world.value};
    DI_TRY(row.what, unfit(world, set));
    if (row.what.empty()) {
      std::vector<SeenAnswer>& alone = set.alone[world.keep_tokens];
      if (alone.empty()) {
        DI_TRY(const Answered answered, answer({set, alone_with(world), mode}));
        alone = answered.answers;
      }
      DI_TRY(const Answered got, answer({set, world, mode}));
      row.what = got.missing;
      row.requests = got.missing.empty() ? static_cast<int32_t>(got.answers.size()) : 0;
      for (size_t i = 0; i < got.answers.size() && row.holds; ++i) {
        const std::string what = difference(got.answers[i], alone[i % alone.size()]);
        if (what.empty()) continue;
        row.holds = false, row.requests = static_cast<int32_t>(got.answers.size());
        row.what = fmt::format("prompt of {} tokens: {}", set.asked.requests[i % alone.size()].prompt.size(), what);
        if (options_.bisect) DI_CHECK_OK(bisect({set, world, mode}, i, got.answers[i], row));
      }
    }
    report_.rows.push_back(std::move(row));
    return {};
  }

  // Once more both ways, with every value of the request that differs; only the first row that does not hold is kept in the file.
  Status bisect(const Setting& setting, size_t at, const SeenAnswer& got, DeterminismRow& row) {
    if (setting.world.ranks > 1) return {};  // each rank has values of its own
    const World alone = alone_with(setting.world);
    const size_t request = at % setting.set.asked.requests.size();
    DI_TRY(Host* const first_host, hosts_.get(alone));
    DI_TRY(Host* const host, hosts_.get(setting.world));
    RowRecorder want(first_host->device()), have(host->device());
    const Watch watch_alone{request, &want}, watch{at, &have};
    DI_TRY([[maybe_unused]] const auto one, answer({setting.set, alone, setting.mode}, &watch_alone));
    DI_TRY([[maybe_unused]] const auto two, answer(setting, &watch));
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
    const Request& asked = setting.set.asked.requests[request];
    const Json capture = Json::object({{"capture", "determinism"},
                                       {"model", host->model().name()},
                                       {"fingerprint", host->model().fingerprint()},
                                       {"replay", row.replay},
                                       {"axis", row.axis},
                                       {"value", row.value},
                                       {"prompt", ids_json(asked.prompt)},
                                       {"seed", *asked.sampling.seed},
                                       {"temperature", static_cast<double>(asked.sampling.temperature)},
                                       {"max_tokens", int64_t{asked.max_tokens}},
                                       {"alone", ids_json(setting.set.alone.at(setting.world.keep_tokens)[request].tokens)},
                                       {"answer", ids_json(got.tokens)},
                                       {"first", std::move(first)}});
    return write_file(options_.capture, capture.dump(1) + "\n");
  }

  static Json ids_json(const std::vector<TokenId>& ids) {
    Json out = Json::array();
    for (const TokenId id : ids) out.push_back(int64_t{id});
    return out;
  }

  // Null: this model has none.
  Result<const LanguageModel*> ranked(const World& world) {
    DI_TRY(Host* const host, hosts_.get(world));
    const auto* model = dynamic_cast<const V41Model*>(&host->whole_model());
    if (!model || !host->device().reads_host_memory() || model->weights().checkpoint->has_holes()) return nullptr;
    auto& ranked = ranked_[world.ranks];
    if (!ranked) {
      std::vector<std::unique_ptr<Device>> devices(static_cast<size_t>(world.ranks));
      for (auto& device : devices) {
        DI_TRY(device, make_cpu_device({.threads = 1, .isa = host->device().isa()}));
      }
      DI_TRY(ranked, RankedModel::create(*model, std::move(devices)));
    }
    return ranked.get();
  }

  EngineOptions engine_options(const Setting& setting, const LanguageModel& model) const {
    size_t longest = 0;
    for (const Request& request : setting.set.asked.requests)
      longest = std::max(longest, request.prompt.size() + static_cast<size_t>(request.max_tokens));
    EngineOptions options = determinism_engine(setting.world, setting.mode, context_, options_.host.keep_tokens,
                                               static_cast<int64_t>(longest), model.layout().page_tokens);
    options.speculation.mode = setting.world.drafts > 0 ? SpeculationMode::kOn : SpeculationMode::kOff;
    options.speculation.max_draft = setting.world.drafts;
    options.speculation.schedule = setting.world.schedule;
    return options;
  }

  // What was answered alone teaches the drafter that knows the answers.
  Result<Answered> answer(const Setting& setting, const Watch* watch = nullptr) {
    const World& world = setting.world;
    DI_TRY(Host* const host, hosts_.get(world));
    EngineOptions options = engine_options(setting, host->model());
    OracleDrafter oracle(world.patterns);
    if (!world.patterns.empty()) {
      const auto& alone = setting.set.alone.at(world.keep_tokens);
      for (size_t i = 0; i < alone.size(); ++i) {
        const Request& request = setting.set.asked.requests[i];
        oracle.learn(*request.sampling.seed, static_cast<int64_t>(request.prompt.size()), alone[i].tokens);
      }
      options.speculation.drafter = &oracle;
    }
    const TracedModel traced(host->model(), [&](const TracedValue& value) {
      if (options_.hook) options_.hook(value);
      if (watch) watch->recorder->note(value);
    });
    const LanguageModel* model = options_.hook || watch ? static_cast<const LanguageModel*>(&traced) : &host->model();
    if (world.ranks > 1) {
      DI_TRY(model, ranked(world));
    }
    return world.store == StoreWay::kNone ? answer_cold(setting, host->device(), *model, options, watch)
                                          : answer_stored(setting, host->device(), *model, options, watch);
  }

  Result<Answered> answer_cold(const Setting& setting, Device& device, const LanguageModel& model, const EngineOptions& options,
                               const Watch* watch) {
    const World& world = setting.world;
    const Asked& asked = setting.set.asked;
    DI_TRY(const auto engine, Engine::create(device, model, options));
    if (world.prefixes || world.before) {
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, cut(asked.requests, asked.before), {}));
    }
    if (world.cached) {
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, asked.requests, {}));
    }
    std::vector<Request> requests;
    for (int32_t copy = 0; copy < world.copies; ++copy)
      requests.insert(requests.end(), asked.requests.begin(), asked.requests.end());
    Answered out;
    DI_TRY(out.answers, answer_all(*engine, requests, world, watch));
    if ((world.prefixes || world.cached || world.before) && engine->stats().prefix.hit_tokens == 0)
      out.missing = "nothing was cached";
    return out;
  }

  // Beginnings by one engine, the answers by another one that finds what the first has left on the disk.
  Result<Answered> answer_stored(const Setting& setting, Device& device, const LanguageModel& model, EngineOptions options,
                                 const Watch* watch) {
    const Asked& asked = setting.set.asked;
    options.store.date = &date_, options.store.fingerprint = "verify";
    options.store.deadline.base_us = 60'000'000;  // a machine that is busy is not what is looked at
    const auto live = [&](MortalDisk& disk, const std::string& folder) -> Result<std::unique_ptr<Engine>> {
      options.store.disk = &disk, options.store.folder = folder;
      return Engine::create(device, model, options);
    };
    const auto begin = [&](MortalDisk& disk, const std::string& folder) -> Result<std::unique_ptr<Engine>> {
      DI_TRY(auto engine, live(disk, folder));
      DI_TRY([[maybe_unused]] const auto ignored, answer_all(*engine, cut(asked.requests, asked.before), {}));
      return engine;
    };
    int64_t writes = MortalDisk::kNever;
    if (setting.world.store == StoreWay::kKilled) {
      // It dies among the last writes of a whole life.
      DI_TRY(const auto folder, ScratchFolder::create("verify"));
      MortalDisk disk;
      DI_TRY(auto whole, begin(disk, folder.path()));
      whole.reset();
      writes = std::max<int64_t>(1, disk.num_writes() - 2);
    }
    DI_TRY(const auto folder, ScratchFolder::create("verify"));
    MortalDisk first_disk(writes), disk;
    DI_TRY(auto first, begin(first_disk, folder.path()));
    if (setting.world.store != StoreWay::kShared) first.reset();
    DI_TRY(const auto engine, live(disk, folder.path()));
    Answered out;
    DI_TRY(out.answers, answer_all(*engine, asked.requests, setting.world, watch));
    if (engine->stats().store.loaded_pages == 0) out.missing = "nothing was loaded";
    return out;
  }

  const DeterminismOptions& options_;
  Hosts hosts_;
  int64_t context_ = 0;
  std::map<Questions, AskedAlone> sets_;
  std::map<int32_t, std::unique_ptr<RankedModel>> ranked_;  // after the hosts whose weights they read
  const DateClock date_;
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
