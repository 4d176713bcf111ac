// deepinfer verify KIND: proves the program's guarantees on this machine.
#include <fmt/format.h>

#include <array>

#include "apps/cache_store.h"
#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/nearest.h"
#include "lab/verify_determinism.h"

namespace deepinfer {
namespace {

const std::array<std::string, 2> kKinds = {"determinism", "cache"};

struct VerifySettings {
  HostSettings host;
  bool quick = false, full = false, bisect = false, json = false;
  std::string store, axis, capture = "determinism-capture.json";
  void visit(FieldVisitor visit) {
    visit({.name = "quick", .target = &quick, .help = "a covering set of cells, the default"});
    visit({.name = "full", .target = &full, .help = "every cell, longer prompts and answers"});
    visit({.name = "axis", .target = &axis, .help = "this axis only", .value = "NAME"});
    visit({.name = "bisect", .target = &bisect, .help = "of what differs, find the first layer, operation and row"});
    visit({.name = "capture", .target = &capture, .help = "file for the request that --bisect found", .value = "FILE"});
    visit({.name = "store",
           .target = &store,
           .help = "of cache: folder of the KV store [in the XDG cache folder]",
           .value = "DIR"});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
    visit({.name = "model",
           .target = &host.model,
           .help = "checkpoint folder, scripted:FILE or random:SPEC [the shipped model]",
           .value = "DIR",
           .letter = 'm'});
    visit({.name = "device", .target = &host.device, .help = "where it runs: cpu or cuda:N", .value = "DEVICE"});
    visit({.name = "context",
           .target = &host.context,
           .help = "tokens of one conversation",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
    visit({.name = "keep-tokens",
           .target = &host.keep_tokens,
           .help = "suffix the decoder layers see with replay, 0 = the window",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
  }
};

class VerifyCommand final : public Command {
 public:
  std::string name() const override { return "verify"; }
  std::string summary() const override { return "prove the guarantees on this machine: determinism, the KV store"; }
  std::string examples() const override {
    return "  deepinfer verify determinism\n  deepinfer verify determinism --full --json\n"
           "  deepinfer verify determinism --axis company --bisect\n"
           "  deepinfer verify cache --store DIR\n"
           "  deepinfer verify determinism -m DIR --keep-tokens 140";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"KIND", "determinism or cache", &words_, 1, 1}}; }

  Result<int> run() override {
    if (words_[0] == kKinds[1]) return look_into_store("verify", {.folder = settings_.store, .json = settings_.json});
    if (words_[0] != kKinds[0]) {
      return invalid_argument(
          fmt::format("verify {}: built are determinism, cache{}", words_[0], did_you_mean(words_[0], kKinds)));
    }
    if (settings_.quick && settings_.full) return invalid_argument("--quick and --full exclude each other");
    ProgressBar bar("comparing");
    DI_TRY(const DeterminismReport report, verify_determinism({.host = settings_.host,
                                                               .full = settings_.full,
                                                               .axis = settings_.axis,
                                                               .bisect = settings_.bisect,
                                                               .capture = settings_.capture,
                                                               .progress = [&](size_t done, size_t total, const std::string&) {
                                                                 bar.show(static_cast<int64_t>(done),
                                                                          static_cast<int64_t>(total));
                                                               }}));
    bar.clear();
    DI_CHECK_OK(write_out(settings_.json ? json(report) : report.table() + verdict(report)));
    return report.holds() ? kExitOk : kExitFailed;
  }

 private:
  std::string verdict(const DeterminismReport& report) const {
    return fmt::format("{} in {:.1f} s\n", report.holds() ? "every promised cell holds" : "NOT every promised cell holds",
                       report.seconds);
  }
  std::string json(const DeterminismReport& report) const {
    Json out = Json::object({{"command", "verify determinism"}, {"version", DEEPINFER_VERSION}});
    const Json found = report.json();
    for (const auto& [key, value] : found.members()) out.set(key, value);
    return out.dump() + '\n';
  }

  VerifySettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace deepinfer
