#include "model/v41_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "model/config.h"
#include "model/v41_pass.h"

namespace deepinfer {
namespace {

// It only has to differ when what it covers differs by accident, not by malice: sizes, and a sample of every layer's weights, so
// that two checkpoints of one shape differ.
std::string fingerprint_of(const V41Options& options, const Device& device) {
  uint64_t hash = hash_bytes(model_config_text(options.shape));
  const auto sample = [&](const void* data, int64_t bytes) {
    hash = hash_bytes({static_cast<const char*>(data), static_cast<size_t>(std::min<int64_t>(bytes, 4096))}, hash);
  };
  sample(options.weights.embed.data, int64_t{options.shape.vocab} * options.shape.hidden * 2);
  for (const LayerWeights& layer : options.weights.layers) {
    sample(layer.wq_b.data, int64_t{layer.wq_b.n} * layer.wq_b.k);
    sample(layer.gate.data, int64_t{layer.gate.n} * layer.gate.k * 2);
  }
  return fmt::format("v41-{:016x}-{}-p{}", hash, numerics_class(device.isa()), options.page_tokens);
}

void keep_pictures(Weights& weights) {
  Weights all = std::exchange(weights, {});
  weights.image_start = all.image_start, weights.image_end = all.image_end, weights.image_newline = all.image_newline;
  weights.vision = std::move(all.vision);
  weights.checkpoint = std::move(all.checkpoint);
}

}  // namespace

std::vector<float> rope_frequencies(int32_t rope_dim, double theta, const YarnScaling* yarn) {
  const int32_t half = rope_dim / 2;
  std::vector<float> freq(static_cast<size_t>(half));
  for (int32_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    const float power = static_cast<float>(std::pow(static_cast<float>(theta), static_cast<double>(exponent)));
    freq[static_cast<size_t>(i)] = 1.0f / power;
  }
  if (!yarn || yarn->factor == 1) return freq;
  const auto corr = [&](double beta) {
    return rope_dim * std::log(static_cast<double>(yarn->original_context) / (beta * 2 * M_PI)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(corr(yarn->beta_fast)), 0.0);
  const double high = std::min(std::ceil(corr(yarn->beta_slow)), static_cast<double>(rope_dim - 1));
  for (int32_t i = 0; i < half; ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(std::max(high - low, 1e-3)), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    float& f = freq[static_cast<size_t>(i)];
    f = f / static_cast<float>(yarn->factor) * (1.0f - keep) + f * keep;
  }
  return freq;
}

Result<std::unique_ptr<V41Model>> V41Model::create(Device& device, V41Options options) {
  std::unique_ptr<V41Model> model(new V41Model(device, std::move(options)));
  model->layout_ = make_kv_layout(model->options_.shape, model->options_.page_tokens);
  const bool pictures_only = model->options_.pictures_only;
  if (!pictures_only) DI_CHECK_OK(model->upload_constants());
  model->fingerprint_ = fingerprint_of(model->options_, device);
  if (pictures_only) keep_pictures(model->options_.weights);
  if (!device.reads_host_memory()) {
    model->placed_ = model->options_.weights;
    DI_TRY(model->uploaded_,
           upload_weights(device, model->options_.shape, *model->placed_, model->options_.progress, pictures_only));
  }
  Weights& weights = model->placed_ ? *model->placed_ : model->options_.weights;
  const std::vector<Matrix*> products = product_weights(weights);
  const Checkpoint* checkpoint = weights.checkpoint.get();
  if (checkpoint && checkpoint->has_holes())
    return exhausted("the weights were packed for another model of this process, and memory is too short for two");
  Device::LetGo let_go;
  if (checkpoint && checkpoint->is_in_memory()) {
    let_go = [checkpoint](const Matrix& w) {
      checkpoint->let_go({static_cast<const uint8_t*>(w.data), static_cast<size_t>(int64_t{w.n} * w.k / 2)});
    };
  }
  std::vector<const MappedFile*> files;
  if (checkpoint) {
    for (const SafetensorsFile& shard : checkpoint->shards()) files.push_back(&shard.mapping());
  }
  const auto begin = std::chrono::steady_clock::now();
  DI_TRY(model->packed_, device.pack(products, let_go, files));
  model->pack_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return model;
}

Result<std::unique_ptr<V41Model>> V41Model::of_rank(Device& device, const V41Model& whole, Communicator& communicator) {
  if (!device.reads_host_memory() || whole.placed_ || device.isa() != whole.device_.isa())
    return unsupported("a rank reads the weights of the whole model in host memory, with the same kernels");
  V41Options options = whole.options_;
  options.communicator = &communicator;
  std::unique_ptr<V41Model> model(new V41Model(device, std::move(options)));
  model->layout_ = whole.layout_;
  model->fingerprint_ = whole.fingerprint_;
  DI_CHECK_OK(model->upload_constants());
  return model;
}

// Rotary frequencies and Engram tables, in one allocation.
Status V41Model::upload_constants() {
  const ModelShape& s = options_.shape;
  const std::vector<float> window = rope_frequencies(s.rope_dim, s.rope_theta, nullptr);
  const std::vector<float> compressed = rope_frequencies(s.rope_dim, s.compress_rope_theta, &s.yarn);
  EngramTables tables;
  if (!s.engram_layers.empty()) {
    DI_TRY(tables, make_engram_tables(s));
    if (static_cast<int32_t>(options_.token_map.size()) != s.vocab) {
      return invalid_argument(
          fmt::format("the Engram token map has {} entries, the model's vocabulary {}: the tokenizer belongs to another model",
                      options_.token_map.size(), s.vocab));
    }
    engram_pad_ = options_.token_map[static_cast<size_t>(s.engram_pad_id)];
  }
  int64_t bytes = 0;
  const auto reserve = [&bytes](size_t size) {
    const int64_t at = bytes;
    bytes += (static_cast<int64_t>(size) + 127) / 128 * 128;
    return at;
  };
  const auto size_of = [](const auto& values) { return values.size() * sizeof(values[0]); };
  const int64_t window_at = reserve(size_of(window)), compressed_at = reserve(size_of(compressed));
  const int64_t map_at = reserve(size_of(options_.token_map)), multipliers_at = reserve(size_of(tables.multipliers));
  const int64_t primes_at = reserve(size_of(tables.primes)), offsets_at = reserve(size_of(tables.offsets));
  DI_TRY(constants_, device_.allocate(static_cast<size_t>(bytes)));
  const auto place = [&](auto*& pointer, const auto& values, int64_t at) {
    pointer = constants_.as<std::remove_reference_t<decltype(*pointer)>>(static_cast<size_t>(at));
    device_.upload(pointer, values.data(), size_of(values));
  };
  place(freq_window_, window, window_at);
  place(freq_compressed_, compressed, compressed_at);
  place(token_map_, options_.token_map, map_at);
  place(engram_multipliers_, tables.multipliers, multipliers_at);
  place(engram_primes_, tables.primes, primes_at);
  place(engram_offsets_, tables.offsets, offsets_at);
  return device_.wait(device_.record());
}

Result<std::unique_ptr<Workspace>> V41Model::make_workspace(Device&, const WorkspaceLimits& limits) const {
  DI_TRY(auto workspace, make_test_workspace({limits}));
  return std::unique_ptr<Workspace>(std::move(workspace));
}

Result<std::unique_ptr<V41Workspace>> V41Model::make_test_workspace(V41Limits limits) const {
  if (options_.pictures_only) return unsupported(fmt::format("the model {} was opened for pictures only", name()));
  limits.ranks = options_.communicator ? options_.communicator->size() : 1;
  return V41Workspace::create(device_, options_.shape, limits);
}

Status V41Model::forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const {
  return V41Pass(*this, state, static_cast<V41Workspace&>(workspace)).forward(plan);
}

Status V41Model::draft_context(const StateView& state, V41Workspace& workspace) const {
  return V41Pass(*this, state, workspace).draft_context();
}

Status V41Model::draft(std::span<const DraftSequence> sequences, std::span<const SampleRow> settings, const StateView& state,
                       V41Workspace& workspace) const {
  return V41Pass(*this, state, workspace).draft(sequences, settings);
}

Status V41Model::StageDrafter::note_rows(const StateView& state, Workspace& workspace) const {
  return model_.draft_context(state, static_cast<V41Workspace&>(workspace));
}

Status V41Model::StageDrafter::draft(const DraftBatch& batch, const StateView& state, Workspace& workspace,
                                     const DraftOutput& out) const {
  auto& scratch = static_cast<V41Workspace&>(workspace);
  DI_CHECK_OK(model_.draft(batch.sequences, batch.draws, state, scratch));
  const size_t count = batch.sequences.size() * static_cast<size_t>(width());
  model_.device_.download(out.draws, scratch.draft_results, count * sizeof(SampleResult));
  model_.device_.download(out.confidence, scratch.draft_confidence, count * sizeof(float));
  return {};
}

const float* V41Model::StageDrafter::logits(const Workspace& workspace) const {
  return static_cast<const V41Workspace&>(workspace).draft_logits;
}

}  // namespace deepinfer
