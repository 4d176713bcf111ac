// deepinfer eval SUITE: how well a model answers.
#include <fmt/format.h>

#include <algorithm>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/nearest.h"
#include "host/host.h"
#include "host/shipped_files.h"
#include "lab/eval/answer_text.h"
#include "lab/eval/runner.h"
#include "lab/eval/sandbox.h"

namespace deepinfer {
namespace {

constexpr int64_t kLineEveryUs = 10'000'000;  // progress where there is no terminal

struct EvalCommandSettings {
  HostSettings host;
  std::string data, output, kinds, threshold, think, body = "{}";
  std::string url, served_model, key_file, ca_file;
  std::string python = "/usr/bin/python3";
  int64_t limit = 0, max_tokens = 0;
  int32_t concurrency = 16, timeout = 600, tries = 8, python_seconds = 5;
  float temperature = 0;
  uint64_t seed = 0;
  bool json = false, unsafe = false;

  void visit(FieldVisitor visit) {
    visit({.name = "data",
           .target = &data,
           .help = "cases: a .jsonl(.zst), or a folder of them [tasks: models/eval]",
           .value = "F"});
    visit({.name = "output",
           .target = &output,
           .help = "a line for each finished case; an existing file is continued",
           .value = "OUT.jsonl",
           .letter = 'o'});
    visit({.name = "limit", .target = &limit, .help = "cases of each kind, 0 = all", .value = "N", .min = 0, .max = 1e9});
    visit({.name = "kinds", .target = &kinds, .help = "only these, separated by commas", .value = "A,B"});
    visit({.name = "threshold",
           .target = &threshold,
           .help = "smallest shares by kind, .toml or .json; exit code 1 when one is missed",
           .value = "F"});
    visit({.name = "concurrency", .target = &concurrency, .help = "cases asked at once", .value = "N", .min = 1, .max = 512});
    visit({.name = "max-tokens",
           .target = &max_tokens,
           .help = "of an answer, 0 = the suite's",
           .value = "N",
           .min = 0,
           .max = 1e9});
    visit(
        {.name = "think", .target = &think, .help = "thinking [as the suite has it]", .choices = {"off", "low", "high", "max"}});
    visit({.name = "seed", .target = &seed, .help = "of drawing, and of the order of choices", .value = "N"});
    visit({.name = "temperature", .target = &temperature, .help = "0 = greedy", .value = "T", .min = 0, .max = 2});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
    visit_server(visit);
    visit({.name = "python", .target = &python, .help = "of humaneval", .value = "FILE"});
    visit({.name = "python-seconds",
           .target = &python_seconds,
           .help = "processor time of an answer's program; four times as long in all",
           .value = "N",
           .min = 1,
           .max = 3600});
    visit({.name = "unsafe-no-sandbox",
           .target = &unsafe,
           .help = "humaneval: run answers even where the system permits no seccomp filter"});
    host.visit(visit);
  }

