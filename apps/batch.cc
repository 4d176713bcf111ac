// deepinfer batch IN.jsonl -o OUT.jsonl: offline inference.
#include "server/batch.h"

#include <fmt/format.h>

#include <chrono>

#include "apps/commands.h"
#include "apps/terminal.h"

namespace deepinfer {
namespace {

struct BatchSettings {
  HostSettings host;
  std::string output;
  int32_t batch = 0;
  void visit(FieldVisitor visit) {
    visit({.name = "output",
           .target = &output,
           .help = "results; an existing file is continued",
           .value = "OUT.jsonl",
           .letter = 'o'});
    visit({.name = "batch",
           .target = &batch,
           .help = "requests that run at once, 0 = the engine's default",
           .value = "N",
           .min = 0,
           .max = 4096});
    host.visit(visit);
  }
};

class BatchCommand final : public Command {
 public:
  std::string name() const override { return "batch"; }
  std::string summary() const override { return "answer a file of requests in the OpenAI batch format"; }
  std::string examples() const override {
    return "  deepinfer batch examples/batch.jsonl -o out.jsonl\n  deepinfer batch in.jsonl -o out.jsonl   (again: goes on where "
           "it stopped)";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"IN.jsonl", "one request a line", &words_, 1, 1}}; }

  Result<int> run() override {
    if (settings_.output.empty()) return Error{ErrorCode::kInvalidArgument, "batch needs -o OUT.jsonl for its results"};
    if (settings_.output == "-" || words_[0] == "-")
      return invalid_argument("batch reads and writes files, so that it can go on where it stopped; - is none");
    std::atomic<bool>& interrupted = catch_interrupts();
    ProgressBar bar(words_[0]);
    DI_TRY(const auto host, Host::open(settings_.host, {.max_batch = settings_.batch}));
    const int64_t begin = monotonic_us();
    BatchOptions options{words_[0], settings_.output, now_seconds(), [&](int64_t done, int64_t total) { bar.show(done, total); }};
    DI_TRY(const BatchReport report, run_batch(*host, options, interrupted));
    bar.clear();
    const double seconds = static_cast<double>(monotonic_us() - begin) / 1e6;
    print_note(fmt::format("{} answered, {} with an error, {} kept; {} tokens in {:.1f} s ({:.0f} tokens/s)", report.answered,
                           report.failed, report.kept, report.completion_tokens, seconds,
                           static_cast<double>(report.completion_tokens) / seconds));
    if (!report.first_error.empty()) print_note(fmt::format("the first error: {}", report.first_error));
    if (!report.interrupted) return report.failed > 0 && report.answered + report.kept == 0 ? kExitFailed : kExitOk;
    print_note(fmt::format("interrupted; {} is whole, run the same command again to go on", settings_.output));
    return kExitInterrupted;
  }

 private:
  static int64_t now_seconds() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

  BatchSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_batch_command() { return std::make_unique<BatchCommand>(); }

}  // namespace deepinfer
