#include "host/host.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/utf8.h"
#include "host/constraints.h"
#include "host/draft_calibration.h"
#include "host/image_encoder.h"
#include "host/open_device.h"
#include "host/open_model.h"
#include "host/open_store.h"
#include "recipe/control_tokens.h"
#include "recipe/prompt_cache.h"

namespace deepinfer {

namespace {

// Of the machine's memory, for states at page borders (kv_cache.md, section 7).
constexpr int64_t kSnapshotShare = 10;

// A missing or strange file recommends nothing.
GenerationDefaults read_generation_defaults(const std::string& folder) {
  GenerationDefaults defaults;
  const std::string path = join_path(folder, "generation_config.json");
  if (!file_exists(path)) return defaults;
  const Result<std::string> text = read_file(path);
  const Result<Json> json = text ? Json::parse(*text) : Result<Json>(text.error());
  if (!json) return defaults;
  const auto number = [&](const char* name, double least, double most) -> std::optional<float> {
    const Result<double> value = json->at(name).to_double(name);
    return value && *value >= least && *value <= most ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
  };
  defaults.temperature = number("temperature", 0, 2);
  defaults.top_p = number("top_p", 1e-9, 1);
  if (const Json& sample = json->at("do_sample"); sample.is_bool() && !sample.as_bool()) defaults.temperature = 0.0f;
  return defaults;
}

ServiceFacts facts_of(const LanguageModel& model, const EngineOptions& engine) {
  const std::string text =
      fmt::format("{}|{}|{}|{}", model.name(), model.fingerprint(), replay_mode_name(engine.replay), engine.keep_tokens);
  return {.model = model.name(),
          .fingerprint = fmt::format("fp_{:016x}", hash_bytes(text)),
          .shape = model.shape(),
          .context = engine.context,
          .max_batch = engine.max_batch,
          .queue_limit = engine.queue_limit,
          .pages = engine.pages,
          .page_tokens = model.layout().page_tokens,
          .pages_fingerprint = model.fingerprint(),
          .bounded_pages = engine.replay == ReplayMode::kFull};
}

class NoAnswers final : public TokenService {
 public:
  Result<RequestId> submit(Request, EventHandler) override {
    return unsupported("this server encodes pictures for a router and gives no answers: ask the router");
  }
  void cancel(RequestId) override {}
  void finish(RequestId, int64_t) override {}
};

// A folder that cannot be written costs what was learnt, no more.
void keep_calibration(const std::string& path, const LanguageModel& model, const HostSettings& settings,
                      SpeculationOptions& options) {
  const std::string key = fmt::format("{:016x}-{}", hash_bytes(model.fingerprint()), settings.spec_verify);
  options.temperatures = read_calibration(path, key);
  // Not by the engine's thread: a disk may be slow.
  const auto writing = std::make_shared<std::future<void>>();
  options.fitted = [path, key, writing](const Temperatures& fit) {
    *writing = std::async(std::launch::async, [path, key, fit] { static_cast<void>(write_calibration(path, key, fit)); });
  };
}

}  // namespace

Result<ReplayMode> parse_replay_mode(const std::string& name) {
  for (const ReplayMode mode : {ReplayMode::kOff, ReplayMode::kDecoder, ReplayMode::kFull}) {
    if (name == replay_mode_name(mode)) return mode;
  }
  return invalid_argument(fmt::format("--replay is one of off, decoder, full, not '{}'", name));
}

// The words were checked against the field's choices.
SpeculationOptions speculation_options(const HostSettings& settings) {
  SpeculationOptions options;
  options.mode = settings.spec == "off"  ? SpeculationMode::kOff
                 : settings.spec == "on" ? SpeculationMode::kOn
                                         : SpeculationMode::kAuto;
  options.max_draft = settings.spec_tokens;
  options.schedule = settings.spec_schedule == "fixed"   ? SpeculationSchedule::kFixed
                     : settings.spec_schedule == "async" ? SpeculationSchedule::kAsync
                                                         : SpeculationSchedule::kSync;
  options.lag = settings.spec_lag;
  options.verify = settings.spec_verify == "rejection" ? DraftVerification::kRejection : DraftVerification::kCoupled;
  return options;
}

Result<std::unique_ptr<Host>> Host::open(const HostSettings& settings, HostOptions options) {
  std::unique_ptr<Host> host(new Host());
  DI_TRY(const std::string model, resolve_model(settings.model));
  host->device_ = std::move(options.device);
  if (!host->device_) {
    DI_TRY(host->device_,
           open_device(settings.device, settings.threads, static_cast<int64_t>(double{settings.expert_memory} * 1e9)));
  }
  DI_TRY(host->tokenizer_, open_tokenizer(model));
  DI_TRY(host->model_,
         open_model(*host->device_, *host->tokenizer_, {model, settings.threads, options.progress, options.pictures_only}));
  if (settings.ranks > 1 && !options.pictures_only) {
    DI_TRY(host->ranked_, open_ranks(*host->device_, *host->model_, settings.ranks));
  }
  ImageLimits images;
  images.fetch = std::move(options.fetch_image);
  // Pictures are encoded where the weights are, beside the engine's steps.
  std::unique_ptr<Device> tower_device;
  if (!host->device_->reads_host_memory()) {
    DI_TRY(tower_device, open_device(host->device_->name(), settings.threads));
  }
  host->image_encoder_ =
      std::make_unique<ImageEncoder>(host->model_->shape(), host->model_->name(), std::move(images),
                                     local_tower(*host->model_, settings.threads, host->device_->isa(), std::move(tower_device)));
  host->open_recipe(model);
  EngineOptions engine;
  if (options.max_batch > 0) engine.max_batch = options.max_batch;
  if (options.queue_limit > 0) engine.queue_limit = options.queue_limit;
  engine.context = settings.context;
  engine.keep_tokens = settings.keep_tokens;
  DI_TRY(engine.replay, parse_replay_mode(settings.replay));
  host->remote_.metrics = std::move(options.metrics);
  if (options.pictures_only) {
    DI_CHECK_OK(host->refuse_answers(engine, std::move(options.pictures_share)));
    return host;
  }
  engine.clock = options.clock;
  engine.step_end = options.step_end;
  engine.pages_changed = options.pages_changed;
  engine.snapshot_every = settings.snapshot_every;
  // At most, taken when first needed: of a machine that serves large prompts a share worth minutes of turns.
  const int64_t physical = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), left = available_memory();
  engine.snapshot_bytes = (left > 0 ? std::min(physical, left) : physical) / kSnapshotShare;
  engine.speculation = speculation_options(settings);
  if (!options.state_folder.empty())
    keep_calibration(options.state_folder + "/drafts.json", *host->model_, settings, engine.speculation);
  DI_TRY(host->store_, HostStore::open(settings, options.store_folder, model));
  DI_CHECK_OK(host->open_engine(std::move(engine)));
  host->remote_.facts = facts_of(host->model(), host->engine_->options());
  host->engine_->start();
  return host;
}

