// Steps in flight: launched, settled, or given up.
#include <algorithm>
#include <utility>

#include "engine/loop.h"

namespace deepinfer {

void Engine::Loop::run(Flight& next, Status status) {
  const bool behind = in_flight_ != nullptr;
  // Masks are functions of the answer so far: with a step in flight that is not known yet.
  if (!behind) sampler_->begin_masks(next.draws);
  if (status) status = launch(next);
  if (behind) {
    if (!settle()) return;  // and `next` was given up with it
    sampler_->begin_masks(next.draws);
  }
  if (status) status = enqueue_draws(next);
  if (!status) return give_up(status.error(), next);
  in_flight_ = &next;
  if (!stays(next)) {
    settle();
  } else if (!behind) {
    publish({}, nullptr);
  }
}

Status Engine::Loop::launch(Flight& flight) {
  flight.begin_us = step_clock_.now_us();
  flight.status = {};
  for (const SequenceRows& rows : flight.plan.sequences) ++by_slot_[static_cast<size_t>(rows.slot)]->in_flight;
  DI_CHECK_OK(model_.forward(flight.plan, state(), *workspace_));
  if (speculation_) DI_CHECK_OK(speculation_->note_rows(state(), *workspace_));
  if (in_flight_) static_cast<void>(device_.record());  // nothing keeps it from beginning
  return {};
}

Status Engine::Loop::enqueue_draws(Flight& flight) {
  if (flight.draws.empty()) {
    sampler_->drop_masks();
  } else {
    const float* draft_logits = speculation_ ? speculation_->draft_logits(*workspace_) : nullptr;
    DI_CHECK_OK(sampler_->enqueue(flight.draws, workspace_->logits(), draft_logits));
  }
  int32_t draws = 0;
  for (const SequenceRows& rows : flight.plan.sequences) {
    Sequence& sequence = *by_slot_[static_cast<size_t>(rows.slot)];
    draws += rows.num_logits;
    sequence.launched = rows.begin + rows.count;
    sequence.draw = rows.num_logits > 0 ? draws - 1 : -1;
    if (!sequence.ended()) cache_->step_enqueued(sequence.cache, rows.begin, rows.begin + rows.count);
  }
  flight.ticket = device_.record();
  return {};
}

bool Engine::Loop::stays(const Flight& flight) const {
  int64_t decoding = 0;
  StepInFlight step{.runs_beside = overlaps_};
  for (size_t i = 0; i < flight.draws.size(); ++i) step.masks_ready &= sampler_->mask_state(i) != MaskFill::kUnfinished;
  for (const SequenceRows& rows : flight.plan.sequences) {
    decoding += rows.num_logits > 0;
    step.drafts += std::max(0, rows.num_logits - 1);
  }
  step.drafts_next = speculation_ && !speculation_->rests(decoding);
  return stays_in_flight(step);
}

// False when it failed: then all that ran has ended, and what was launched behind it is given up, too.
bool Engine::Loop::settle() {
  const Flight& flight = *std::exchange(in_flight_, nullptr);
  const Status done = device_.wait(flight.ticket);
  note_times(flight);
  if (const Status& status = done ? flight.status : done; !status) {
    give_up(status.error(), flight);
    return false;
  }
  read_inbox();
  expire();
  land(flight);
  commit(flight.plan);
  retire();
  cache_->settle(flight.ticket, true);
  publish({}, &flight.plan);
  return true;
}

void Engine::Loop::land(const Flight& flight) {
  for (const SequenceRows& rows : flight.plan.sequences) {
    Sequence& sequence = *by_slot_[static_cast<size_t>(rows.slot)];
    --sequence.in_flight;
    sequence.draw = -1;
  }
}

// Slots and pages are given back only when nothing can touch them any more.
void Engine::Loop::give_up(const Error& error, const Flight& flight) {
  sampler_->drop_masks();
  const Ticket last = device_.record();
  static_cast<void>(device_.wait(last));
  read_inbox();
  expire();
  for (auto& sequence : running_) {
    sequence->in_flight = 0;
    sequence->draw = -1;
  }
  fail_running(error);
  retire();
  cache_->settle(last, false);
  publish(error, &flight.plan);
}

void Engine::Loop::note_times(const Flight& flight) {
  const int64_t end_us = step_clock_.now_us();
  // A step that was launched early begins when the one before has ended.
  step_us_ = end_us - std::max(flight.begin_us, idle_since_us_);
  // A draft pass computes, too.
  const int64_t draft_us = speculation_ ? speculation_->pass_us() : 0;
  if (idle_since_us_ > 0) counts_.between_us += std::max<int64_t>(0, flight.begin_us - idle_since_us_ - draft_us);
  idle_since_us_ = end_us;
  const auto& sequences = flight.plan.sequences;
  const auto decodes = std::count_if(sequences.begin(), sequences.end(), is_decode);
  const StepKind kind = decodes == 0                                        ? StepKind::kPrefill
                        : decodes == static_cast<int64_t>(sequences.size()) ? StepKind::kDecode
                                                                            : StepKind::kMixed;
  StepTimes& times = counts_.times[static_cast<size_t>(kind)];
  ++times.steps;
  times.rows += flight.plan.num_rows();
  times.us += step_us_;
}

}  // namespace deepinfer
