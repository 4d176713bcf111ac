#include "apps/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "apps/command.h"

namespace deepinfer {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) {
  if (interrupted.exchange(true)) _exit(kExitInterrupted);
}

std::atomic<int> num_stops{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_stop(int) { ++num_stops; }

// A load shorter than this is over before a bar could be read.
constexpr int64_t kQuietUs = 300'000;

}  // namespace

Status write_out(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return io_error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

bool stdin_is_terminal() { return isatty(STDIN_FILENO); }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO); }
bool stderr_is_terminal() { return isatty(STDERR_FILENO); }

std::atomic<bool>& catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a read that waits returns
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return interrupted;
}

int StopSignals::count() const { return num_stops.load(); }

// A signal interrupts the sleep when this thread gets it; when another one does, the next look is soon.
void StopSignals::wait_ms(int ms) const {
  timespec pause{0, 1'000'000 * std::min(ms, 50)};
  for (int left = ms; left > 0 && nanosleep(&pause, nullptr) == 0; left -= 50) {
    if (ms > 50 && num_stops.load() > 0) return;
  }
}

const StopSignals& catch_stop_signals() {
  static constexpr StopSignals signals;
  struct sigaction action {};
  signal(SIGPIPE, SIG_IGN);
  action.sa_handler = on_stop;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return signals;
}

int64_t monotonic_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ProgressBar::show(int64_t done, int64_t total) {
  if (!stderr_is_terminal() || total <= 0) return;
  if (begin_us_ == 0) begin_us_ = monotonic_us();
  if (monotonic_us() - begin_us_ < kQuietUs) return;
  const int percent = static_cast<int>(100 * done / total);
  if (percent == shown_) return;
  shown_ = percent;
  fmt::print(stderr, "\r{} [{:<30}] {:3} %", label_, std::string(static_cast<size_t>(percent * 30 / 100), '='), percent);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (shown_ >= 0) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = -1;
}

}  // namespace deepinfer
