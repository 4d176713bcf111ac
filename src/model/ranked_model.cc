#include "model/ranked_model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "model/v41_rows.h"

namespace deepinfer {

struct RankedModel::Scratch final : Workspace {
  // What one rank has of a pass.
  struct Part {
    std::unique_ptr<V41Workspace> workspace;
    StepPlan plan;
    std::vector<int32_t> places;  // of its logit rows in the whole step, or of its sequences in the whole batch
    std::vector<DraftSequence> sequences;
    std::vector<SampleRow> draws;
    std::vector<SampleResult> results;
    std::vector<float> confidence;
    Status status;
  };
  const float* logits() const override { return all_logits.as<float>(); }

  std::vector<Part> parts;
  Buffer all_logits;
};

namespace {

template <class Part>
void deal_out(const StepPlan& plan, std::vector<Part>& parts) {
  MostRows most;
  for (size_t r = 0; r < parts.size(); ++r) {
    Part& part = parts[r];
    take_rank(plan, static_cast<int32_t>(r), part.plan);
    most.encoder = std::max(most.encoder, part.plan.num_rows());
    most.decoder = std::max(most.decoder, count_decoder_rows(part.plan));
    part.places.clear();
  }
  for (Part& part : parts) part.workspace->most_rows = most;
  int32_t place = 0;
  for (const SequenceRows& rows : plan.sequences) {
    for (int32_t i = 0; i < rows.num_logits; ++i) parts[static_cast<size_t>(rows.rank)].places.push_back(place++);
  }
}

template <class Part>
void deal_out(const DraftBatch& batch, int32_t width, std::vector<Part>& parts) {
  for (Part& part : parts) part.sequences.clear(), part.draws.clear(), part.places.clear();
  int32_t place = 0;
  for (const DraftSequence& sequence : batch.sequences) {
    Part& part = parts[static_cast<size_t>(sequence.rank)];
    part.sequences.push_back(sequence);
    part.places.push_back(place++);
  }
  size_t most = 0;
  for (Part& part : parts) {
    most = std::max(most, part.places.size());
    for (int32_t k = 0; k < width && !batch.draws.empty(); ++k) {
      for (const int32_t at : part.places) part.draws.push_back(batch.draws[static_cast<size_t>(k * place + at)]);
    }
    part.results.resize(part.places.size() * static_cast<size_t>(width));
    part.confidence.resize(part.results.size());
  }
  for (Part& part : parts) part.workspace->most_rows = {.encoder = static_cast<int32_t>(most) * width};
}

template <class Part>
void collect(const std::vector<Part>& parts, size_t sequences, const DraftOutput& out) {
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.results.size(); ++i) {
      const size_t mine = part.places.size();
      const size_t at = i / mine * sequences + static_cast<size_t>(part.places[i % mine]);
      out.draws[at] = part.results[i];
      out.confidence[at] = part.confidence[i];
    }
  }
}

}  // namespace

Result<std::unique_ptr<RankedModel>> RankedModel::create(const V41Model& model, std::vector<std::unique_ptr<Device>> devices) {
  std::unique_ptr<RankedModel> ranked(new RankedModel(model, static_cast<int32_t>(devices.size())));
  for (auto& device : devices) {
    if (device->runs_beside_host()) return unsupported("ranks of one process need devices that compute in their own thread");
    Rank rank{.device = std::move(device)};
    rank.communicator = ranked->group_.join(static_cast<int32_t>(ranked->ranks_.size()));
    DI_TRY(rank.model, V41Model::of_rank(*rank.device, model, *rank.communicator));
    ranked->ranks_.push_back(std::move(rank));
  }
  return ranked;
}

