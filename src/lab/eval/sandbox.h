// lab/eval/sandbox.h - runs a Python program that nobody has read.
//
// The child is one process that may compute, read what its user can read, and write to its error output; everything else is
// refused by a seccomp filter that lists what is allowed: no socket, no second process or thread, no file opened for
// writing, no signal to others. Where the system permits it the child also has user and network namespaces of its own.
// Limits: processor time, memory, size of output, wall time; it dies with its parent.
// Promise: open() proves with real programs that the filter holds, or is an Error; without a filter nothing runs unless the
// caller gave up on safety. A program that fails, hangs or is killed is a verdict, not an Error.
// Threads: run() from any thread; at most `max_children` run at once, others wait.
//
//   DI_TRY(auto sandbox, Sandbox::open({}));
//   DI_TRY(auto failure, sandbox->run("assert 1 + 1 == 2\n"));   // no value: it reached its end
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>

#include "base/result.h"

namespace deepinfer {

struct SandboxOptions {
  std::string python = "/usr/bin/python3";
  int64_t cpu_seconds = 5;
  int64_t wall_us = 20'000'000;  // generous: a busy machine must not decide a verdict
  int64_t memory_bytes = int64_t{1} << 30;
  int max_children = 2;
  bool allow_unsafe = false;                     // run without a filter when none can be had
  const std::atomic<bool>* cancelled = nullptr;  // set: programs end, run() is kCancelled
};

class Sandbox {
 public:
  static Result<std::unique_ptr<Sandbox>> open(const SandboxOptions& options);

  // No value when the program ran to its end without an exception, else one line that says how it failed.
  Result<std::optional<std::string>> run(const std::string& program);
  // What holds the child: "seccomp filter, own user and network namespaces".
  const std::string& description() const { return description_; }

 private:
  explicit Sandbox(const SandboxOptions& options) : options_(options), places_(options.max_children) {}
  Status prove();

  SandboxOptions options_;
  bool has_filter_ = true, has_namespaces_ = true;
  std::string description_;
  std::counting_semaphore<1024> places_;
  std::atomic<uint64_t> runs_{0};
};

}  // namespace deepinfer
