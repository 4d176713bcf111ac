// server/engine_link.h - engine events to the server's thread, one wake-up a step.
//
// The engine calls a handler for every token; waking the server's thread each time would cost more than the token. Events are
// collected and step_end() hands them over together.
// Threads: handler() on the server's thread, the handlers and step_end() on the engine's.
//
//   EngineLink link;
//   HostOptions options{.step_end = [&] { link.step_end(); }};
//   link.connect([&](std::function<void()> work) { http->post(std::move(work)); });
//   engine.submit(request, link.handler(sink, 0));
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/token_service.h"

namespace deepinfer {

// Takes the events of requests on the server's thread.
class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual void take(size_t choice, const Event& event) = 0;
};

class EngineLink {
 public:
  using Post = std::function<void(std::function<void()>)>;
  void connect(Post post) { post_ = std::move(post); }

  EventHandler handler(std::shared_ptr<EngineSink> sink, size_t choice) {
    return [this, sink = std::move(sink), choice](const Event& event) {
      const std::lock_guard lock(mutex_);
      pending_.push_back({sink, choice, event});
    };
  }

  void step_end() {
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty() || posted_) return;
      posted_ = true;
    }
    post_([this] { deliver(); });
  }

 private:
  struct Item {
    std::shared_ptr<EngineSink> sink;
    size_t choice;
    Event event;
  };

  void deliver() {
    {
      const std::lock_guard lock(mutex_);
      posted_ = false;
      taken_.swap(pending_);
    }
    for (const Item& item : taken_) item.sink->take(item.choice, item.event);
    taken_.clear();
  }

  Post post_;
  std::mutex mutex_;
  std::vector<Item> pending_, taken_;
  bool posted_ = false;
};

}  // namespace deepinfer
