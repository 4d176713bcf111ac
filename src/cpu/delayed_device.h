// cpu/delayed_device.h - a device for tests that behaves like a GPU at its most awkward.
//
// Device memory cannot be touched by the host: allocations are addresses inside a reservation without access rights,
// mirrored by real memory. Operations, copies and host calls wait in a queue and run in order, on a thread of their own,
// only once a ticket behind them was recorded. upload() reads its source when it runs, not when it is called, and freed
// addresses are never reused, so a forgotten wait, a buffer freed too early or a read of device memory shows as a fault,
// a wrong value or an error at wait(). Results are those of the cpu device.
// Pointers inside parameter structs are found by looking at every aligned 8-byte word; ordinary memory (weights, host
// tables) passes unchanged.
#pragma once

#include <memory>

#include "cpu/cpu_device.h"

namespace deepinfer {

Result<std::unique_ptr<Device>> make_delayed_device(CpuOptions options = {});

}  // namespace deepinfer
