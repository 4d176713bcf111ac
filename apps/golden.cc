// deepinfer golden PATH...: runs golden case files and folders.
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "host/shipped_files.h"
#include "lab/golden.h"

namespace deepinfer {
namespace {

struct GoldenSettings {
  std::string tokenizer, device = "cpu";
  bool verbose = false;
  void visit(FieldVisitor visit) {
    visit({.name = "tokenizer",
           .target = &tokenizer,
           .help = "tokenizer.json(.zst) of the recipe cases [the release's]",
           .value = "FILE"});
    visit({.name = "device", .target = &device, .help = "where model cases run: cpu or cuda:N", .value = "DEVICE"});
    visit({.name = "verbose", .target = &verbose, .help = "say what is left out and why", .letter = 'v'});
  }
};

class GoldenCommand final : public Command {
 public:
  std::string name() const override { return "golden"; }
  std::string summary() const override { return "run golden case files (.jsonl, .jsonl.zst) and folders"; }
  std::string examples() const override {
    return "  deepinfer golden tests/golden\n  deepinfer golden cases.jsonl.zst --tokenizer DIR/tokenizer.json";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"PATH", "case files and folders", &paths_, 1, 1000}}; }

  Result<int> run() override {
    std::string tokenizer = settings_.tokenizer;
    if (tokenizer.empty()) tokenizer = find_shipped("models/tokenizer/deepseek_v41_tokenizer.json.zst");
    GoldenCounts sum;
    for (const std::string& path : paths_) {
      DI_TRY(const GoldenCounts counts,
             run_golden(path,
                        {.tokenizer = tokenizer, .device = settings_.device, .say = settings_.verbose ? print_note : nullptr}));
      sum.add(counts);
    }
    std::string out;
    for (const std::string& failure : sum.failures) out += "FAILED " + failure + '\n';
    if (sum.left_out > 0) out += fmt::format("{} left out\n", sum.left_out);
    out += fmt::format("{} passed, {} failed\n", sum.passed, sum.failed);
    DI_CHECK_OK(write_out(out));
    return sum.failed == 0 && sum.passed > 0 ? kExitOk : kExitFailed;
  }

 private:
  GoldenSettings settings_;
  std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<Command> make_golden_command() { return std::make_unique<GoldenCommand>(); }

}  // namespace deepinfer