Result<std::unique_ptr<Host>> Host::open_remote(const HostSettings& settings, HostOptions options, RemoteService remote) {
  std::unique_ptr<Host> host(new Host());
  DI_TRY(const std::string model, resolve_model(settings.model));
  DI_TRY(host->tokenizer_, open_tokenizer(model));
  if (host->tokenizer_->vocab_size() > remote.facts.shape.vocab) {
    return invalid_argument(
        fmt::format("the tokenizer of {} has {} tokens, the workers' model {} has {}: name the folder of their model with -m",
                    model, host->tokenizer_->vocab_size(), remote.facts.model, remote.facts.shape.vocab));
  }
  host->remote_ = std::move(remote);
  host->open_recipe(model);
  ImageLimits images;
  images.fetch = std::move(options.fetch_image);
  host->image_encoder_ = std::make_unique<ImageEncoder>(host->remote_.facts.shape, host->remote_.facts.model, std::move(images),
                                                        host->remote_.tower);
  return host;
}

// Routers compare facts: they are those of the engine that there would be.
Status Host::refuse_answers(const EngineOptions& options, std::function<double()> pictures_share) {
  DI_TRY(const EngineOptions resolved, resolve(*model_, options));
  remote_.service = std::make_unique<NoAnswers>();
  remote_.facts = facts_of(*model_, resolved);
  remote_.health = [] { return Status(); };
  remote_.leave = [] {};
  remote_.scale = [share = std::move(pictures_share)](std::string_view role) {
    if (!role.empty() && role != "encode") return ScaleSample();
    return ScaleSample{.workers = 1, .active_share = share ? share() : 0};
  };
  return {};
}

void Host::open_recipe(const std::string& model) {
  prompt_cache_ = std::make_unique<PromptCache>(PromptCacheLimits{});
  constraints_ = std::make_unique<Constraints>(*tokenizer_);
  defaults_ = read_generation_defaults(model);
}

// A store that nobody asked for does not keep the engine from starting.
Status Host::open_engine(EngineOptions options) {
  if (store_) {
    options.store = store_->options(model_->fingerprint(), !device_->reads_host_memory());
    auto engine = Engine::create(*device_, model(), options);
    if (engine) {
      engine_ = *std::move(engine);
      store_summary_ = store_->summary();
      return {};
    }
    if (store_->was_asked_for()) return engine.error();
    store_summary_ = "no KV store: " + engine.error().message;
    options.store = {};
  }
  DI_TRY(engine_, Engine::create(*device_, model(), options));
  return {};
}

Result<std::vector<TokenId>> Host::tokenize(std::string_view text, bool add_special_tokens, bool parse_special) const {
  if (!is_valid_utf8(text)) return invalid_argument("the text is not valid UTF-8");
  std::vector<TokenId> ids;
  const std::optional<TokenId> begin = tokenizer_->added_token(control::kBeginOfText);
  if (add_special_tokens && begin) ids.push_back(*begin);
  if (!parse_special) {
    tokenizer_->append_content(text, ids);
    return ids;
  }
  const std::vector<TokenId> rest = tokenizer_->encode(text);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

Host::Host() = default;

Host::~Host() {
  if (engine_) engine_->stop();
  remote_.service.reset();
}

}  // namespace deepinfer
