#include "lab/sweep_drafters.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

Status SpoiledDrafter::draft(const DraftBatch& batch, const StateView& state, Workspace& workspace,
                             const DraftOutput& out) const {
  constexpr size_t kBurst = 32;
  constexpr float kSure = 3;
  DI_CHECK_OK(inner_.draft(batch, state, workspace, out));
  DI_CHECK_OK(device_.wait(device_.record()));
  const size_t n = batch.sequences.size();
  for (size_t i = 0; i < n; ++i) {
    if (batch.sequences[i].tokens.size() / kBurst % 2 == 0) continue;
    for (size_t k = 0; k < static_cast<size_t>(width()); ++k) {
      TokenId& token = out.draws[k * n + i].token;
      token = token > 2 ? token - 1 : token + 2;
      out.confidence[k * n + i] = kSure;
    }
  }
  return {};
}

Status RecordingDrafter::draft(const DraftBatch& batch, const StateView& state, Workspace& workspace,
                               const DraftOutput& out) const {
  DI_CHECK_OK(inner_.draft(batch, state, workspace, out));
  DI_CHECK_OK(device_.wait(device_.record()));
  const size_t n = batch.sequences.size(), width = std::min(static_cast<size_t>(inner_.width()), size_t{kMaxDraft});
  auto& pass = passes_.emplace_back();
  for (size_t i = 0; i < n; ++i) {
    Block& block = pass.emplace_back(Block{batch.draws[i].seed, batch.sequences[i].tokens.size(), {}, {}});
    block.drafts.fill(-1);
    for (size_t k = 0; k < width; ++k) {
      block.drafts[k] = out.draws[k * n + i].token;
      block.logits[k] = out.confidence[k * n + i];
    }
  }
  return {};
}

std::vector<std::vector<VerifiedBlock>> RecordingDrafter::blocks(const SweepAnswers& answers,
                                                                 const std::map<uint64_t, size_t>& prompts) const {
  std::vector<std::vector<VerifiedBlock>> out;
  for (const auto& pass : passes_) {
    auto& blocks = out.emplace_back();
    for (const Block& block : pass) {
      const auto& answer = answers.at(block.seed);
      const size_t at = block.tokens - prompts.at(block.seed);
      const size_t observed = std::min(static_cast<size_t>(width()), answer.size() - std::min(answer.size(), at));
      size_t accepted = 0;
      while (accepted < observed && block.drafts[accepted] == answer[at + accepted]) ++accepted;
      blocks.push_back({block.logits, static_cast<int8_t>(observed), static_cast<int8_t>(accepted)});
    }
  }
  return out;
}

std::vector<uint32_t> patterns_for(double tokens) {
  constexpr int kPatterns = 20;
  std::vector<uint32_t> patterns;
  for (int i = 0; i < kPatterns; ++i) {
    const double before = (tokens - 1) * i, after = (tokens - 1) * (i + 1);
    const int right = std::clamp(static_cast<int>(std::floor(after + 1e-9) - std::floor(before + 1e-9)), 0, 5);
    patterns.push_back((1u << right) - 1);
  }
  return patterns;
}

}  // namespace deepinfer
