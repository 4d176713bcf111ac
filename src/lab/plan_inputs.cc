#include "lab/plan_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "cpu/cpu_device.h"
#include "host/open_device.h"
#include "lab/measure_machine.h"
#include "model/config.h"
#include "model/random_checkpoint.h"
#include "model/weights.h"

namespace deepinfer {
namespace {

constexpr std::string_view kRandom = "random:";
// The published checkpoint: its primes make tables of 384,006,168 and 384,016,682 rows.
constexpr std::string_view kRelease = "v41?engram_rows=384000000&vision=32";

CheckpointBytes bytes_of(const ModelShape& shape) {
  CheckpointBytes out;
  for (const TensorSpec& tensor : expected_tensors(shape)) {
    auto bytes = static_cast<double>(tensor_type_bytes(tensor.type));
    for (const int64_t n : tensor.shape) bytes *= static_cast<double>(n);
    const auto has = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    const bool draft = tensor.name.starts_with("mtp."), vision = tensor.name.starts_with("vision.") || has("aligner.");
    double& part = has(".experts.")                               ? (draft ? out.draft_experts : out.experts)
                   : has(".engram.embed.") || has("embed.weight") ? out.tables
                   : tensor.name == "head.weight"                 ? out.head
                   : draft                                        ? out.draft
                   : vision || tensor.name.starts_with("image_")  ? out.vision
                                                                  : out.dense;
    part += bytes;
  }
  return out;
}

// A folder with any of them is a checkpoint, and what is wrong with it is told.
bool holds_weights(const std::string& folder) {
  const Result<std::vector<std::string>> names = list_directory(folder);
  return names && std::any_of(names->begin(), names->end(), [](const std::string& n) { return n.ends_with(".safetensors"); });
}

// Experts over several devices cannot be judged without the rates of their exchange.
Status check_links(const PlanOptions& options, const Hardware& hardware) {
  const char* missing = options.gpus > 1 && hardware.node > 1 && hardware.node_send == 0 ? "machine_link_gb_s"
                        : options.gpus > hardware.node && hardware.send == 0             ? "network_gb_s"
                                                                                         : nullptr;
  if (!missing) return {};
  return invalid_argument(fmt::format("--gpus {}: {} does not say {}, the rate of their exchange; {} of them are in one machine",
                                      options.gpus, options.device, missing, hardware.node));
}

}  // namespace

Result<PlanModel> open_plan_model(const std::string& name) {
  PlanModel out{.name = name.empty() ? "release" : name};
  if (name.starts_with(kRandom) || name.empty() || name == "release" || name == "v41") {
    const bool random = name.starts_with(kRandom);
    DI_TRY(RandomSpec spec, parse_random_spec(random ? std::string_view(name).substr(kRandom.size()) : kRelease));
    out.shape = std::move(spec.shape);
    out.in_memory = random;
  } else {
    const bool folder = is_directory(name);
    const std::string file = folder ? join_path(name, "config.json") : name;
    Result<std::string> text = read_file(file);
    if (!text) {
      return not_found(fmt::format("{}: no such model; -m takes a folder or its config.json, random:SPEC or release", name));
    }
    DI_TRY(out.shape, parse_model_config(*text, file));
    if (folder && holds_weights(name)) {
      DI_TRY(out.files, Checkpoint::open(name));
    }
  }
  out.bytes = bytes_of(out.shape);
  return out;
}

Result<Hardware> open_plan_hardware(const PlanOptions& options) {
  if (const Hardware* card = find_card(options.device)) return *card;
  const bool here = options.device == "this" || options.device == "cpu" || options.device.starts_with("cpu:");
  if (here && options.gpus > 1)
    return invalid_argument(fmt::format("--gpus {} is of a card: --device h200, b200, gb200 or a file", options.gpus));
  if (here && !options.measure) return unmeasured_processor();
  if (here) {
    DI_TRY(const auto device, make_cpu_device({.threads = options.threads, .isa = cpu_kernels_of(options.device)}));
    return measure_processor(device->isa(), device->parallelism(), {.quick = true});
  }
  Result<std::string> text = read_file(options.device);
  if (!text) {
    return not_found(
        fmt::format("--device {}: no such card or file; it is this, h200, b200, gb200 or a JSON file", options.device));
  }
  DI_TRY(Hardware described, parse_hardware(*text, options.device));
  DI_CHECK_OK(check_links(options, described));
  return described;
}

}  // namespace deepinfer
