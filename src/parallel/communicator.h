// parallel/communicator.h - how the ranks of one model exchange rows.
//
// The model path needs two collectives, both plain copies: sums over ranks are done locally in a fixed order, never by a
// collective (determinism.md section 3, rule 7). A rank is a thread with its own Device; MPI and NCCL ranks come behind
// the same door.
// Promise: calls take effect in the order of the device's stream; every rank makes the same calls in the same order. What was
// received is there when the call has taken effect; what is sent is read until the *next* call has, so that one meeting of the
// ranks per call is enough (two were a tenth of a small model's step).
// Threads: each rank's communicator is used by that rank's thread only.
#pragma once

#include <cstdint>
#include <span>

#include "ops/device.h"

namespace deepinfer {

// recv[r * bytes ...] = rank r's `send`, for every r. Device pointers.
struct Gather {
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t bytes = 0;
};

class Communicator {
 public:
  static constexpr size_t kMostGathers = 4;  // of one call

  virtual ~Communicator() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  virtual void all_gather(Device& device, std::span<const Gather> gathers) = 0;
  // recv block r = block rank() of rank r's `send`; blocks of bytes_per_rank. Device pointers.
  virtual void all_to_all(Device& device, const void* send, void* recv, int64_t bytes_per_rank) = 0;
};

}  // namespace deepinfer
