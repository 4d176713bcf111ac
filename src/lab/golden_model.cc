#include "lab/golden_model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lab/error_metrics.h"
#include "model/config.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

// Bounds of the goldens' README, at the planted checkpoint's logit deviation of 4.5.
constexpr double kLogitRms = 0.40, kLogitMax = 1.8, kLogitCorrelation = 0.995;
// For trained checkpoints: share of the golden logits' own deviation.
constexpr double kTrainedLogitRms = 0.12;

std::string golden_folder(const std::string& dir) { return join_path(dir, "golden"); }

// The folder beside golden/ that holds a checkpoint.
std::optional<std::string> checkpoint_folder(const std::string& dir) {
  const auto names = list_directory(dir);
  if (!names) return std::nullopt;
  for (const std::string& name : *names) {
    const std::string path = join_path(dir, name);
    if (is_directory(path) && file_exists(join_path(path, "config.json"))) return path;
  }
  return std::nullopt;
}

}  // namespace

bool is_model_golden_folder(const std::string& dir) {
  return is_directory(dir) && file_exists(join_path(golden_folder(dir), "prompts.json")) && checkpoint_folder(dir).has_value();
}

Result<GoldenCounts> run_model_goldens(const std::string& dir, Device& device) {
  DI_TRY(auto goldens, ModelGoldens::open(dir, device));
  DI_CHECK_OK(goldens->run());
  return goldens->counts();
}

// ---- recorder and conversions -----------------------------------------------------------------------------------

Probe PassRecorder::probe() {
  return [this](const ProbePoint& point) {
    Value& value = values_[{point.name, point.layer}];
    value.row_bytes = point.row_bytes;
    value.bytes.resize(static_cast<size_t>(point.row_bytes * point.rows));
    device_.download(value.bytes.data(), point.data, value.bytes.size());
    (void)device_.wait(device_.record());
  };
}

template <class T>
std::vector<T> PassRecorder::rows(const std::string& name, int32_t layer) const {
  const auto& bytes = values_.at({name, layer}).bytes;
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}
template std::vector<int32_t> PassRecorder::rows(const std::string&, int32_t) const;
template std::vector<int64_t> PassRecorder::rows(const std::string&, int32_t) const;
template std::vector<uint8_t> PassRecorder::rows(const std::string&, int32_t) const;
template std::vector<Bf16> PassRecorder::rows(const std::string&, int32_t) const;
template std::vector<float> PassRecorder::rows(const std::string&, int32_t) const;

std::vector<float> PassRecorder::last_bf16(const std::string& name, int32_t layer, int64_t n) const {
  const auto all = rows<Bf16>(name, layer);
  const size_t count = static_cast<size_t>(n * row_bytes(name, layer) / 2);
  return bf16_floats(std::span(all).last(std::min(count, all.size())));
}

std::vector<float> PassRecorder::last_f32(const std::string& name, int32_t layer, int64_t n) const {
  const auto all = rows<float>(name, layer);
  const size_t count = std::min(static_cast<size_t>(n * row_bytes(name, layer) / 4), all.size());
  return {all.end() - static_cast<std::ptrdiff_t>(count), all.end()};
}

std::vector<float> bf16_floats(std::span<const Bf16> values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](Bf16 v) { return to_float(v); });
  return out;
}

