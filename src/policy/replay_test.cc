#include "policy/replay.h"

#include <gtest/gtest.h>

#include "policy/preemption.h"

namespace deepinfer {
namespace {

// The release: 40 layers, candidate layer 20, windows of 128, pages of 64 (kv_cache.md sections 4 and 5).
constexpr ReplayRules kRelease{ReplayMode::kDecoder, 128, 128, 20, 40, 64};

ReplayRules with_mode(ReplayMode mode) {
  ReplayRules rules = kRelease;
  rules.mode = mode;
  return rules;
}

TEST(Replay, TheDecoderStartsAtTheKeptSuffix) {
  EXPECT_EQ(decoder_start(kRelease, 100), 0);
  EXPECT_EQ(decoder_start(kRelease, 1000), 872);
  EXPECT_EQ(decoder_start(with_mode(ReplayMode::kOff), 1000), 0);
}

TEST(Replay, ASnapshotLiesWhereEveryLongerPromptCanUseIt) {
  EXPECT_EQ(snapshot_border(kRelease, 255), 0);
  EXPECT_EQ(snapshot_border(kRelease, 1000), (1000 - 128 - 127) / 64 * 64);
  // At most 318 tokens before the end of the turn are computed again.
  for (Position end = 255; end < 2000; ++end) {
    EXPECT_LE(end - snapshot_border(kRelease, end), 318);
    EXPECT_LE(snapshot_border(kRelease, end), latest_resume(kRelease, end));
  }
  EXPECT_EQ(snapshot_border(with_mode(ReplayMode::kOff), 1000), 960);
  EXPECT_EQ(snapshot_border(with_mode(ReplayMode::kOff), 1024), 960);  // one token must be left to compute
}

TEST(Replay, WithoutASnapshotWindowsRestartFarEnoughBack) {
  // Rows wanted exact begin at N - R - 127; 20 layers see 127 rows back each (the table's 2,540).
  const ReplayStart start = replay_start(kRelease, 10000, 9984);
  EXPECT_EQ(start.begin, (10000 - 255 - 2540) / 64 * 64);
  EXPECT_EQ(start.window_floor, start.begin);
  EXPECT_EQ(start.exact_from, start.begin + 2540);
  // A hit that ends earlier counts from its end: pages behind it are written, so they must be exact.
  EXPECT_EQ(replay_start(kRelease, 10000, 6400).begin, (6400 - 2540) / 64 * 64);
  const ReplayStart whole = replay_start(kRelease, 2000, 1984);
  EXPECT_EQ(whole.begin, 0);
  EXPECT_EQ(whole.exact_from, 0);
}

TEST(Replay, TheNewestSnapshotThatServesIsTaken) {
  const auto everywhere = [](Position) { return true; };
  const auto at_6400 = [](Position border) { return border == 6400; };
  // Not the newest of all: rows from N - R - 127 on must be run again.
  EXPECT_EQ(resume_start(kRelease, 10000, 9984, everywhere).begin, (10000 - 255) / 64 * 64);
  EXPECT_EQ(resume_start(kRelease, 10000, 6400, everywhere).begin, 6400);
  EXPECT_EQ(resume_start(kRelease, 10000, 9984, at_6400).begin, (10000 - 255 - 2540) / 64 * 64) << "a replay is shorter";
  EXPECT_EQ(resume_start(kRelease, 8000, 7936, at_6400).begin, 6400);
  EXPECT_EQ(resume_start(kRelease, 8000, 7936, at_6400).window_floor, 0);
  EXPECT_EQ(resume_start(kRelease, 8000, 0, everywhere).begin, 0);
}

TEST(Replay, FullRestartsOneWindowBack) {
  const ReplayRules full = with_mode(ReplayMode::kFull);
  EXPECT_EQ(replay_start(full, 10000, 9984).begin, 9856);
  EXPECT_EQ(replay_start(full, 10000, 9920).begin, 9792);
  EXPECT_EQ(replay_start(full, 130, 64).begin, 0);
}

TEST(Replay, AModelWithoutCandidateLayerRunsEverything) {
  ModelShape shape;
  shape.layers = 3, shape.window = 16;
  EXPECT_EQ(replay_rules(shape, ReplayMode::kDecoder, 16, 8).mode, ReplayMode::kOff);
  EXPECT_EQ(snapshot_layers(replay_rules(shape, ReplayMode::kFull, 16, 8)), 3);
}

TEST(Preemption, TheLatestOfTheLowestPriorityGivesWay) {
  EXPECT_EQ(choose_victim(std::vector<PreemptionCandidate>{{0, 5}}), 0u);
  EXPECT_EQ(choose_victim(std::vector<PreemptionCandidate>{{0, 5}, {0, 9}, {0, 7}}), 1u);
  EXPECT_EQ(choose_victim(std::vector<PreemptionCandidate>{{1, 9}, {0, 5}, {2, 1}}), 1u);
}

}  // namespace
}  // namespace deepinfer
