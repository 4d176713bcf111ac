// deepinfer plan: does it fit, how fast, which split, at what cost.
#include "lab/plan.h"

#include "apps/commands.h"
#include "apps/terminal.h"

namespace deepinfer {
namespace {

struct PlanSettings {
  PlanOptions options;
  bool json = false, no_measure = false;
  void visit(FieldVisitor visit) {
    PlanOptions& o = options;
    visit({.name = "model",
           .target = &o.model,
           .help = "folder with a checkpoint or its config.json alone, random:SPEC [the published release]",
           .value = "DIR",
           .letter = 'm'});
    visit({.name = "device",
           .target = &o.device,
           .help = "this machine's processor (this, cpu:KERNELS), h200, b200, gb200, or a JSON file (docs/plan.md)",
           .value = "DEVICE"});
    visit({.name = "gpus", .target = &o.gpus, .help = "cards of that kind", .value = "N", .min = 1, .max = 4096});
    visit({.name = "threads",
           .target = &o.threads,
           .help = "compute threads, 0 = all processors",
           .value = "N",
           .min = 0,
           .max = 1024});
    visit({.name = "streams",
           .target = &o.streams,
           .help = "conversations at once, on all devices",
           .value = "N",
           .min = 1,
           .max = 1 << 22});
    visit({.name = "prompt", .target = &o.prompt, .help = "tokens of a prompt", .value = "N", .min = 1, .max = 1 << 30});
    visit({.name = "answer", .target = &o.answer, .help = "tokens of an answer", .value = "N", .min = 1, .max = 1 << 30});
    visit({.name = "context",
           .target = &o.context,
           .help = "tokens a conversation may have, 0 = prompt and answer",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
    visit({.name = "cached",
           .target = &o.cached,
           .help = "of prompts that the cache has",
           .value = "PERCENT",
           .min = 0,
           .max = 99.9});
    visit(
        {.name = "drafts", .target = &o.drafts, .help = "verified for each stream in a step", .value = "N", .min = 0, .max = 7});
    visit({.name = "accepted",
           .target = &o.accepted,
           .help = "with --drafts: tokens that come of a step",
           .value = "N",
           .min = 1,
           .max = 8});
    visit({.name = "target-tokens-per-user",
           .target = &o.per_user,
           .help = "as many streams as each still get so many tokens a second",
           .value = "N",
           .min = 0,
           .max = 1e6});
    visit({.name = "price-per-hour",
           .target = &o.price,
           .help = "of a GPU or this machine, in any currency; without it hours are told",
           .value = "PRICE",
           .min = 0,
           .max = 1e6});
    visit({.name = "expert-memory",
           .target = &o.expert_memory,
           .help = "memory for routed experts on a processor, 0 = for all, or what is free if that is less",
           .value = "GB",
           .min = 0,
           .max = 1e6});
    visit({.name = "host-memory",
           .target = &o.host_memory,
           .help = "memory beside GPUs, 0 = not told",
           .value = "GB",
           .min = 0,
           .max = 1e6});
    visit({.name = "disk",
           .target = &o.disk,
           .help = "how fast the checkpoint is read, 0 = measured where it lies",
           .value = "GB/s",
           .min = 0,
           .max = 1e6});
    visit({.name = "no-measure", .target = &no_measure, .help = "of this machine tell what fits only"});
    visit({.name = "explain",
           .target = &o.explain,
           .help = "every formula with its numbers, and where published figures are from"});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
  }
};

class PlanCommand final : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string summary() const override { return "does it fit, how fast, which split, at what cost"; }
  std::string examples() const override {
    return "  deepinfer plan                                          # the release on this machine, nothing downloaded\n"
           "  deepinfer plan -m models/tiny-v41 --streams 8\n"
           "  deepinfer plan --device h200 --gpus 64 --streams 4096 --prompt 77000 --answer 720 --cached 96\n"
           "  deepinfer plan --device gb200 --gpus 64 --target-tokens-per-user 230 --drafts 5 --accepted 3.51\n"
           "  deepinfer plan --device h200 --gpus 8 --price-per-hour 2.5 --explain";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }

  Result<int> run() override {
    settings_.options.measure = !settings_.no_measure;
    DI_TRY(const PlanReport plan, make_plan(settings_.options));
    DI_CHECK_OK(write_out(settings_.json ? plan.figures.json(DEEPINFER_VERSION) : plan.text));
    if (plan.problem.empty()) return kExitOk;
    return exhausted("does not fit: " + plan.problem);
  }

 private:
  PlanSettings settings_;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace deepinfer
