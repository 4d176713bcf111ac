#include "model/oracle_drafter.h"

namespace deepinfer {

namespace {

constexpr float kSure = 3.0f;      // a confidence of 0.95
constexpr TokenId kWrongStep = 2;  // added to a right token; ids below are control tokens

}  // namespace

Status OracleDrafter::draft(const DraftBatch& batch, const StateView&, Workspace&, const DraftOutput& out) const {
  const size_t n = batch.sequences.size();
  for (size_t i = 0; i < n; ++i) {
    const size_t place = batch.sequences[i].tokens.size();
    const uint32_t pattern = patterns_[place % patterns_.size()];
    const auto known = batch.draws.empty() ? answers_.end() : answers_.find(batch.draws[i].seed);
    for (size_t k = 0; k < static_cast<size_t>(width_); ++k) {
      const size_t at = known == answers_.end() ? 0 : place - static_cast<size_t>(known->second.prompt_tokens) + k;
      const bool learned = known != answers_.end() && at < known->second.tokens.size();
      const TokenId token = learned ? known->second.tokens[at] : 0;
      const bool right = learned && (pattern >> k & 1) != 0;
      out.draws[k * n + i].token = right ? token : token > kWrongStep ? token - 1 : token + kWrongStep;
      out.confidence[k * n + i] = right == honest_ ? kSure : -kSure;
    }
  }
  return {};
}

}  // namespace deepinfer
