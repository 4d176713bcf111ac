#include "lab/eval/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/file.h"
#include "lab/eval/seccomp_filter.h"

namespace deepinfer {
namespace {

constexpr size_t kKeptOutput = 16 << 10;  // the end of what the child says
constexpr int kPollMs = 10;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(-1); }
  int get() const { return fd_; }
  void reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

// Everything the child needs, made before fork: behind it nothing may allocate.
struct ChildPlan {
  const SandboxOptions& options;
  std::vector<sock_filter> filter;  // empty: none
  bool namespaces = false;
  int input = -1, output = -1, status = -1;
};

// What went wrong before the program began; read from a pipe that closes by itself on exec.
struct ChildFault {
  enum class Stage : int32_t { kSetup, kFilter, kExec };
  Stage stage = Stage::kSetup;
  int32_t error = 0;
};

void limit(int what, rlim_t value) {
  const rlimit both{value, value};
  setrlimit(static_cast<__rlimit_resource_t>(what), &both);
}

[[noreturn]] void give_up(const ChildPlan& plan, ChildFault::Stage stage, int error) {
  const ChildFault fault{stage, error};
  const ssize_t written = write(plan.status, &fault, sizeof fault);
  _exit(written < 0 ? 126 : 127);
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  const int silence = open("/dev/null", O_WRONLY);
  if (silence < 0 || chdir("/") != 0) give_up(plan, ChildFault::Stage::kSetup, errno);
  if (dup2(plan.input, 0) < 0 || dup2(silence, 1) < 0 || dup2(plan.output, 2) < 0)
    give_up(plan, ChildFault::Stage::kSetup, errno);
  if (dup2(plan.status, 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) != 0) give_up(plan, ChildFault::Stage::kSetup, errno);
  syscall(SYS_close_range, 4u, ~0u, 0u);
  if (plan.namespaces) unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC);
  const SandboxOptions& options = plan.options;
  limit(RLIMIT_CPU, static_cast<rlim_t>(options.cpu_seconds));
  limit(RLIMIT_AS, static_cast<rlim_t>(options.memory_bytes));
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_NPROC, 1);
  limit(RLIMIT_NOFILE, 64);
  const ChildPlan inside{options, {}, false, 0, 2, 3};
  if (!plan.filter.empty()) {
    if (const int error = install_filter(plan.filter)) give_up(inside, ChildFault::Stage::kFilter, error);
  }
  // A fixed hash seed: the order of a set must not decide a verdict.
  const char* const arguments[] = {"python3", "-s", "-S", "-B", "-", nullptr};
  const char* const environment[] = {"PYTHONHASHSEED=0", "PYTHONSAFEPATH=1", "LC_ALL=C.UTF-8", nullptr};
  execve(options.python.c_str(), const_cast<char* const*>(arguments), const_cast<char* const*>(environment));
  give_up(inside, ChildFault::Stage::kExec, errno);
}

Error setup_error(const char* what) { return io_error(fmt::format("the sandbox cannot {}: {}", what, std::strerror(errno))); }

Status fill(int fd, std::string_view text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return setup_error("hold the program");
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return lseek(fd, 0, SEEK_SET) == 0 ? Status() : setup_error("hold the program");
}

void drain(int fd, std::string& kept) {
  char bytes[4096];
  for (ssize_t got = 0; (got = read(fd, bytes, sizeof bytes)) > 0;) {
    kept.append(bytes, static_cast<size_t>(got));
    if (kept.size() > 2 * kKeptOutput) kept.erase(0, kept.size() - kKeptOutput);
  }
}

struct ChildEnd {
  int status = 0;
  bool timed_out = false, cancelled = false;
  std::string output;
};

// Waits for the child, collects what it says, and leaves nothing of its group behind.
ChildEnd follow(pid_t child, int output, int64_t deadline_us, const std::atomic<bool>* cancelled) {
  ChildEnd end;
  while (waitpid(child, &end.status, WNOHANG) == 0) {
    end.cancelled = cancelled && cancelled->load();
    end.timed_out = now_us() > deadline_us;
    if (end.cancelled || end.timed_out) {
      kill(-child, SIGKILL);
      kill(child, SIGKILL);
      waitpid(child, &end.status, 0);
      break;
    }
    pollfd ready{output, POLLIN, 0};
    // A child that closed its output is waited for, not polled.
    if (poll(&ready, 1, kPollMs) > 0 && !(ready.revents & POLLIN)) usleep(kPollMs * 1000);
    drain(output, end.output);
  }
  kill(-child, SIGKILL);
  drain(output, end.output);
  return end;
}

std::string last_line(std::string_view output) {
  while (!output.empty() && (output.back() == '\n' || output.back() == ' ')) output.remove_suffix(1);
  return std::string(output.substr(output.rfind('\n') + 1).substr(0, 200));
}

