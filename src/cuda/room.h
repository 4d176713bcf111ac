// cuda - a Device on an NVIDIA GPU: runtime (memory, order, graphs) and kernels. The only room with .cu files.
//
// cuda_device.h is the whole door; it is always there. A program built without CUDA links cuda_absent.cc behind it and says
// so, a program built with CUDA says what is missing on a machine without a driver. Files of the runtime are C++; kernels
// (.cu, .cuh) see the contract of `ops` and its portable bodies, nothing else.
// Threads: a device belongs to one thread at a time.
//
//   DI_TRY(auto device, make_cuda_device({.index = 0}));
#pragma once

#include "cuda/cuda_device.h"
