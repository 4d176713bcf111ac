// deepinfer bench KIND: measures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/nearest.h"
#include "host/host.h"
#include "lab/bench_cache.h"
#include "lab/bench_engine.h"
#include "lab/bench_grammar.h"
#include "lab/bench_load.h"
#include "lab/bench_model.h"
#include "lab/bench_ops.h"
#include "lab/bench_recipe.h"
#include "lab/bench_router.h"
#include "lab/bench_serve.h"
#include "lab/bench_speculation.h"
#include "lab/bench_tokenizer.h"
#include "lab/cache_trace.h"

namespace deepinfer {
namespace {

const std::array<std::string, 10> kKinds = {"tokenizer", "recipe", "ops",   "decode",  "prefill",
                                            "engine",    "cache",  "serve", "grammar", "router"};

struct BenchSettings {
  // The benches' prompts are ids without sense, which nobody can draft: speculation has a bench of its own.
  BenchSettings() { host.spec = "off"; }
  HostSettings host;
  bool json = false;
  std::string tokenizer, data, trace, only;
  bool list = false;
  int32_t tokens = 128;
  int32_t repeats = 0;
  int32_t repeats_or(int32_t usual) const { return repeats > 0 ? repeats : usual; }
  int32_t streams = 0;
  bool schema = false;
  bool spec_sweep = false;
  std::string spec_text = "all";
  float spec_tokens_per_step = 0;
  void visit(FieldVisitor visit) {
    host.visit(visit);
    visit({.name = "json", .target = &json, .help = "one JSON object"});
    visit({.name = "tokenizer",
           .target = &tokenizer,
           .help = "tokenizer.json(.zst) of bench tokenizer, recipe and grammar [the release's]",
           .value = "FILE"});
    visit({.name = "data", .target = &data, .help = "schemas with instances, of bench grammar", .value = "DIR"});
    visit(
        {.name = "trace",
         .target = &trace,
         .help =
             "recorded traffic, of bench router; of bench cache: prompts replayed against the prefix index, LRU and the optimum",
         .value = "FILE"});
    visit({.name = "list", .target = &list, .help = "bench grammar: print what was refused or wrong, and the slowest masks"});
    visit({.name = "tokens", .target = &tokens, .help = "of each answer", .value = "N", .min = 2, .max = 1 << 20});
    visit({.name = "streams",
           .target = &streams,
           .help = "of bench decode at once, 0 = 1, 8 and 32; of bench serve, 0 = 256",
           .value = "N",
           .min = 0,
           .max = 4096});
    visit({.name = "spec-tokens-per-step",
           .target = &spec_tokens_per_step,
           .help = "with --spec-sweep: a drafter that was told the answers and gives so many tokens a step; 0 = the model's own",
           .value = "N",
           .min = 0,
           .max = 6});
    visit({.name = "only", .target = &only, .help = "bench ops: rows whose names have this in them", .value = "TEXT"});
    visit({.name = "schema", .target = &schema, .help = "bench decode: also answers that are held to a JSON Schema, in turns"});
    visit({.name = "spec-sweep",
           .target = &spec_sweep,
           .help = "bench decode: speculation off, 1 to 5 drafts, every schedule; a quarter of an hour"});
    visit({.name = "spec-text",
           .target = &spec_text,
           .help = "of --spec-sweep which texts",
           .choices = {"all", "easy", "hard", "adversarial", "mixed"}});
    visit({.name = "repeats",
           .target = &repeats,
           .help = "runs of which the best counts, 0 = 3; of --spec-sweep rounds of which the median counts, 0 = 5, or 3 of a "
                   "told drafter",
           .value = "N",
           .min = 0,
           .max = 1000});
  }
};

class BenchCommand final : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string summary() const override { return fmt::format("measure: {}", fmt::join(kKinds, ", ")); }
  std::string examples() const override {
    return "  deepinfer bench tokenizer\n  deepinfer bench recipe\n  deepinfer bench decode --json\n  deepinfer bench decode "
           "--schema\n  deepinfer bench decode --spec-sweep --json\n  deepinfer bench prefill "
           "--threads 1\n"
           "  deepinfer bench cache --store /mnt/ssd --json\n  deepinfer bench cache --trace conversation_trace.jsonl.zst\n  "
           "deepinfer bench engine --json\n  deepinfer bench serve --json\n  "
           "deepinfer bench router --trace conversation_trace.jsonl.zst\n"
           "  deepinfer bench decode -m \"random:v41?layers=2&experts=12&hidden=512\"";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"KIND", fmt::format("{}", fmt::join(kKinds, ", ")), &words_, 1, 1}}; }

  Result<int> run() override {
    const std::string& kind = words_[0];
    FigureReport report("bench " + kind);
    if (kind == "tokenizer") {
      DI_CHECK_OK(bench_tokenizer({.tokenizer = settings_.tokenizer}, report));
    } else if (kind == "recipe") {
      DI_CHECK_OK(bench_recipe({.tokenizer = settings_.tokenizer}, report));
    } else if (kind == "ops") {
      DI_CHECK_OK(bench_ops({.device = settings_.host.device,
                             .threads = settings_.host.threads,
                             .repeats = settings_.repeats_or(3),
                             .only = settings_.only},
                            report));
    } else if (kind == "grammar") {
      DI_CHECK_OK(bench_grammar({.tokenizer = settings_.tokenizer, .data = settings_.data, .list = settings_.list}, report));
    } else if (kind == "router") {
      DI_CHECK_OK(bench_router({.program = join_path(executable_directory(), "deepinfer"), .trace = settings_.trace}, report));
    } else if (kind == "serve") {
      BenchServeOptions options{.program = join_path(executable_directory(), "deepinfer")};
      if (settings_.streams > 0) options.streams = settings_.streams;
      DI_CHECK_OK(bench_serve(options, report));
    } else if (kind == "cache" && !settings_.trace.empty()) {
      DI_CHECK_OK(bench_cache_trace(settings_.trace, report));
    } else if (kind == "cache") {
      HostSettings quiet = settings_.host;
      quiet.store = "off";
      DI_TRY(const auto host, Host::open(quiet, {}));
      const std::string folder = settings_.host.store.empty() ? cache_directory() : settings_.host.store;
      if (folder.empty() || folder == "off")
        return invalid_argument("bench cache needs a folder on the disk to measure: --store DIR");
      DI_CHECK_OK(bench_cache(*host, {.folder = folder, .repeats = settings_.repeats_or(3)}, report));
    } else if (kind == "decode" || kind == "prefill" || kind == "engine") {
      ProgressBar bar("loading");
      DI_TRY(const auto host,
             Host::open(settings_.host, {.progress = [&](int64_t done, int64_t total) { bar.show(done, total); }}));
      bar.clear();
      if (kind == "engine") {
        BenchEngineOptions options{.repeats = settings_.repeats_or(3)};
        if (settings_.streams > 0) options.streams = {settings_.streams};
        DI_CHECK_OK(bench_engine(*host, options, report));
        return finish_with(write_out(settings_.json ? report.json(DEEPINFER_VERSION) : report.table()));
      }
      BenchModelOptions options;
      options.tokens = settings_.tokens;
      options.repeats = settings_.repeats_or(3);
      options.schema = settings_.schema;
      if (settings_.streams > 0) options.streams = {settings_.streams};
      if (settings_.spec_sweep && kind == "decode") {
        BenchSpeculationOptions sweep{.text = settings_.spec_text,
                                      .rounds = settings_.repeats_or(settings_.spec_tokens_per_step > 0 ? 3 : 5),
                                      .tokens_per_step = double{settings_.spec_tokens_per_step}};
        sweep.progress = [](size_t done, size_t total, const std::string& what) {
          fmt::print(stderr, "sweep {} of {}: {}\n", done + 1, total, what);
        };
        if (settings_.streams > 0) sweep.streams = {settings_.streams};
        DI_CHECK_OK(bench_speculation(*host, sweep, report));
        return finish_with(write_out(settings_.json ? report.json(DEEPINFER_VERSION) : report.table()));
      }
      DI_CHECK_OK(kind == "decode" ? bench_decode(*host, options, report) : bench_prefill(*host, options, report));
      if (kind == "decode") DI_CHECK_OK(bench_load(*host, report));
    } else {
      return invalid_argument(fmt::format("bench {}: built are {}{}", kind, fmt::join(kKinds, ", "), did_you_mean(kind, kKinds)));
    }
    return finish_with(write_out(settings_.json ? report.json(DEEPINFER_VERSION) : report.table()));
  }

 private:
  BenchSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace deepinfer