// Every rank may get all of a step: memory that it does not touch costs nothing.
Result<std::unique_ptr<Workspace>> RankedModel::make_workspace(Device& device, const WorkspaceLimits& limits) const {
  auto scratch = std::make_unique<Scratch>();
  for (const Rank& rank : ranks_) {
    auto& part = scratch->parts.emplace_back();
    DI_TRY(part.workspace, rank.model->make_test_workspace({limits}));
    const auto rows = static_cast<size_t>(limits.max_rows), sequences = static_cast<size_t>(limits.max_logits);
    part.plan.tokens.reserve(rows);
    part.plan.sequences.reserve(rows);
    part.places.reserve(sequences);
    const auto drafts = static_cast<size_t>(limits.max_drafts);
    part.sequences.reserve(drafts);
    const size_t draws = drafts > 0 ? drafts * static_cast<size_t>(drafter_.width()) : 0;
    part.draws.reserve(draws), part.results.reserve(draws), part.confidence.reserve(draws);
  }
  DI_TRY(scratch->all_logits,
         device.allocate(static_cast<size_t>(limits.max_logits) * static_cast<size_t>(shape().vocab) * sizeof(float)));
  return std::unique_ptr<Workspace>(std::move(scratch));
}

Status RankedModel::on_all(Scratch& scratch, FunctionRef<Status(size_t rank)> fn) const {
  team_.run(ranks(), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) scratch.parts[static_cast<size_t>(r)].status = fn(static_cast<size_t>(r));
  });
  for (const auto& part : scratch.parts) DI_CHECK_OK(part.status);
  return {};
}

// What a rank could refuse is asked before the first begins: the others would wait for it for ever.
Status RankedModel::forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  for (const SequenceRows& rows : plan.sequences) {
    if (rows.rank < 0 || rows.rank >= ranks())
      return internal_error(fmt::format("a step plan for rank {} of {}", rows.rank, ranks()));
  }
  if (static_cast<size_t>(plan.num_logits()) * static_cast<size_t>(shape().vocab) * sizeof(float) > scratch.all_logits.bytes())
    return internal_error(fmt::format("a step of {} logit rows exceeds the workspace", plan.num_logits()));
  deal_out(plan, scratch.parts);
  for (size_t r = 0; r < ranks_.size(); ++r)
    DI_CHECK_OK(ranks_[r].model->check(scratch.parts[r].plan, *scratch.parts[r].workspace));
  return on_all(scratch, [&](size_t r) -> Status {
    Scratch::Part& part = scratch.parts[r];
    DI_CHECK_OK(ranks_[r].model->forward(part.plan, state, *part.workspace));
    DI_CHECK_OK(ranks_[r].device->wait(ranks_[r].device->record()));
    const auto width = static_cast<size_t>(shape().vocab);
    const float* from = part.workspace->logits();
    for (const int32_t place : part.places) {
      std::memcpy(scratch.all_logits.as<float>() + static_cast<size_t>(place) * width, from, width * sizeof(float));
      from += width;
    }
    return {};
  });
}

Status RankedModel::Drafts::note_rows(const StateView& state, Workspace& workspace) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  return model_.on_all(
      scratch, [&](size_t r) { return model_.ranks_[r].model->drafter()->note_rows(state, *scratch.parts[r].workspace); });
}

Status RankedModel::Drafts::draft(const DraftBatch& batch, const StateView& state, Workspace& workspace,
                                  const DraftOutput& out) const {
  auto& scratch = static_cast<Scratch&>(workspace);
  const size_t sequences = batch.sequences.size();
  if (static_cast<int64_t>(sequences) > scratch.parts[0].workspace->limits.max_drafts ||
      (!batch.draws.empty() && batch.draws.size() != sequences * static_cast<size_t>(width())))
    return internal_error(fmt::format("a draft pass of {} sequences and {} draws does not fit", sequences, batch.draws.size()));
  deal_out(batch, width(), scratch.parts);
  DI_CHECK_OK(model_.on_all(scratch, [&](size_t r) {
    Scratch::Part& part = scratch.parts[r];
    return model_.ranks_[r].model->drafter()->draft({part.sequences, part.draws}, state, *part.workspace,
                                                    {part.results.data(), part.confidence.data()});
  }));
  collect(scratch.parts, sequences, out);
  return {};
}

}  // namespace deepinfer
