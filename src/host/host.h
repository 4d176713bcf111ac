// host/host.h - a device, a model, its tokenizer and an engine, opened from settings.
//
// Promise: open() gives a working engine or one line that says which part failed and why; the engine runs on a thread of its
// own until the Host goes. A model is a checkpoint folder, `scripted:FILE` (model/scripted_model.h) or `random:SPEC`
// (model/random_checkpoint.h).
// Threads: engine() as core/token_service.h says; the rest is const.
//
//   DI_TRY(auto host, Host::open(settings, {}));
//   DI_TRY(auto ask, Ask::start(*host, conversation, {}, queue));     // host/ask.h
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "host/settings.h"
#include "model/language_model.h"
#include "ops/device.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct HostOptions {
  LoadProgress progress;
  int32_t max_batch = 0;           // 0 = the engine's default
  int32_t queue_limit = 0;         // 0 = the engine's default
  std::unique_ptr<Device> device;  // instead of the one the settings name
  const Clock* clock = nullptr;    // EngineOptions::clock
  std::function<void()> step_end;  // EngineOptions::step_end
  std::string state_folder;        // what speculation learns is kept here; "" = nowhere
  std::string store_folder;        // of the KV store when the settings name none; "" = none then
  // Fetches the link of an image (images/resolve.h says what it must refuse); empty = links are refused.
  std::function<Result<std::string>(const std::string& url, size_t max_bytes)> fetch_image;
};

// What a checkpoint folder recommends for drawing (generation_config.json); unset where it says nothing.
struct GenerationDefaults {
  std::optional<float> temperature, top_p;
};

class Constraints;
class HostStore;
class ImageEncoder;
class PromptCache;

class Host {
 public:
  static Result<std::unique_ptr<Host>> open(const HostSettings& settings, HostOptions options);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Device& device() { return *device_; }
  const LanguageModel& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  const GenerationDefaults& generation_defaults() const { return defaults_; }
  ImageEncoder& image_encoder() const { return *image_encoder_; }  // host/image_encoder.h
  PromptCache& prompt_cache() const { return *prompt_cache_; }     // recipe/prompt_cache.h
  Constraints& constraints() const { return *constraints_; }       // host/constraints.h
  // fp_ and a hash of all an answer's bytes depend on besides its request: weights, numerics, replay.
  const std::string& fingerprint() const { return fingerprint_; }
  // Where KV pages outlive the process, or why not where they were to; "" when that was not wanted.
  const std::string& store_summary() const { return store_summary_; }
  // A text of a user in ids; with `parse_special`, spellings of control tokens become them.
  Result<std::vector<TokenId>> tokenize(std::string_view text, bool add_special_tokens, bool parse_special) const;

 private:
  Host();
  Status open_engine(EngineOptions options);
  // In the order in which they depend on each other.
  std::unique_ptr<Device> device_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<ImageEncoder> image_encoder_;
  std::unique_ptr<PromptCache> prompt_cache_;
  std::unique_ptr<Constraints> constraints_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<Engine> engine_;
  GenerationDefaults defaults_;
  std::string fingerprint_, store_summary_;
};

// The tokenizer of a model setting: DIR/tokenizer.json; of a script that of the shipped model; else the release's, which ships
// with the program.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& model);
// A tokenizer.json, or a .zst of it.
Result<std::unique_ptr<Tokenizer>> open_tokenizer_file(const std::string& path);
// `model`, or the folder of the shipped model when empty.
Result<std::string> resolve_model(const std::string& model);

}  // namespace deepinfer
