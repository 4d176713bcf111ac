// tests/store_lives.h - engines of the shipped model that live over several requests, alone or one after another over one disk.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "tests/engine_harness.h"
#include "tests/ranks_harness.h"
#include "tests/shipped_model.h"

namespace deepinfer {

inline const V41Options& shipped() {
  static const V41Options options = shipped_options();
  return options;
}

struct Served {
  Answer answer;
  Usage usage;
  PrefixVerdict verdict;
};

// One life of an engine; what it stored is on the disk when it ends.
class Life {
 public:
  Life(const char* device, const EngineOptions& options, int32_t ranks = 1)
      : device_(device_named(device, 1)),
        model_(value(V41Model::create(*device_, shipped()))),
        ranked_(ranks > 1 ? over_ranks(*model_, ranks) : nullptr),
        engine_(value(Engine::create(*device_, ranked_ ? static_cast<const LanguageModel&>(*ranked_) : *model_, options))) {}

  Served ask(const Request& request) {
    Served out;
    const EventHandler record = seen_.handler();
    const RequestId id = submit_patiently(*engine_, request, [&](const Event& event) {
      if (event.finish != FinishReason::kNone)
        out.usage = event.usage, out.verdict = event.report->prefix.value_or(PrefixVerdict());
      record(event);
    });
    run_until_idle(*engine_);
    expect_all_free(*engine_);
    out.answer = seen_[id];
    return out;
  }
  Engine& engine() { return *engine_; }
  Recorder& seen() { return seen_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<V41Model> model_;
  std::unique_ptr<RankedModel> ranked_;  // null with one rank
  std::unique_ptr<Engine> engine_;
  Recorder seen_;
};

inline const DateClock kDate;

inline EngineOptions with_store(StoreDisk& disk, ReplayMode mode = ReplayMode::kDecoder) {
  // Sizes of their own, also under the hostile preset: what is tested needs its snapshots.
  EngineOptions options{.context = 1024, .pages = 64, .replay = mode, .snapshot_bytes = 64 << 20};
  options.store.disk = &disk;
  options.store.date = &kDate;
  options.store.folder = "/store";
  options.store.fingerprint = "test";
  options.store.deadline.base_us = 60'000'000;  // a machine of tests may be busy
  return options;
}

inline EngineOptions cold(ReplayMode mode) { return {.context = 1024, .pages = 64, .replay = mode, .prefix_cache = false}; }

inline Request request_of(std::vector<TokenId> prompt, int32_t max_tokens, uint64_t seed = 1) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.stop_ids = {1};
  request.sampling.seed = seed;
  request.sampling.num_logprobs = 2;
  return request;
}

inline std::vector<TokenId> random_tokens(std::mt19937& random, int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(3 + static_cast<TokenId>(random() % (kTextTokens - 3)));
  return tokens;
}

inline void append(std::vector<TokenId>& to, const std::vector<TokenId>& more) { to.insert(to.end(), more.begin(), more.end()); }

inline MemoryDisk::Fault refusing(std::string_view operation) {
  return [operation](std::string_view what, const std::string&) {
    return what == operation ? Status(io_error("refused")) : Status();
  };
}

// Reads stand still until the gate opens.
class Gate {
 public:
  Status pass(std::string_view what) {
    std::unique_lock lock(mutex_);
    if (what == "read") open_.wait(lock, [&] { return is_open_; });
    return {};
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    open_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable open_;
  bool is_open_ = false;
};

}  // namespace deepinfer
