// core/event_queue.h - events of requests for a thread that waits for them.
//
// The queue's handlers stay valid after the queue is gone (events then go nowhere), so a consumer may leave at any time.
// Threads: pop() from any thread; handlers from the service's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/token_service.h"

namespace deepinfer {

class EventQueue {
 public:
  EventQueue() : state_(std::make_shared<State>()) {}

  // May be handed to several requests; Event::request tells them apart.
  EventHandler handler() const {
    return [state = state_](const Event& event) {
      const std::lock_guard lock(state->mutex);
      state->events.push_back(event);
      state->ready.notify_one();
    };
  }

  Event pop() {
    std::unique_lock lock(state_->mutex);
    state_->ready.wait(lock, [&] { return !state_->events.empty(); });
    return take();
  }

  // Nothing within `patience`: no value. Zero patience looks only.
  std::optional<Event> pop_for(std::chrono::microseconds patience) {
    std::unique_lock lock(state_->mutex);
    if (!state_->ready.wait_for(lock, patience, [&] { return !state_->events.empty(); })) return std::nullopt;
    return take();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    std::deque<Event> events;
  };

  Event take() {
    Event event = std::move(state_->events.front());
    state_->events.pop_front();
    return event;
  }

  std::shared_ptr<State> state_;
};

}  // namespace deepinfer
