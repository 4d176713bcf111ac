// apps/terminal.h - standard output, progress and Ctrl-C of the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

// Writes and flushes; a full disk or a closed pipe is an Error.
Status write_out(std::string_view text);

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// From now on Ctrl-C (and SIGTERM) sets the returned flag instead of ending the program. A second Ctrl-C before anybody
// cleared the flag ends it with exit code 130.
std::atomic<bool>& catch_interrupts();

// Signals that ask the program to stop, counted. For programs that wait for nothing else.
class StopSignals {
 public:
  int count() const;
  // Returns early when a signal comes.
  void wait_ms(int ms) const;
};
// From now on Ctrl-C and SIGTERM only count, and a reader that closes our output is an error of the write, not our end.
const StopSignals& catch_stop_signals();

// A bar on a terminal, nothing otherwise; gone when done.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() { clear(); }
  void show(int64_t done, int64_t total);
  void clear();

 private:
  std::string label_;
  int64_t begin_us_ = 0;
  int shown_ = -1;
};

int64_t monotonic_us();

}  // namespace deepinfer
