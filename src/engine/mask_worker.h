// engine/mask_worker.h - the masks of a step, computed beside the model.
//
// begin() hands the rows of a step to a thread of its own and returns; the model may then run. finish() takes over whatever the
// thread has not begun, so a thread without a processor delays at most the one it has begun. Where the masks of the last step
// took less than waking a thread costs, which takes a processor from the model's, finish() makes them all. A mask that is not
// ready a few milliseconds later is left for the next step: its row sits this one out, and nobody else waits. What a mask says
// depends on its sequence only, never on who computes it or in how many steps. REQUIRES: between the two, nobody else touches the
// masks of these sequences. finish() follows each begin(). Threads: the engine's.
//
//   worker.begin(rows, vocab);
//   ... model.forward ...
//   const std::vector<uint32_t>& words = worker.finish();   // [rows, words of the vocabulary]; empty when no row is masked
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "engine/sequence.h"

namespace deepinfer {

// A draw at the position behind a sequence's tokens and the first `drafts` of its drafts, as if those were accepted.
struct DrawRow {
  const Sequence* sequence = nullptr;
  int32_t drafts = 0;
};

class MaskWorker {
 public:
  MaskWorker() = default;
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;
  ~MaskWorker();

  // Rows of one sequence lie together, by growing number of drafts.
  void begin(std::span<const DrawRow> rows, int32_t vocab);
  const std::vector<uint32_t>& finish();
  // After finish(): whether the words of row i are its mask. Rows without a mask are ready.
  MaskFill state(size_t row) const { return states_[row]; }

 private:
  // Rows of one sequence, which share its mask.
  struct Group {
    size_t begin, end;
  };
  void add_groups(std::span<const DrawRow> rows, bool waiting);
  void wake();
  void work();
  void fill_groups(uint64_t step);
  void fill(const Group& group, bool always);

  std::vector<DrawRow> rows_;
  std::vector<Group> groups_;
  size_t first_waiting_ = 0;  // of groups_: from here on sequences that sat out the last step
  std::vector<uint32_t> words_;
  std::vector<MaskFill> states_;  // by row
  MaskDeadline deadline_;
  size_t row_words_ = 0;
  // Which step is at hand and how many of its groups are begun: step * 2^32 + begun. A thread late from an old step finds that
  // its number has passed.
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> num_groups_{0};
  std::atomic<uint64_t> done_{0};     // groups of this step
  std::atomic<uint64_t> step_{0};     // 0 = none yet; kStop = the thread ends
  std::atomic<int64_t> spent_us_{0};  // on the masks of this step
  std::thread thread_;
};

}  // namespace deepinfer
