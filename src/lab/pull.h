// lab/pull.h - downloads a checkpoint from a hub that speaks the Hugging Face form.
//
// One request lists the files of a revision with sizes and checksums; then each file comes in ranges over several connections.
// What is on the disk is never fetched again: an interrupted or cut download goes on where it stopped, also in a later run.
// Promise: a file under its own name is whole and has the hub's checksum; room on the disk is checked before the first byte;
// names that lead out of the folder are refused; a hub that contradicts itself about a size is an Error, not a file.
// Threads: pull() uses threads of its own; `progress` is called from one at a time.
//
//   DI_TRY(PullReport report, pull({.repo = "org/model", .folder = "model", .endpoint = "http://hub"}, interrupted));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace deepinfer {

struct PullOptions {
  std::string repo, revision = "main";
  std::string folder;
  std::string endpoint, proxy, token, ca_file;
  int connections = 4;
  int64_t range_bytes = int64_t{16} << 20;
  int retries = 5;  // in a row without a new byte
  double timeout_seconds = 60;
  std::function<void(int64_t done, int64_t total)> progress;
};

struct PullReport {
  std::string commit;
  int64_t files = 0, bytes = 0;      // of the revision
  int64_t fetched = 0, resumed = 0;  // bytes that came now, that were there
  bool interrupted = false;
};

Result<PullReport> pull(const PullOptions& options, std::atomic<bool>& interrupted);

}  // namespace deepinfer
