// ops/portable/isa.h - how portable bodies are declared.
//
// The same bodies are compiled by g++ for several instruction sets and by nvcc. Every one lives in an inline namespace
// named after the set, so that two object files never share a function and the linker cannot mix them.
// A file compiled with its own -m flags defines DI_ISA_NS before its first include.
#pragma once

#ifndef DI_ISA_NS
#define DI_ISA_NS portable_isa
#endif

#if defined(__CUDACC__)
#define DI_BODY __host__ __device__ inline
#else
#define DI_BODY inline
#endif
