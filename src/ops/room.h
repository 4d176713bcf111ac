// ops - the contract between the model and the machines it runs on.
//
// device.h: memory, order of work and the table of operations. ops.h: one plain parameter struct per operation, with the
// rules every implementation keeps. portable/: the bodies of all operations as headers that g++ and nvcc accept; they are
// the oracle that tuned kernels must match bit for bit.
// Threads: a Device is used by one thread at a time; bodies are pure functions of their parameters.
//
//   auto x = device.allocate(bytes);
//   device.upload(x->as<void>(), host, bytes);
//   device.ops().rms_norm({.rows = rows, .x = x->as<Bf16>(), ...});
//   auto done = device.wait(device.record());
#pragma once

#include "ops/device.h"
#include "ops/ops.h"
