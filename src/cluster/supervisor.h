// cluster/supervisor.h - child processes that are kept running.
//
// A child that ends is started again after a pause that doubles from half a second to ten. One that refuses its arguments (exit
// code 2), cannot be started, or fails three times in a row within half a minute of its start, for the same reason, is an Error,
// because it never will run. Children get SIGTERM when this process dies, however it dies. Threads: one, the one that made it.
//
//   Supervisor children(program);
//   DI_CHECK_OK(children.start({.name = "worker 1", .words = {"serve", "--worker-port", "8101"}}));
//   while (!asked_to_stop) { DI_CHECK_OK(children.tend()); wait(); }
//   children.stop("router", 30'000'000);
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace deepinfer {

struct ChildSpec {
  std::string name;
  std::vector<std::string> words;  // behind the program's name
  bool is_quiet = false;           // its standard output is dropped
  bool may_fail = false;           // at its start, again and again
  std::string program;             // "" = the supervisor's; a bare name is looked for as a shell does
};

class Supervisor {
 public:
  // `told` gets a line when a child ends or is started again, and what children say on standard error, behind their name.
  Supervisor(std::string program, std::function<void(const std::string&)> told);
  ~Supervisor();  // SIGKILL to whoever is left
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  Status start(ChildSpec spec);
  // Looks after all of them; call it some times a second.
  Status tend();
  // SIGTERM to the child of that name, which is not started again; tend() sees it go.
  void retire(const std::string& name);
  // SIGTERM to children whose name begins so, SIGKILL to those that are still there after `limit_us`.
  // `hurry`, when given, ends the wait.
  void stop(const std::string& prefix, int64_t limit_us, const std::function<bool()>& hurry = {});

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;  // 0: not running
    bool is_retired = false, has_settled = false;
    int said = -1;  // its standard error
    std::string unread, last_said, failed_with;
    int failures = 0;  // at its start, all with that
    int64_t started_us = 0, again_at_us = 0, pause_us = 0;
  };
  Status spawn(Child& child);
  Status note_end(Child& child, int status);
  void hear(Child& child);
  void erase_if(const std::function<bool(const Child&)>& gone);

  const std::string program_;
  const std::function<void(const std::string&)> told_;
  const SteadyClock clock_;
  std::vector<Child> children_;
};

}  // namespace deepinfer
