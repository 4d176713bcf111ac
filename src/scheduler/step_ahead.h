// scheduler/step_ahead.h - overlap: what may be planned and launched while the last step is still being computed.
//
// A step in flight gives each of its sequences one token that the host does not know yet; the next step names it by the number of
// its draw (core/step_plan.h) and the device puts it in. What a draw needs of the host - masks, penalties, positions - is set up
// when the results before it have been read, while the next forward pass already runs; so only the *rows* of the next step have
// to be known early. They are not known behind drafts, nor before a draft pass, which starts at the last token. A row whose
// sequence turns out to have ended with the token before is computed for nothing, once, and dropped.
// Promise: pure.
#pragma once

#include <cstdint>

namespace deepinfer {

struct StepInFlight {
  bool runs_beside = false;  // the device computes while the host goes on
  int32_t drafts = 0;        // it verifies: how many tokens they give shows in its results
  bool drafts_next = false;  // the next step is to have drafts
  bool masks_ready = true;   // what is drawn behind an unfinished mask is no token, and its row runs again
};

// Whether the step may stay in flight until the next one has been launched.
inline bool stays_in_flight(const StepInFlight& step) {
  return step.runs_beside && step.drafts == 0 && !step.drafts_next && step.masks_ready;
}

// A sequence with rows in the step in flight.
struct SequenceInFlight {
  bool ended = false;
  bool draws = false;
  int64_t answer_tokens = 0;  // known ones
  int64_t most_tokens = 0;    // the answer ends with the last of them
};

// Whether it needs rows in the next step, as far as the host can know.
inline bool goes_on(const SequenceInFlight& sequence) {
  return !sequence.ended && sequence.answer_tokens + (sequence.draws ? 1 : 0) < sequence.most_tokens;
}

}  // namespace deepinfer
