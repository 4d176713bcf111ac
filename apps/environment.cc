#include "apps/environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.h"

namespace deepinfer {
namespace {

constexpr std::string_view kPrefix = "DEEPINFER_";
const std::array<std::string, 6> kKnown = {
    "DEEPINFER_ACCELERATOR",
    "DEEPINFER_ENABLE_MTP_VARLEN",
    "DEEPINFER_USE_NEXTN_DECODE",
    "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE",
    "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS",
    "DEEPINFER_ISA",
};

void read_accelerator(const std::string& value, Environment& out) {
  if (value == "cpu") return out.settings.push_back({kKnown[0], "device", "cpu"});
  if (value == "nvidia") return out.settings.push_back({kKnown[0], "device", "cuda:0"});
  if (value == "ascend") {
    out.errors.push_back(fmt::format("{}={}: this build has no {} backend; use cpu or nvidia", kKnown[0], value, value));
  } else {
    out.errors.push_back(fmt::format("{}={}: known accelerators are cpu, nvidia, ascend", kKnown[0], value));
  }
}

void read_truncation(const std::string& value, Environment& out) {
  out.settings.push_back({kKnown[3], "replay", value == "compact" ? "decoder" : "off"});
}

void read_variable(const std::string& name, const std::string& value, Environment& out) {
  if (name == kKnown[0]) return read_accelerator(value, out);
  if (name == kKnown[3]) return read_truncation(value, out);
  if (name == kKnown[4]) return out.settings.push_back({name, "keep-tokens", value});
  if (name == kKnown[5]) return void(out.isa = value);
  // Confidence-scheduled verification, or all drafts of every step.
  if (name == kKnown[1]) return out.settings.push_back({name, "spec-schedule", value == "0" ? "fixed" : "sync"});
  if (name == kKnown[2]) return out.settings.push_back({name, "spec-tokens", value});
  out.notes.push_back(
      fmt::format("unknown environment variable {}{}; known are {}", name, did_you_mean(name, kKnown), fmt::join(kKnown, ", ")));
}

std::string user_directory(const char* variable, const char* below_home) {
  const char* folder = std::getenv(variable);
  if (folder && *folder == '/') return std::string(folder) + "/deepinfer";
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return std::string(home) + below_home + "/deepinfer";
  return "";
}

}  // namespace

Environment read_environment() {
  Environment out;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    read_variable(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), out);
  }
  return out;
}

std::string cache_directory() { return user_directory("XDG_CACHE_HOME", "/.cache"); }

std::string state_directory() { return user_directory("XDG_STATE_HOME", "/.local/state"); }

}  // namespace deepinfer
