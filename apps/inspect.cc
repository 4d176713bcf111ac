// deepinfer inspect DIR: what a checkpoint holds, and what is missing, extra or wrong.
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "lab/inspect.h"

namespace deepinfer {
namespace {

struct InspectSettings {
  bool tensors = false;
  bool json = false;
  void visit(FieldVisitor visit) {
    visit({.name = "tensors", .target = &tensors, .help = "list every tensor"});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
  }
};

class InspectCommand final : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override { return "look into a checkpoint: tensors, types, sizes, what is missing or extra"; }
  std::string examples() const override {
    return "  deepinfer inspect models/tiny-v41\n  deepinfer inspect DIR --tensors | grep layers.0\n  deepinfer inspect DIR "
           "--json";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"DIR", "folder with config.json and safetensors", &words_, 1, 1}}; }

  Result<int> run() override {
    ProgressBar bar("checking values");
    DI_TRY(const InspectReport report,
           inspect_checkpoint(words_[0], [&](int64_t done, int64_t total) { bar.show(done, total); }));
    bar.clear();
    DI_CHECK_OK(write_out(settings_.json ? json(report) : report.text(settings_.tensors)));
    if (report.complete()) return kExitOk;
    if (settings_.json) return kExitFailed;
    return corrupt(fmt::format("{}: {} problem(s), listed above; the checkpoint does not fit its config.json", words_[0],
                               report.problems().size()));
  }

 private:
  std::string json(const InspectReport& report) const {
    Json out = Json::object({{"command", "inspect"}, {"version", DEEPINFER_VERSION}});
    const Json found = report.json(settings_.tensors);
    for (const auto& [key, value] : found.members()) out.set(key, value);
    return out.dump() + '\n';
  }

  InspectSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() { return std::make_unique<InspectCommand>(); }

}  // namespace deepinfer
