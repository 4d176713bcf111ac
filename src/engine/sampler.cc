#include "engine/sampler.h"

namespace deepinfer {

namespace {

constexpr float kNever = -1e30f;  // a bias that no logit outweighs

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::create(Device& device, int32_t vocab, int32_t max_rows, bool rejects) {
  std::unique_ptr<Sampler> sampler(new Sampler(device, vocab, max_rows));
  const size_t rows = static_cast<size_t>(max_rows);
  const size_t scratch_rows = static_cast<size_t>(device.parallelism());
  DI_TRY(sampler->count_, device.allocate(sizeof(int32_t)));
  DI_TRY(sampler->settings_, device.allocate(rows * sizeof(SampleRow)));
  DI_TRY(sampler->results_, device.allocate(rows * sizeof(SampleResult)));
  DI_TRY(sampler->scratch_, device.allocate(scratch_rows * (rejects ? 4 : 2) * static_cast<size_t>(vocab) * sizeof(float)));
  sampler->host_settings_.reserve(rows);
  sampler->host_results_.resize(rows);
  return sampler;
}

SampleRow draw_settings(const Sequence& sequence, int32_t ahead) {
  const SamplingParams& sampling = sequence.request.sampling;
  SampleRow row{};
  row.seed = sampling.seed.value_or(0);
  row.position = static_cast<int64_t>(sequence.tokens.size()) + ahead;
  row.temperature = sampling.temperature;
  row.top_k = sampling.top_k;
  row.top_p = sampling.top_p;
  row.min_p = sampling.min_p;
  row.repetition_penalty = 1.0f;
  row.num_logprobs = -1;
  return row;
}

void Sampler::add_row(const DrawRow& draw) {
  const Sequence& sequence = *draw.sequence;
  const SamplingParams& sampling = sequence.request.sampling;
  SampleRow row = draw_settings(sequence, draw.drafts);
  row.frequency_penalty = sampling.frequency_penalty;
  row.presence_penalty = sampling.presence_penalty;
  row.repetition_penalty = sampling.repetition_penalty;
  row.num_logprobs = sampling.num_logprobs;
  row.bias_begin = static_cast<int32_t>(host_bias_ids_.size());
  for (const auto& [token, bias] : sampling.logit_bias) {
    host_bias_ids_.push_back(token);
    host_bias_values_.push_back(bias);
  }
  // An answer that ended before its constraint began would break what was promised.
  if (sequence.mask && !sequence.masked) {
    for (const TokenId stop : sequence.request.stop_ids) {
      host_bias_ids_.push_back(stop);
      host_bias_values_.push_back(kNever);
    }
  }
  row.bias_end = static_cast<int32_t>(host_bias_ids_.size());
  row.history_begin = static_cast<int32_t>(host_history_.size() / 3);
  if (has_penalties(sampling)) {
    sequence.counts.append_with(sequence.drafts.planned().first(static_cast<size_t>(draw.drafts)), host_history_);
  }
  row.history_end = static_cast<int32_t>(host_history_.size() / 3);
  const Drafts& drafts = sequence.drafts;
  row.draft = draw.drafts < drafts.tested ? drafts.tokens[static_cast<size_t>(draw.drafts)] : -1;
  row.draft_row = drafts.first_row + draw.drafts * drafts.row_stride;
  host_settings_.push_back(row);
}

Status Sampler::upload(Buffer& buffer, const void* data, size_t bytes) {
  // Twice the need, so that counts which grow by a token a step do not allocate in every one.
  if (bytes > buffer.bytes()) {
    DI_TRY(buffer, device_.allocate(bytes * 2));
  }
  if (bytes > 0) device_.upload(buffer.as<uint8_t>(), data, bytes);
  return {};
}

Status Sampler::enqueue(std::span<const DrawRow> rows, const float* logits, const float* draft_logits) {
  host_settings_.clear();
  host_bias_ids_.clear();
  host_bias_values_.clear();
  host_history_.clear();
  for (const DrawRow& row : rows) add_row(row);
  const std::vector<uint32_t>& masks = mask_worker_.finish();
  host_count_ = static_cast<int32_t>(rows.size());
  DI_CHECK_OK(upload(count_, &host_count_, sizeof(host_count_)));
  DI_CHECK_OK(upload(settings_, host_settings_.data(), host_settings_.size() * sizeof(SampleRow)));
  DI_CHECK_OK(upload(bias_ids_, host_bias_ids_.data(), host_bias_ids_.size() * sizeof(int32_t)));
  DI_CHECK_OK(upload(bias_values_, host_bias_values_.data(), host_bias_values_.size() * sizeof(float)));
  DI_CHECK_OK(upload(history_, host_history_.data(), host_history_.size() * sizeof(int32_t)));
  DI_CHECK_OK(upload(masks_, masks.data(), masks.size() * sizeof(uint32_t)));
  SampleParams params{};
  params.rows = {.count = count_.as<int32_t>(), .capacity = max_rows_};
  params.logits = logits;
  params.settings = settings_.as<SampleRow>();
  params.bias_ids = bias_ids_.as<int32_t>();
  params.bias_values = bias_values_.as<float>();
  params.history = history_.as<int32_t>();
  if (!masks.empty()) {
    params.masks = masks_.as<uint32_t>();
    params.mask_words = (vocab_ + 31) / 32;
  }
  params.scratch = scratch_.as<float>();
  params.scratch_rows = device_.parallelism();
  params.results = results_.as<SampleResult>();
  params.vocab = vocab_;
  params.draft_logits = draft_logits;
  device_.ops().sample(params);
  device_.download(host_results_.data(), results_.as<SampleResult>(), rows.size() * sizeof(SampleResult));
  return {};
}

}  // namespace deepinfer
