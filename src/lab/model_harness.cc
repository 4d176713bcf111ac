#include "lab/model_harness.h"

namespace deepinfer {

Result<std::unique_ptr<ModelHarness>> ModelHarness::create(Device& device, const V41Model& model, const HarnessOptions& options) {
  std::unique_ptr<ModelHarness> h(new ModelHarness(device, model));
  const KvLayout& layout = model.layout();
  h->pages_per_slot_ = (options.max_context + layout.page_tokens - 1) / layout.page_tokens;
  const int64_t pages = h->pages_per_slot_ * options.slots;
  V41Limits limits;
  limits.max_rows = options.max_rows;
  limits.max_logits = options.max_logits;
  limits.max_context = options.max_context;
  limits.max_drafts = options.max_drafts;
  limits.keep_scores = options.keep_scores;
  DI_TRY(h->workspace_, model.make_test_workspace(limits));
  DI_TRY(h->states_, device.allocate(static_cast<size_t>(layout.state_bytes * options.slots)));
  DI_TRY(h->pages_, device.allocate(static_cast<size_t>(layout.page_bytes * pages)));
  DI_TRY(h->table_, device.allocate(static_cast<size_t>(pages) * sizeof(int32_t)));
  std::vector<int32_t> table(static_cast<size_t>(pages));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  device.upload(h->table_.as<int32_t>(), table.data(), table.size() * sizeof(int32_t));
  DI_CHECK_OK(device.wait(device.record()));
  return h;
}

StateView ModelHarness::state() const {
  return {states_.as<uint8_t>(), pages_.as<uint8_t>(), table_.as<int32_t>(), pages_per_slot_};
}

Status ModelHarness::run(const HarnessRun& run) {
  StepPlan plan;
  plan.tokens.assign(run.tokens.begin(), run.tokens.end());
  plan.images.assign(run.images.begin(), run.images.end());
  plan.truncate_candidate_window = run.truncate_candidate_window;
  plan.sequences.push_back({.slot = run.slot,
                            .begin = run.begin,
                            .count = static_cast<int32_t>(run.tokens.size()),
                            .first_token = 0,
                            .decoder_begin = run.decoder_begin,
                            .window_floor = run.window_floor,
                            .encoder_window_floor = 0,
                            .write_floor = 0,
                            .num_logits = run.num_logits});
  return run_plan(plan);
}

Status ModelHarness::run_plan(const StepPlan& plan) {
  DI_CHECK_OK(model_.forward(plan, state(), *workspace_));
  return device_.wait(device_.record());
}

Result<std::vector<float>> ModelHarness::logits(int32_t rows) {
  return download<float>(workspace_->logits(), int64_t{rows} * model_.shape().vocab);
}

Status ModelHarness::reset() {
  device_.fill_zero(states_.as<uint8_t>(), states_.bytes());
  device_.fill_zero(pages_.as<uint8_t>(), pages_.bytes());
  return device_.wait(device_.record());
}

Result<std::vector<uint8_t>> ModelHarness::page_bytes(int64_t tokens, SlotId slot) {
  const KvLayout& layout = model_.layout();
  const int64_t pages = (tokens + layout.page_tokens - 1) / layout.page_tokens;
  return download<uint8_t>(pages_.as<uint8_t>(static_cast<size_t>(slot * pages_per_slot_ * layout.page_bytes)),
                           pages * layout.page_bytes);
}

Result<std::vector<uint8_t>> ModelHarness::state_bytes(SlotId slot) {
  const int64_t bytes = model_.layout().state_bytes;
  return download<uint8_t>(states_.as<uint8_t>(static_cast<size_t>(slot * bytes)), bytes);
}

namespace {

// Where the FP4 rows of a section lie and how their scales read.
struct Fp4Rows {
  int64_t codes, scales;
  int32_t width, group;
  float (*scale)(uint8_t);
};

std::vector<float> dequantize(const std::vector<uint8_t>& pages, const KvLayout& layout, const PageSection& section,
                              const Fp4Rows& rows, int64_t count) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(count * rows.width));
  for (int64_t j = 0; j < count; ++j) {
    const uint8_t* page = pages.data() + j / section.entries * layout.page_bytes;
    const int64_t entry = j % section.entries;
    const uint8_t* codes = page + rows.codes + entry * rows.width / 2;
    const uint8_t* scales = page + rows.scales + entry * rows.width / rows.group;
    for (int32_t c = 0; c < rows.width; ++c) {
      out.push_back(e2m1_to_float(codes[c / 2] >> (c % 2 * 4) & 15) * rows.scale(scales[c / rows.group]));
    }
  }
  return out;
}

}  // namespace

Result<std::vector<float>> ModelHarness::main_entries(int32_t layer, int64_t count, SlotId slot) {
  const KvLayout& layout = model_.layout();
  const PageSection& section = layout.sections[static_cast<size_t>(layout.section_of(layer))];
  DI_TRY(const auto bytes, page_bytes(count * section.ratio, slot));
  return dequantize(bytes, layout, section, {section.main_codes, section.main_scales, layout.head_dim, 16, e4m3_to_float}, count);
}

Result<std::vector<float>> ModelHarness::index_keys(int32_t layer, int64_t count, SlotId slot) {
  const KvLayout& layout = model_.layout();
  const PageSection& section = layout.sections[static_cast<size_t>(layout.section_of(layer))];
  DI_TRY(const auto bytes, page_bytes(count * section.ratio, slot));
  return dequantize(bytes, layout, section, {section.index_codes, section.index_scales, layout.index_dim, 32, e8m0_to_float},
                    count);
}

}  // namespace deepinfer
