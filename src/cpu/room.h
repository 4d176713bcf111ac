// cpu - the operations on a host processor.
//
// cpu_device.h: the device that serves; kernels are chosen once from an ordered list (avx512amx, avx512gfni, avx512vnni, avx512,
// avx2, portable) or forced by name; `amx` only by name. delayed_device.h: a device for tests that runs everything late and hides
// its memory from the host. Promise: every kernel set gives the same bits, for any number of threads and any company of rows;
// `amx` gives bits of its own, but for FP4 weights (ops.h, numerics_class() in device.h).
//
//   auto device = make_cpu_device({.threads = 2});
//   if (!device) return device.error();
#pragma once

#include "cpu/cpu_device.h"
#include "cpu/delayed_device.h"