std::vector<float> tensor_floats(const TensorView& tensor) {
  if (tensor.type == TensorType::kBf16) return bf16_floats(tensor.as<Bf16>());
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

// ---- set-up -----------------------------------------------------------------------------------------------------

Result<std::unique_ptr<ModelGoldens>> ModelGoldens::open(const std::string& dir, Device& device) {
  const auto checkpoint = checkpoint_folder(dir);
  if (!checkpoint) return not_found(fmt::format("{} holds no checkpoint folder beside golden/", dir));
  std::unique_ptr<ModelGoldens> goldens(new ModelGoldens(device));
  goldens->dir_ = dir;
  goldens->golden_dir_ = golden_folder(dir);
  if (const auto text = read_file(join_path(goldens->golden_dir_, "stats.json"))) {
    DI_TRY(const Json stats, Json::parse(*text));
    const Json* planted = stats.find("planted");
    goldens->planted_ = planted && planted->is_bool() && planted->as_bool();
  }
  DI_CHECK_OK(goldens->load_model(*checkpoint));
  DI_CHECK_OK(goldens->load_prompts());
  return goldens;
}

Status ModelGoldens::load_model(const std::string& checkpoint_dir) {
  DI_TRY(auto checkpoint, Checkpoint::open(checkpoint_dir));
  DI_TRY(ModelShape shape, parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
  DI_TRY(Weights weights, bind_weights(checkpoint, shape));
  DI_TRY(const std::string tokenizer_text, read_file(join_path(checkpoint_dir, "tokenizer.json")));
  DI_TRY(const Tokenizer tokenizer, Tokenizer::parse(tokenizer_text));
  DI_TRY(auto token_map, make_token_map(tokenizer, shape.vocab));
  DI_TRY(model_, V41Model::create(device_, {.name = checkpoint_dir,
                                            .shape = shape,
                                            .weights = std::move(weights),
                                            .token_map = std::move(token_map.class_of)}));
  return {};
}

Status ModelGoldens::load_prompts() {
  DI_TRY(const std::string text, read_file(join_path(golden_dir_, "prompts.json")));
  DI_TRY(const Json prompts, Json::parse(text));
  for (const auto& [name, value] : prompts.members()) {
    GoldenPrompt prompt{.name = name, .ids = {}};
    for (const Json& id : value.at("ids").items()) {
      DI_TRY(const int64_t token, id.to_int64("prompts.json ids"));
      prompt.ids.push_back(static_cast<TokenId>(token));
    }
    const auto& types = value.at("token_types").items();
    for (size_t i = types.size(); i-- > 0;) {
      DI_TRY(const int64_t type, types[i].to_int64("prompts.json token_types"));
      if (type < 0) continue;
      prompt.image = true;
      prompt.image_begin = static_cast<int32_t>(i);
    }
    prompts_.push_back(std::move(prompt));
  }
  if (has_file("vision")) {
    DI_TRY(const SafetensorsFile vision, file("vision"));
    if (const TensorView* span = vision.find("span_embeddings")) {
      const auto rows = span->as<uint16_t>();
      image_embeddings_.assign(rows.begin(), rows.end());
    }
  }
  return {};
}

bool ModelGoldens::has_file(const std::string& name) const { return file_exists(join_path(golden_dir_, name + ".safetensors")); }

Result<SafetensorsFile> ModelGoldens::file(const std::string& name) const {
  return SafetensorsFile::open(join_path(golden_dir_, name + ".safetensors"));
}

std::vector<ImageRows> ModelGoldens::image_rows(const GoldenPrompt& prompt) const {
  if (!prompt.image) return {};
  const auto rows = static_cast<int32_t>(image_embeddings_.size() / static_cast<size_t>(model_->shape().hidden));
  return {{prompt.image_begin, rows, image_embeddings_.data()}};
}

// ---- checks -----------------------------------------------------------------------------------------------------

void ModelGoldens::check(bool holds, const std::string& id, const std::string& detail) {
  if (holds) {
    counts_.pass();
  } else {
    counts_.fail(fmt::format("{}: {}", id, detail));
  }
}

void ModelGoldens::check_below(double value, double bound, const std::string& id) {
  check(value <= bound, id, fmt::format("{:.3g} exceeds {:.3g}", value, bound));
}

void ModelGoldens::check_logits(std::span<const float> got, std::span<const float> want, const std::string& id) {
  check_below(rms_error(got, want), planted_ ? kLogitRms : kTrainedLogitRms * standard_deviation(want), id + "/rms");
  if (!planted_) return;
  check_below(max_error(got, want), kLogitMax, id + "/max");
  const double match = correlation(got, want);
  check(match >= kLogitCorrelation, id + "/correlation", fmt::format("{:.5f} is below {}", match, kLogitCorrelation));
}

double ModelGoldens::residual_bound(int32_t layer) const { return layer <= 3 ? 3e-2 : layer <= 6 ? 6e-2 : 1.2e-1; }

Status ModelGoldens::run() {
  for (const GoldenPrompt& prompt : prompts_) {
    if (has_file("prefill_" + prompt.name)) DI_CHECK_OK(run_prefill(prompt));
    if (has_file("prefill_" + prompt.name)) DI_CHECK_OK(run_forced_layers(prompt));
    if (has_file("decode_" + prompt.name)) DI_CHECK_OK(run_decode(prompt));
  }
  if (has_file("replay")) DI_CHECK_OK(run_replay());
  if (has_file("vision") && model_->shape().vision) DI_CHECK_OK(run_vision());
  return {};
}

}  // namespace deepinfer