std::string failure_of(const ChildEnd& end, const SandboxOptions& options) {
  if (end.timed_out) return fmt::format("took more than {} s", options.wall_us / 1'000'000);
  if (WIFSIGNALED(end.status)) {
    const int number = WTERMSIG(end.status);
    if (number == SIGXCPU || number == SIGKILL) return fmt::format("took more than {} s of processor time", options.cpu_seconds);
    return fmt::format("ended by signal {} ({})", number, strsignal(number));
  }
  const std::string said = last_line(end.output);
  if (WEXITSTATUS(end.status) == 0) return "ended before its tests were through";
  return said.empty() ? fmt::format("exit code {}", WEXITSTATUS(end.status)) : said;
}

bool can_have_namespaces() {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) == 0 ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

constexpr const char* kProbe = R"(
import os, socket
def refused(act):
    try: act()
    except (OSError, RuntimeError): return
    raise SystemExit('not refused: ' + act.__name__)
def open_socket(): socket.socket()
def fork(): os.fork()
def create_file(): os.open('/tmp/deepinfer-probe', os.O_CREAT | os.O_WRONLY)
def signal_parent(): os.kill(os.getppid(), 0)
for act in (open_socket, fork, create_file, signal_parent): refused(act)
)";

}  // namespace

Result<std::unique_ptr<Sandbox>> Sandbox::open(const SandboxOptions& options) {
  if (!file_exists(options.python)) {
    return not_found(fmt::format("{}: not found; this needs Python 3 (Debian: apt install python3), or name it with --python",
                                 options.python));
  }
  std::unique_ptr<Sandbox> sandbox(new Sandbox(options));
  sandbox->has_namespaces_ = can_have_namespaces();
  DI_CHECK_OK(sandbox->prove());
  return sandbox;
}

Status Sandbox::prove() {
  Result<std::optional<std::string>> first = run("pass\n");
  if (!first && first.error().code == ErrorCode::kUnsupported && options_.allow_unsafe) {
    has_filter_ = false;
    first = run("pass\n");
  }
  if (!first) return first.error();
  if (*first) return unsupported(fmt::format("{} does not run in the sandbox: {}", options_.python, **first));
  if (has_filter_) {
    DI_TRY(const std::optional<std::string> leak, run(kProbe));
    if (leak) return unsupported(fmt::format("the sandbox does not hold ({}); untrusted code is not run", *leak));
  }
  description_ = has_filter_ ? "seccomp filter" : "NO filter";
  if (has_namespaces_) description_ += ", own user and network namespaces";
  return {};
}

Result<std::optional<std::string>> Sandbox::run(const std::string& program) {
  const std::string mark = fmt::format("end {:016x}", static_cast<uint64_t>(now_us()) * 0x9E3779B97F4A7C15u + ++runs_);
  Descriptor input(memfd_create("program", MFD_CLOEXEC));
  int ends[2] = {-1, -1}, status_ends[2] = {-1, -1};
  if (input.get() < 0 || pipe2(ends, O_CLOEXEC) != 0) return setup_error("make a pipe");
  Descriptor output(ends[0]), output_in(ends[1]);
  if (pipe2(status_ends, O_CLOEXEC) != 0) return setup_error("make a pipe");
  Descriptor status(status_ends[0]), status_in(status_ends[1]);
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  DI_CHECK_OK(fill(input.get(), fmt::format("{}\nimport os as _os\n_os.write(2, b'\\n{}')\n", program, mark)));
  const ChildPlan plan{options_,        has_filter_ ? python_filter() : std::vector<sock_filter>{},
                       has_namespaces_, input.get(),
                       output_in.get(), status_in.get()};

  places_.acquire();
  const pid_t child = fork();
  if (child == 0) run_child(plan);
  if (child < 0) {
    places_.release();
    return setup_error("start a process");
  }
  output_in.reset(-1);
  status_in.reset(-1);
  ChildFault fault;
  const bool failed = read(status.get(), &fault, sizeof fault) == sizeof fault;
  const ChildEnd end = follow(child, output.get(), now_us() + options_.wall_us, options_.cancelled);
  places_.release();
  if (failed && fault.stage == ChildFault::Stage::kFilter) {
    return unsupported(
        fmt::format("this system permits no seccomp filter ({}): untrusted code is not run; --unsafe-no-sandbox runs it "
                    "without protection",
                    std::strerror(fault.error)));
  }
  if (failed) return io_error(fmt::format("{}: cannot be run: {}", options_.python, std::strerror(fault.error)));
  if (end.cancelled) return Error{ErrorCode::kCancelled, "interrupted"};
  const bool reached = WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0 && end.output.ends_with("\n" + mark);
  return reached ? std::optional<std::string>() : failure_of(end, options_);
}

}  // namespace deepinfer
