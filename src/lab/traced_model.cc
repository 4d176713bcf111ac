#include "lab/traced_model.h"

#include <algorithm>

#include "base/hash.h"

namespace deepinfer {

Result<std::unique_ptr<Workspace>> TracedModel::make_workspace(Device& device, const WorkspaceLimits& limits) const {
  DI_TRY(auto workspace, model_.make_workspace(device, limits));
  // Draft passes show their values, too; those are no part of an answer.
  if (auto* v41 = dynamic_cast<V41Workspace*>(workspace.get())) {
    v41->probe = [this](const ProbePoint& point) {
      if (plan_) hook_({steps_, *plan_, point, *state_});
    };
  }
  return workspace;
}

Status TracedModel::forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const {
  ++steps_;
  plan_ = &plan, state_ = &state;
  const Status status = model_.forward(plan, state, workspace);
  plan_ = nullptr;
  return status;
}

// Decoder rows are the plan's rows from each sequence's decoder_begin on, in order.
std::vector<ProbedRow> rows_in_value(const TracedValue& value, RequestId request) {
  std::vector<ProbedRow> out;
  int32_t index = 0;
  for (const SequenceRows& rows : value.plan.sequences) {
    for (int32_t i = 0; i < rows.count; ++i) {
      const Position position = rows.begin + i;
      if (value.point.decoder_rows && position < rows.decoder_begin) continue;
      if (rows.request == request)
        out.push_back({position, index, value.plan.tokens[static_cast<size_t>(rows.first_token + i)], rows.encoder_window_floor});
      ++index;
    }
  }
  return out;
}

// A plan may name a token by its draw.
TokenId RowRecorder::token_of(TokenId token, const StateView& state) {
  if (token >= 0 || !state.draws) return token;
  SampleResult drawn{};
  device_->download(&drawn, state.draws + draw_of_token(token), sizeof drawn);
  return device_->wait(device_->record()) ? drawn.token : token;
}

void RowRecorder::note(const TracedValue& value) {
  const ProbePoint& point = value.point;
  for (const ProbedRow& probed : rows_in_value(value, request_)) {
    if (probed.index >= point.rows) continue;
    Row& row = rows_[probed.position];
    if (row.step != value.step) row = {value.step, token_of(probed.token, value.state), probed.window_floor, {}};
    bytes_.resize(static_cast<size_t>(point.row_bytes));
    device_->download(bytes_.data(), static_cast<const uint8_t*>(point.data) + probed.index * point.row_bytes, bytes_.size());
    if (!device_->wait(device_->record())) return;
    const std::string_view bytes(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    row.values.push_back({point.name, point.layer, hash_bytes(bytes)});
  }
}

std::optional<Divergence> first_divergence(const RowRecorder& want, const RowRecorder& got, Position reach) {
  const auto cut = [&](const RowRecorder::Row& row, Position at) {
    return row.window_floor > 0 && at < row.window_floor + reach;
  };
  for (const auto& [position, row] : got.rows()) {
    const auto other = want.rows().find(position);
    if (other == want.rows().end() || cut(row, position) || cut(other->second, position)) continue;
    // Behind a token that was drawn differently everything differs.
    if (row.token != other->second.token) return std::nullopt;
    const auto& a = row.values;
    const auto& b = other->second.values;
    const auto [mine, theirs] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (mine == a.end() || theirs == b.end()) continue;
    return Divergence{position, mine->layer, mine->operation};
  }
  return std::nullopt;
}

}  // namespace deepinfer