  void visit_server(FieldVisitor visit) {
    visit({.name = "url", .target = &url, .help = "ask this OpenAI-compatible server instead of a model here", .value = "URL"});
    visit({.name = "served-model", .target = &served_model, .help = "its model [the only one it has]", .value = "NAME"});
    visit({.name = "key-file", .target = &key_file, .help = "file that holds its key", .value = "F"});
    visit({.name = "ca-file", .target = &ca_file, .help = "certificates for https, PEM [the system's]", .value = "F"});
    visit(
        {.name = "timeout", .target = &timeout, .help = "seconds without a byte from it", .value = "N", .min = 1, .max = 86400});
    visit({.name = "tries", .target = &tries, .help = "of one case before it is given up", .value = "N", .min = 1, .max = 100});
    visit({.name = "body", .target = &body, .help = "members added to each request, null removes one", .value = "JSON"});
  }
};

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (const std::string_view word = trimmed(text.substr(0, end)); !word.empty()) out.emplace_back(word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// A bar on a terminal, else a line now and then.
class EvalProgressLine {
 public:
  explicit EvalProgressLine(const std::string& suite) : suite_(suite), bar_("eval " + suite), last_us_(monotonic_us()) {}

  void show(const EvalProgress& progress) {
    bar_.show(progress.done, progress.total);
    if (stderr_is_terminal() || monotonic_us() - last_us_ < kLineEveryUs) return;
    last_us_ = monotonic_us();
    const double share =
        progress.judged > 0 ? 100.0 * static_cast<double>(progress.right) / static_cast<double>(progress.judged) : 0;
    print_note(fmt::format("eval {}: {} of {}, {:.1f} % right", suite_, progress.done, progress.total, share));
  }
  void clear() { bar_.clear(); }

 private:
  std::string suite_;
  ProgressBar bar_;
  int64_t last_us_;
};

class EvalCommand final : public Command {
 public:
  std::string name() const override { return "eval"; }
  std::string summary() const override { return "measure answers: tasks, gsm8k, humaneval, aime, gpqa, hle"; }
  std::string examples() const override {
    return "  deepinfer eval tasks --limit 20\n"
           "  deepinfer eval gsm8k --data test.jsonl --think high -o gsm8k.jsonl   (again: goes on where it stopped)\n"
           "  deepinfer eval humaneval --data HumanEval.jsonl --url http://127.0.0.1:8080\n"
           "  deepinfer eval tasks --threshold thresholds.toml --json";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override {
    return {{"SUITE", "tasks, gsm8k, humaneval, aime, gpqa or hle", &words_, 1, 1}};
  }

  Result<int> run() override {
    DI_TRY(suite_, find_suite(words_[0]));
    DI_CHECK_OK(load());
    std::atomic<bool>& interrupted = catch_interrupts();
    DI_TRY(const EvalTools tools, open_tools(interrupted));
    DI_TRY(const auto target, open_target(interrupted));
    EvalProgressLine line(suite_->name);
    EvalRunOptions options{.concurrency = settings_.concurrency, .output = settings_.output, .settings = eval_};
    options.progress = [&](const EvalProgress& progress) { line.show(progress); };
    DI_TRY(const EvalReport report, run_eval(*suite_, cases_, *target, tools, options, interrupted));
    line.clear();
    DI_CHECK_OK(write_out(settings_.json ? report.figures().json(DEEPINFER_VERSION) : report.table()));
    return conclude(report);
  }

 private:
  // Everything that can be refused before a model is there.
  Status load() {
    eval_ = {.think = settings_.think,
             .max_tokens = settings_.max_tokens,
             .temperature = settings_.temperature,
             .seed = settings_.seed};
    const Result<Json> body = Json::parse(settings_.body);
    if (!body || !body->is_object()) return invalid_argument("--body must be a JSON object, for example '{\"top_k\": 1}'");
    eval_.body = *body;
    std::string data = settings_.data;
    if (data.empty() && suite_->name == "tasks") data = find_shipped("models/eval");
    if (data.empty()) return invalid_argument(fmt::format("eval {} needs --data FILE with its cases", suite_->name));
    DI_TRY(std::vector<EvalCase> all, load_cases(*suite_, data, eval_));
    std::vector<std::string> known = {"all"};
    for (const EvalCase& item : all) {
      if (known.back() != item.kind) known.push_back(item.kind);
    }
    const std::vector<std::string> kinds = split_list(settings_.kinds);
    DI_TRY(cases_, select_cases(std::move(all), kinds, settings_.limit));
    if (settings_.threshold.empty()) return {};
    DI_TRY(thresholds_, read_thresholds(settings_.threshold, suite_->name));
    for (const auto& [kind, share] : thresholds_) {
      if (std::find(known.begin(), known.end(), kind) != known.end()) continue;
      return invalid_argument(fmt::format("{}: no case is of kind '{}'{}", settings_.threshold, kind, did_you_mean(kind, known)));
    }
    if (!kinds.empty()) {
      std::erase_if(thresholds_,
                    [&](const auto& entry) { return std::find(kinds.begin(), kinds.end(), entry.first) == kinds.end(); });
    }
    return {};
  }

  Result<EvalTools> open_tools(const std::atomic<bool>& interrupted) {
    EvalTools tools;
    if (!suite_->needs_python) return tools;
    SandboxOptions options;
    options.python = settings_.python;
    options.cancelled = &interrupted;
    options.allow_unsafe = settings_.unsafe;
    options.cpu_seconds = settings_.python_seconds;
    options.wall_us = 4'000'000 * options.cpu_seconds;
    DI_TRY(sandbox_, Sandbox::open(options));
    print_note("answers run in a sandbox: " + sandbox_->description());
    tools.run_python = [this](const std::string& program) { return sandbox_->run(program); };
    return tools;
  }

  Result<std::unique_ptr<EvalTarget>> open_target(const std::atomic<bool>& interrupted) {
    if (settings_.url.empty()) {
      ProgressBar bar("loading");
      DI_TRY(host_, Host::open(settings_.host, {.progress = [&](int64_t done, int64_t total) { bar.show(done, total); },
                                                .max_batch = settings_.concurrency}));
      return make_local_target(*host_);
    }
    UrlTargetOptions options{.url = settings_.url, .model = settings_.served_model, .ca_file = settings_.ca_file};
    options.timeout_us = int64_t{settings_.timeout} * 1'000'000;
    options.tries = settings_.tries;
    if (!settings_.key_file.empty()) {
      DI_TRY(const std::string key, read_file(settings_.key_file));
      options.key = trimmed(key);
      if (options.key.empty() || options.key.find_first_of("\r\n") != std::string::npos) {
        return corrupt(fmt::format("{}: must hold one line with the key", settings_.key_file));
      }
    }
    return open_url_target(options, interrupted);
  }

  int conclude(const EvalReport& report) {
    const std::string go_on =
        settings_.output.empty() ? "without -o nothing of it is kept" : "run the same command again to go on";
    if (!suite_->note.empty()) print_note(suite_->note);
    if (report.interrupted) {
      print_note("interrupted; " + go_on);
      return kExitInterrupted;
    }
    if (report.stopped) {
      print_error(*report.stopped);
      return kExitFailed;
    }
    const std::vector<std::string> below = missed(thresholds_, report);
    for (const std::string& line : below) print_note(fmt::format("{} missed: {}", settings_.threshold, line));
    const int64_t errors = report.all().errors;
    if (errors > 0) print_note(fmt::format("{} cases have no answer; {}", errors, go_on));
    return below.empty() && errors == 0 ? kExitOk : kExitFailed;
  }

  EvalCommandSettings settings_;
  std::vector<std::string> words_;
  const EvalSuite* suite_ = nullptr;
  EvalSettings eval_;
  std::vector<EvalCase> cases_;
  EvalThresholds thresholds_;
  std::unique_ptr<Sandbox> sandbox_;
  std::unique_ptr<Host> host_;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() { return std::make_unique<EvalCommand>(); }

}  // namespace deepinfer
