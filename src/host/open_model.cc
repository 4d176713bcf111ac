#include "host/open_model.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/thread_pool.h"
#include "cpu/cpu_device.h"
#include "model/config.h"
#include "model/random_checkpoint.h"
#include "model/ranked_model.h"
#include "model/script.h"
#include "model/scripted_model.h"
#include "model/v41_model.h"
#include "model/weights.h"
#include "recipe/control_tokens.h"
#include "text/token_map.h"

namespace deepinfer {

namespace {

constexpr std::string_view kScripted = "scripted:";
constexpr std::string_view kRandom = "random:";

Result<std::unique_ptr<LanguageModel>> open_scripted(const std::string& path, const Tokenizer& tokenizer) {
  DI_TRY(const std::string text, read_file(path));
  ScriptTokens tokens;
  tokens.vocab = tokenizer.vocab_size();
  tokens.eos = tokenizer.token_id(control::kEndOfText).value_or(tokens.eos);
  tokens.tokenize = [&](std::string_view reply) { return tokenizer.encode(reply); };
  tokens.byte_token = [&](uint8_t byte) {
    const char c = static_cast<char>(byte);
    return tokenizer.token_id({&c, 1}).value_or(0);
  };
  DI_TRY(Script script, parse_script(text, path, tokens));
  return std::unique_ptr<LanguageModel>(std::make_unique<ScriptedModel>(std::move(script)));
}

Error no_tower(const std::string& name) {
  return invalid_argument(
      fmt::format("{} has no vision tower: a worker that encodes pictures needs a checkpoint with one", name));
}

Result<std::unique_ptr<LanguageModel>> open_checkpoint(Device& device, std::string name,
                                                       std::shared_ptr<const Checkpoint> checkpoint, const Tokenizer& tokenizer,
                                                       const LoadProgress& progress, bool pictures_only) {
  V41Options options;
  options.pictures_only = pictures_only;
  options.name = std::move(name);
  DI_TRY(options.shape, parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
  if (tokenizer.vocab_size() > options.shape.vocab) {
    return invalid_argument(
        fmt::format("{}: the tokenizer has {} tokens, config.json says vocab_size {}; they do not belong together", options.name,
                    tokenizer.vocab_size(), options.shape.vocab));
  }
  if (pictures_only && !options.shape.vision) return no_tower(options.name);
  if (!options.shape.engram_layers.empty() && !pictures_only) {
    DI_TRY(TokenMap map, make_token_map(tokenizer, options.shape.vocab));
    if (map.num_classes != options.shape.engram_compressed_vocab) {
      return invalid_argument(
          fmt::format("{}: the tokenizer has {} word classes, config.json says {}; they do not belong together", options.name,
                      map.num_classes, options.shape.engram_compressed_vocab));
    }
    options.token_map = std::move(map.class_of);
  }
  DI_TRY(options.weights,
         bind_weights(std::move(checkpoint), options.shape, {.pictures_only = pictures_only, .progress = progress}));
  options.progress = progress;
  DI_TRY(std::unique_ptr<V41Model> model, V41Model::create(device, std::move(options)));
  return std::unique_ptr<LanguageModel>(std::move(model));
}

std::string folder_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || path.size() == 1 ? path : path.substr(slash + 1);
}

}  // namespace

Result<std::unique_ptr<LanguageModel>> open_ranks(const Device& device, const LanguageModel& model, int32_t ranks) {
  const auto* whole = dynamic_cast<const V41Model*>(&model);
  if (!whole) return unsupported(fmt::format("--ranks {}: {} has no experts to share; use --ranks 1", ranks, model.name()));
  if (device.runs_beside_host() || !device.reads_host_memory()) {
    return unsupported(
        fmt::format("--ranks {} on {}: ranks of one process share a processor's memory; one on each GPU would exchange "
                    "rows through NCCL, which is not built: run a process for each GPU behind `deepinfer route`",
                    ranks, device.name()));
  }
  for (const LayerWeights& layer : whole->weights().layers) {
    if (!layer.w1.empty() && layer.w1[0].place >= 0)
      return unsupported(
          fmt::format("--ranks {}: the experts do not fit memory, and ranks keep none of them; use --ranks 1", ranks));
  }
  const int32_t threads = device.parallelism();
  if (ranks > threads) {
    return invalid_argument(fmt::format("--ranks {} needs a thread for each, there are {}: at most --ranks {}, or --threads {}",
                                        ranks, threads, threads, ranks));
  }
  std::vector<std::unique_ptr<Device>> devices(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r) {
    DI_TRY(devices[static_cast<size_t>(r)],
           make_cpu_device({.threads = threads / ranks + (r < threads % ranks), .isa = device.isa()}));
  }
  DI_TRY(auto ranked, RankedModel::create(*whole, std::move(devices)));
  return std::unique_ptr<LanguageModel>(std::move(ranked));
}

Result<std::unique_ptr<LanguageModel>> open_model(Device& device, const Tokenizer& tokenizer, const OpenModelOptions& options) {
  const std::string_view model = options.model;
  if (model.starts_with(kScripted) && !device.reads_host_memory()) {
    return unsupported(fmt::format("{}: scripted models run on the host only; use --device cpu", model));
  }
  if (model.starts_with(kScripted) && options.pictures_only) return no_tower(options.model);
  if (model.starts_with(kScripted)) return open_scripted(std::string(model.substr(kScripted.size())), tokenizer);
  if (model.starts_with(kRandom)) {
    ThreadPool pool(options.threads);
    DI_TRY(auto checkpoint, make_random_checkpoint(model.substr(kRandom.size()), pool, options.progress));
    return open_checkpoint(device, options.model, std::move(checkpoint), tokenizer, {}, options.pictures_only);
  }
  DI_TRY(auto checkpoint, Checkpoint::open(options.model));
  return open_checkpoint(device, folder_name(options.model), std::move(checkpoint), tokenizer, options.progress,
                         options.pictures_only);
}

}  // namespace deepinfer
