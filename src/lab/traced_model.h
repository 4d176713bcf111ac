// lab/traced_model.h - a V4.1 model that shows every value of its forward pass, and a recorder that keeps one request's.
//
// The model computes what the one behind it computes. The recorder keeps a hash of every value of every row of the request it
// watches; of a position that runs again (a rejected draft's, a resumed sequence's) the last run counts. So two ways of answering
// a request can be compared value by value, though their steps have nothing in common. Threads: one.
//
//   RowRecorder recorder(device);
//   const TracedModel traced(model, [&](const TracedValue& value) { recorder.note(value); });
//   recorder.watch(id);   // of an engine over `traced`, before its first step
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/v41_model.h"

namespace deepinfer {

struct TracedValue {
  int64_t step;  // counts forward passes
  const StepPlan& plan;
  const ProbePoint& point;
  const StateView& state;
};
using ValueHook = std::function<void(const TracedValue&)>;

// REQUIRES: `model` is a V41Model, or the hook is never called.
class TracedModel final : public LanguageModel {
 public:
  TracedModel(const LanguageModel& model, ValueHook hook) : model_(model), hook_(std::move(hook)) {}

  std::string name() const override { return model_.name(); }
  std::string fingerprint() const override { return model_.fingerprint(); }
  const ModelShape& shape() const override { return model_.shape(); }
  const KvLayout& layout() const override { return model_.layout(); }
  int32_t ranks() const override { return model_.ranks(); }
  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override;
  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override;
  const Drafter* drafter() const override { return model_.drafter(); }

 private:
  const LanguageModel& model_;
  const ValueHook hook_;
  mutable const StepPlan* plan_ = nullptr;  // of the pass being enqueued
  mutable const StateView* state_ = nullptr;
  mutable int64_t steps_ = 0;
};

// Where a request's rows are in a probed value: index of each row, by position.
struct ProbedRow {
  Position position = 0;
  int32_t index = 0;
  TokenId token = 0;
  Position window_floor = 0;  // of a replay, 0 = none
};
std::vector<ProbedRow> rows_in_value(const TracedValue& value, RequestId request);

class RowRecorder {
 public:
  explicit RowRecorder(Device& device) : device_(&device) {}
  void watch(RequestId request) { request_ = request; }
  void note(const TracedValue& value);

  struct Value {
    const char* operation;
    int32_t layer;
    uint64_t hash;
    bool operator==(const Value&) const = default;
  };
  struct Row {
    int64_t step = -1;
    TokenId token = 0;
    Position window_floor = 0;
    std::vector<Value> values;  // in the order in which they are computed
  };
  const std::map<Position, Row>& rows() const { return rows_; }

 private:
  TokenId token_of(TokenId token, const StateView& state);

  Device* device_;
  RequestId request_ = 0;
  std::map<Position, Row> rows_;
  std::vector<uint8_t> bytes_;
};

struct Divergence {
  Position position = 0;
  int32_t layer = 0;
  std::string operation;
};
// The first value that differs, by position, then in the order of computing: what comes before it in this order is all it can
// depend on. Rows that a replay computes with cut windows are not compared (`reach`: how far behind its start that shows).
std::optional<Divergence> first_divergence(const RowRecorder& want, const RowRecorder& got, Position reach);

}  // namespace deepinfer
