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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/service_facts.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "host/image_encoder.h"
#include "host/settings.h"
#include "model/language_model.h"
#include "ops/device.h"
#include "policy/autoscale.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct HostOptions {
  LoadProgress progress;
  int32_t max_batch = 0;                                           // 0 = the engine's default
  int32_t queue_limit = 0;                                         // 0 = the engine's default
  std::unique_ptr<Device> device;                                  // instead of the one the settings name
  const Clock* clock = nullptr;                                    // EngineOptions::clock
  std::function<void()> step_end;                                  // EngineOptions::step_end
  std::function<void(std::span<const PageChange>)> pages_changed;  // EngineOptions::pages_changed
  std::function<std::string()> metrics;                            // RemoteService::metrics
  bool pictures_only = false;                                      // image_encoder() alone; service() refuses everything
  std::function<double()> pictures_share;                          // then: how busy it is, for autoscalers
  std::string state_folder;                                        // what speculation learns is kept here; "" = nowhere
  std::string store_folder;                                        // of the KV store when the settings name none; "" = none then
  // Fetches the link of an image (images/resolve.h says what it must refuse); empty = links are refused.
  std::function<Result<std::string>(const std::string& url, size_t max_bytes)> fetch_image;
};

// What a checkpoint folder recommends for drawing (generation_config.json); unset where it says nothing.
struct GenerationDefaults {
  std::optional<float> temperature, top_p;
};

// Requests of a host that has no engine of its own go elsewhere.
struct RemoteService {
  std::unique_ptr<TokenService> service;
  ServiceFacts facts;
  std::function<Status()> health;                           // whether somebody would take a request now; any thread
  ImageTower tower;                                         // empty: nobody encodes pictures
  std::function<void()> leave;                              // before the end: nothing is waited for any more
  std::function<ScaleSample(std::string_view role)> scale;  // "" = of all workers
  std::function<std::string()> metrics;                     // rows of its own, in the text form of Prometheus; any thread
};

class Constraints;
class HostStore;
class PromptCache;

class Host {
 public:
  static Result<std::unique_ptr<Host>> open(const HostSettings& settings, HostOptions options);
  // With the tokenizer and recommendations of the settings' model, and without device, weights and engine.
  static Result<std::unique_ptr<Host>> open_remote(const HostSettings& settings, HostOptions options, RemoteService remote);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Where requests go, and what is to be known for writing them.
  TokenService& service() { return remote_.service ? *remote_.service : *engine_; }
  const ServiceFacts& facts() const { return remote_.facts; }
  bool is_local() const { return remote_.service == nullptr; }
  const RemoteService& remote() const { return remote_; }
  // REQUIRES: is_local().
  Device& device() { return *device_; }
  const LanguageModel& model() const { return ranked_ ? *ranked_ : *model_; }  // as the engine runs it
  const LanguageModel& whole_model() const { return *model_; }                 // without ranks
  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const GenerationDefaults& generation_defaults() const { return defaults_; }
  ImageEncoder& image_encoder() const { return *image_encoder_; }  // host/image_encoder.h
  PromptCache& prompt_cache() const { return *prompt_cache_; }     // recipe/prompt_cache.h
  Constraints& constraints() const { return *constraints_; }       // host/constraints.h
  // fp_ and a hash of all an answer's bytes depend on besides its request: weights, numerics, replay.
  const std::string& fingerprint() const { return remote_.facts.fingerprint; }
  // Where KV pages outlive the process, or why not where they were to; "" when that was not wanted.
  const std::string& store_summary() const { return store_summary_; }
  // A text of a user in ids; with `parse_special`, spellings of control tokens become them.
  Result<std::vector<TokenId>> tokenize(std::string_view text, bool add_special_tokens, bool parse_special) const;

 private:
  Host();
  Status open_engine(EngineOptions options);
  Status refuse_answers(const EngineOptions& options, std::function<double()> pictures_share);
  void open_recipe(const std::string& model);
  // In the order in which they depend on each other.
  std::unique_ptr<Device> device_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LanguageModel> model_, ranked_;
  std::unique_ptr<ImageEncoder> image_encoder_;
  std::unique_ptr<PromptCache> prompt_cache_;
  std::unique_ptr<Constraints> constraints_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<Engine> engine_;
  RemoteService remote_;  // of an engine of its own the facts and metrics only; of pictures only somebody who refuses
  GenerationDefaults defaults_;
  std::string store_summary_;
};

// The tokenizer of a model setting: DIR/tokenizer.json; of a script that of the shipped model; else the release's, which ships
// with the program.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& model);
// A tokenizer.json, or a .zst of it.
Result<std::unique_ptr<Tokenizer>> open_tokenizer_file(const std::string& path);
// `model`, or the folder of the shipped model when empty.
Result<std::string> resolve_model(const std::string& model);

}  // namespace deepinfer
