#include "cluster/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace deepinfer {
namespace {

constexpr int64_t kFirstPauseUs = 500'000, kLongestPauseUs = 10'000'000, kSettledUs = 30'000'000;
constexpr int kRefusedArguments = 2, kMostFailures = 3;
constexpr size_t kLongestLine = 1 << 16;

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(const char* program, char* const* words, bool is_quiet, int says, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGTERM, SIGINT, SIGPIPE}) ::signal(signal, SIG_DFL);
  // Ctrl-C of the terminal is the supervisor's to hand on.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(says, STDERR_FILENO);
  if (is_quiet) {
    if (const int nothing = ::open("/dev/null", O_WRONLY); nothing >= 0) ::dup2(nothing, STDOUT_FILENO);
  }
  ::execvp(program, words);
  for (const char* part : {"deepinfer: ", program, ": cannot be run\n"})
    static_cast<void>(!::write(STDERR_FILENO, part, std::strlen(part)));
  ::_exit(127);
}

}  // namespace

Supervisor::Supervisor(std::string program, std::function<void(const std::string&)> told)
    : program_(std::move(program)), told_(std::move(told)) {}

Supervisor::~Supervisor() { stop("", 0); }

Status Supervisor::start(ChildSpec spec) {
  children_.push_back({.spec = std::move(spec)});
  return spawn(children_.back());
}

Status Supervisor::spawn(Child& child) {
  const std::string& program = child.spec.program.empty() ? program_ : child.spec.program;
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& word : child.spec.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return io_error(fmt::format("cannot start {}: {}", child.spec.name, std::strerror(errno)));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(program.c_str(), words.data(), child.spec.is_quiet, ends[1], parent);
  ::close(ends[1]);
  if (child.said >= 0) ::close(child.said);
  child.said = ends[0];
  child.unread.clear();
  child.last_said.clear();
  if (pid < 0) return io_error(fmt::format("cannot start {}: {}", child.spec.name, std::strerror(errno)));
  child.pid = pid;
  child.started_us = clock_.now_us();
  return {};
}

// Lines of an access log are for programs and stay as they are.
void Supervisor::hear(Child& child) {
  char piece[4096];
  for (ssize_t bytes = 0; child.said >= 0 && (bytes = ::read(child.said, piece, sizeof(piece))) > 0;) {
    child.unread.append(piece, static_cast<size_t>(bytes));
    for (size_t end = child.unread.find('\n'); end != std::string::npos || child.unread.size() > kLongestLine;
         end = child.unread.find('\n')) {
      std::string line = child.unread.substr(0, end);
      child.unread.erase(0, end == std::string::npos ? end : end + 1);
      if (line.starts_with('{')) {
        line += '\n';
        static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
        continue;
      }
      constexpr std::string_view kOurs = "deepinfer: ";
      child.last_said = line.starts_with(kOurs) ? line.substr(kOurs.size()) : line;
      told_(child.spec.name + ": " + child.last_said);
    }
  }
}

Status Supervisor::note_end(Child& child, int status) {
  child.pid = 0;
  hear(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return not_found(
        fmt::format("{} is not installed, or not in PATH (Debian: apt-get install etcd-server); or name one that "
                    "runs in the cluster file: [etcd] endpoints = \"http://HOST:PORT\"",
                    child.spec.name));
  const bool refused = WIFEXITED(status) && WEXITSTATUS(status) == kRefusedArguments && !child.spec.may_fail;
  if (refused)
    return invalid_argument(fmt::format("{} does not run with its settings; its own message is above", child.spec.name));
  const bool was_settled = clock_.now_us() - child.started_us > kSettledUs;
  child.has_settled |= was_settled;
  const bool failed = WIFEXITED(status) && WEXITSTATUS(status) != 0 && !child.has_settled && !child.spec.may_fail;
  child.failures = !failed ? 0 : std::exchange(child.failed_with, child.last_said) == child.last_said ? child.failures + 1 : 1;
  if (child.failures == kMostFailures)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} fails whenever it starts: {}", child.spec.name,
                             child.last_said.empty() ? fmt::format("exit code {}", WEXITSTATUS(status)) : child.last_said)};
  child.pause_us = was_settled || child.pause_us == 0 ? kFirstPauseUs : std::min(child.pause_us * 2, kLongestPauseUs);
  child.again_at_us = clock_.now_us() + child.pause_us;
  const std::string how = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                              : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  told_(fmt::format("{} {}; it starts again in {:.1f} s", child.spec.name, how, static_cast<double>(child.pause_us) / 1e6));
  return {};
}

Status Supervisor::tend() {
  for (Child& child : children_) {
    hear(child);
    int status = 0;
    const bool ended = child.pid > 0 && ::waitpid(child.pid, &status, WNOHANG) == child.pid;
    if (ended && child.is_retired) child.pid = 0;
    if (ended && !child.is_retired) DI_CHECK_OK(note_end(child, status));
    if (child.pid == 0 && !child.is_retired && clock_.now_us() >= child.again_at_us) DI_CHECK_OK(spawn(child));
  }
  erase_if([](const Child& child) { return child.is_retired && child.pid == 0; });
  return {};
}

void Supervisor::erase_if(const std::function<bool(const Child&)>& gone) {
  for (Child& child : children_) {
    if (!gone(child)) continue;
    hear(child);
    ::close(child.said);
  }
  std::erase_if(children_, gone);
}

void Supervisor::retire(const std::string& name) {
  for (Child& child : children_) {
    if (child.spec.name != name || child.is_retired) continue;
    child.is_retired = true;
    if (child.pid > 0) ::kill(child.pid, SIGTERM);
  }
}

void Supervisor::stop(const std::string& prefix, int64_t limit_us, const std::function<bool()>& hurry) {
  const int64_t end_us = clock_.now_us() + limit_us;
  const auto each = [&](auto act) {
    for (Child& child : children_) {
      if (child.pid > 0 && child.spec.name.starts_with(prefix)) act(child);
    }
  };
  each([](Child& child) { ::kill(child.pid, SIGTERM); });
  for (bool any = true; any && clock_.now_us() < end_us && !(hurry && hurry());) {
    any = false;
    for (Child& child : children_) hear(child);  // whoever is not ended here must not wait for a reader
    each([&](Child& child) {
      if (::waitpid(child.pid, nullptr, WNOHANG) == child.pid) {
        child.pid = 0;
      } else {
        any = true;
      }
    });
    if (any) ::usleep(20'000);
  }
  each([](Child& child) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    child.pid = 0;
  });
  erase_if([&](const Child& child) { return child.spec.name.starts_with(prefix); });
}

}  // namespace deepinfer
