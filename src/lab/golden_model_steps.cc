// Goldens that go on after the prefill: forced decode, draft passes, bounded replay; and the vision tower.
#include <algorithm>

#include <fmt/format.h>

#include "lab/error_metrics.h"
#include "lab/golden_model.h"
#include "model/vision.h"

namespace deepinfer {
namespace {

constexpr double kGreedyMargin = 1.2;  // the largest error that may move a logit: above it the greedy token must agree
constexpr double kDraftRms = 0.35, kDraftMax = 1.5, kDraftConfidence = 0.2;
constexpr double kVisionBlock = 5e-3, kVisionAligner = 1e-2;
constexpr int32_t kReplayKeep = 128;  // R of the replay goldens

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

Status ModelGoldens::run_decode(const GoldenPrompt& prompt) {
  DI_TRY(const SafetensorsFile golden, file("decode_" + prompt.name));
  std::optional<SafetensorsFile> drafts;
  if (has_file("dspark_" + prompt.name) && model_->shape().draft_stages > 0) {
    DI_TRY(drafts, file("dspark_" + prompt.name));
  }
  const auto n = static_cast<int32_t>(prompt.ids.size());
  const auto tokens = golden.find("tokens")->as<int32_t>();
  const auto steps = static_cast<int32_t>(tokens.size());
  DI_TRY(auto harness,
         ModelHarness::create(
             device_, *model_,
             {.slots = 1, .max_rows = n, .max_logits = 1, .max_context = n + steps + 8, .max_drafts = drafts ? 1 : 0}));
  const auto images = image_rows(prompt);
  DI_CHECK_OK(harness->run({.tokens = prompt.ids, .images = images}));
  const std::string id = "decode_" + prompt.name;
  if (drafts) DI_CHECK_OK(check_draft(*drafts, "post_prefill", n - 1, tokens[0], "dspark_" + prompt.name, *harness));

  PassRecorder got(device_);
  harness->workspace().probe = got.probe();
  const ModelShape& s = model_->shape();
  const auto vocab = static_cast<size_t>(s.vocab);
  const auto want_logits = golden.find("logits")->as<float>();
  const auto margins = golden.find("margin")->as<float>();
  const TensorView* resid = golden.find("resid");
  for (int32_t i = 0; i < steps; ++i) {
    DI_CHECK_OK(harness->run({.tokens = {&tokens[static_cast<size_t>(i)], 1}, .begin = n + i, .decoder_begin = n + i}));
    DI_TRY(const auto logits, harness->logits(1));
    const auto want = want_logits.subspan(static_cast<size_t>(i) * vocab, vocab);
    const std::string step = fmt::format("{}/step.{}", id, i);
    check_logits(logits, want, step + "/logits");
    if (margins[static_cast<size_t>(i)] > kGreedyMargin)
      check(argmax(logits) == argmax(want), step + "/greedy", "another token wins");
    if (resid && planted_) {
      const auto all = tensor_floats(*resid);
      const size_t width = all.size() / static_cast<size_t>(steps) / 2;
      const auto row = std::span<const float>(all).subspan(static_cast<size_t>(i) * 2 * width, 2 * width);
      check_below(relative_rms(got.last_bf16("resid", s.layers / 2, 1), row.first(width)), residual_bound(s.layers / 2),
                  step + "/resid.in");
      check_below(relative_rms(got.last_bf16("resid", s.layers, 1), row.last(width)), residual_bound(s.layers),
                  step + "/resid.out");
    }
    const TokenId next = i + 1 < steps ? tokens[static_cast<size_t>(i) + 1] : golden.find("next_token")->as<int32_t>()[0];
    if (drafts) DI_CHECK_OK(check_draft(*drafts, fmt::format("step{}", i), n + i, next, "dspark_" + prompt.name, *harness));
  }
  return {};
}

// A trained head's logits lie far from zero, where only the probability means something: 0.2 of a logit is at most 0.05 of it.
void ModelGoldens::check_confidence(std::span<const float> got, std::span<const float> want, const std::string& id) {
  if (planted_) return check_below(max_error(got, want), kDraftConfidence, id);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(1 / (1 + std::exp(-double{got[i]})) - 1 / (1 + std::exp(-double{want[i]}))));
  check_below(worst, kDraftConfidence / 4, id);
}

// Draft rings follow every committed token; a pass is compared where the golden has one for this step.
Status ModelGoldens::check_draft(const SafetensorsFile& golden, const std::string& step, Position last, TokenId next,
                                 const std::string& id, ModelHarness& harness) {
  V41Workspace& w = harness.workspace();
  const Probe probe = std::exchange(w.probe, nullptr);
  DI_CHECK_OK(model_->draft_context(harness.state(), w));
  const TensorView* ids = golden.find(step + ".ids");
  if (!ids) {
    w.probe = probe;
    return device_.wait(device_.record());
  }
  const ModelShape& s = model_->shape();
  const DraftSequence sequence{.slot = 0, .last = last, .next = next};
  DI_CHECK_OK(model_->draft({&sequence, 1}, {}, harness.state(), w));
  DI_TRY(const auto results, harness.download<SampleResult>(w.draft_results, s.draft_block));
  DI_TRY(const auto logits, harness.download<float>(w.draft_logits, int64_t{s.draft_block} * s.vocab));
  DI_TRY(const auto confidence, harness.download<float>(w.draft_confidence, s.draft_block));
  w.probe = probe;
  // Later steps follow from the drafted tokens, so only the common prefix and the step after it can be compared.
  const auto want_ids = ids->as<int32_t>();
  size_t rows = 1;
  while (rows < static_cast<size_t>(s.draft_block) && results[rows - 1].token == want_ids[rows]) ++rows;
  const size_t values = rows * static_cast<size_t>(s.vocab);
  const auto want = golden.find(step + ".logits")->as<float>().first(values);
  const std::string name = fmt::format("{}/{}", id, step);
  check_below(rms_error(std::span(logits).first(values), want), planted_ ? kDraftRms : kDraftRms * standard_deviation(want),
              name + "/logits.rms");
  if (planted_) check_below(max_error(std::span(logits).first(values), want), kDraftMax, name + "/logits.max");
  check_confidence(std::span(confidence).first(rows), golden.find(step + ".conf")->as<float>().first(rows), name + "/conf");
  return {};
}

Status ModelGoldens::run_replay() {
  DI_TRY(const SafetensorsFile golden, file("replay"));
  const ModelShape& s = model_->shape();
  for (const GoldenPrompt& prompt : prompts_) {
    const auto n = static_cast<int32_t>(prompt.ids.size());
    const TensorView* forced = golden.find(prompt.name + ".forced_tokens");
    if (!forced) continue;
    const auto tokens = forced->as<int32_t>();
    for (const bool truncated : {true, false}) {
      const std::string id = fmt::format("{}.{}", prompt.name, truncated ? "trunc" : "truewin");
      DI_TRY(auto harness,
             ModelHarness::create(device_, *model_, {.slots = 1, .max_rows = n, .max_logits = 4, .max_context = n + 16}));
      const Position start = std::max(0, n - kReplayKeep);
      PassRecorder got(device_);
      harness->workspace().probe = got.probe();
      DI_CHECK_OK(harness->run({.tokens = prompt.ids,
                                .decoder_begin = start,
                                .window_floor = start,
                                .num_logits = 4,
                                .truncate_candidate_window = truncated}));
      DI_TRY(const auto logits, harness->logits(4));
      check_logits(logits, tensor_floats(*golden.find(id + ".logits")), "replay/" + id + "/logits");
      check_below(relative_rms(got.last_bf16("resid", s.layers, 4), tensor_floats(*golden.find(id + ".resid_last"))),
                  residual_bound(s.layers), "replay/" + id + "/resid_last");
      for (int32_t l = 0; l <= s.layers; ++l) {
        const TensorView* want = golden.find(fmt::format("{}.segment_resid.{}", id, l));
        if (!want) continue;
        const auto segment = got.last_bf16("resid", l, n - start);
        const size_t width = static_cast<size_t>(s.streams) * static_cast<size_t>(s.hidden);
        std::vector<float> picked;
        for (const size_t offset : {0, 1, 16, 64}) {
          picked.insert(picked.end(), segment.begin() + static_cast<std::ptrdiff_t>(offset * width),
                        segment.begin() + static_cast<std::ptrdiff_t>((offset + 1) * width));
        }
        check_below(relative_rms(picked, tensor_floats(*want)), residual_bound(l),
                    fmt::format("replay/{}/segment_resid.{}", id, l));
      }
      const auto want = golden.find(id + ".decode_logits")->as<float>();
      for (size_t i = 0; i < tokens.size(); ++i) {
        const Position at = n + static_cast<Position>(i);
        DI_CHECK_OK(harness->run({.tokens = {&tokens[i], 1}, .begin = at, .decoder_begin = at, .window_floor = start}));
        DI_TRY(const auto step, harness->logits(1));
        check_logits(step, want.subspan(i * static_cast<size_t>(s.vocab), static_cast<size_t>(s.vocab)),
                     fmt::format("replay/{}/decode.{}", id, i));
      }
    }
  }
  return {};
}

Status ModelGoldens::run_vision() {
  DI_TRY(const SafetensorsFile golden, file("vision"));
  const TensorView* patches = golden.find("patches");
  const auto grid = golden.find("grid")->as<int32_t>();
  std::map<std::string, std::vector<float>> got;
  // Each block is measured alone: it is compared and then replaced by the golden value that the next one starts from.
  const VisionProbe probe = [&](const char* name, int32_t block, Bf16* data, int32_t rows, int32_t width) {
    std::vector<Bf16> values(static_cast<size_t>(rows) * static_cast<size_t>(width));
    device_.download(values.data(), data, values.size() * sizeof(Bf16));
    (void)device_.wait(device_.record());
    const std::string id = std::string(name) == "block" ? fmt::format("block.{}", block) : name;
    got[id] = bf16_floats(values);
    if (const TensorView* want = golden.find(id); want && id != "aligner_out") {
      device_.upload(data, want->data.data(), want->data.size());
      (void)device_.wait(device_.record());
    }
  };
  DI_TRY(const VisionSpan span,
         encode_image(device_, model_->shape(), model_->device_weights(), patches->as<uint16_t>(), {grid[0], grid[1]}, probe));
  for (const auto& [name, values] : got) {
    if (const TensorView* want = golden.find(name)) {
      check_below(relative_rms(values, tensor_floats(*want)), name == "aligner_out" ? kVisionAligner : kVisionBlock,
                  "vision/" + name);
    }
  }
  std::vector<Bf16> rows(span.embeddings.size());
  std::transform(span.embeddings.begin(), span.embeddings.end(), rows.begin(), [](uint16_t bits) { return Bf16{bits}; });
  check_below(relative_rms(bf16_floats(rows), tensor_floats(*golden.find("span_embeddings"))), kVisionAligner,
              "vision/span_embeddings");
  const auto types = golden.find("types")->as<int32_t>();
  const bool roles = std::equal(types.begin(), types.end(), span.roles.begin(), span.roles.end(),
                                [](int32_t type, SpanRole role) { return type == static_cast<int32_t>(role); });
  check(roles, "vision/types", "roles of the span differ");
  return {};
}

}  // namespace deepinfer
