// server/answers.h - routes the engine answers: which wire, where its request is prepared, which answers are under way.
//
// Threads: the server's.
#pragma once

#include <memory>
#include <vector>

#include "server/generation.h"

namespace deepinfer {

class Answers {
 public:
  explicit Answers(ServerContext& context) : context_(context) {}

  // Chat, Completions, Messages, Responses. REQUIRES: the call's route is one of these.
  void answer(const CallPtr& call);
  // How many tokens the prompt of a Messages or Responses body has.
  void count_tokens(const CallPtr& call);
  // Once a second: streams that are silent get a sign of life.
  void keep_alive(int64_t now_us);

 private:
  ServerContext& context_;
  std::vector<std::weak_ptr<Generation>> generations_;
};

}  // namespace deepinfer
