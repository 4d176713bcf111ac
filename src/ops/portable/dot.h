// ops/portable/dot.h - DOT, the one order of additions of every matrix product (ops.h), and loops over channels.
#pragma once

#include "ops/portable/math.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

inline constexpr int kLanes = 16;

// Adds the lanes as the fixed tree; destroys them.
DI_BODY float sum_lanes(float* lane) {
  for (int i = 0; i < 8; ++i) lane[i] += lane[i + 8];
  for (int i = 0; i < 4; ++i) lane[i] += lane[i + 4];
  for (int i = 0; i < 2; ++i) lane[i] += lane[i + 2];
  return lane[0] + lane[1];
}

// DOT of a(0..k-1) and b(0..k-1), both functions of the index.
template <class A, class B>
DI_BODY float dot_of(int k, A a, B b) {
  float lane[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] = fma32(a(i + l), b(i + l), lane[l]);
  }
  for (int l = 0; i + l < k; ++l) lane[l] = fma32(a(i + l), b(i + l), lane[l]);
  return sum_lanes(lane);
}

// How a body gets its DOT: alone here, sixteen threads together on a GPU (cuda/launch.cuh). Bodies that take it as an argument
// define the values once for both.
struct SerialDot {
  template <class A, class B>
  DI_BODY float operator()(int k, A a, B b) const {
    return dot_of(k, a, b);
  }
};

DI_BODY float dot(const float* a, const float* b, int k) {
  return dot_of(
      k, [=](int i) { return a[i]; }, [=](int i) { return b[i]; });
}

// Sum in DOT order.
template <class A>
DI_BODY float sum_of(int k, A a) {
  return dot_of(k, a, [](int) { return 1.0f; });
}

template <int N>
struct Width {
  static constexpr int value = N;
};

// f(begin, Width<16>) over whole chunks, then f(i, Width<1>): inner loops of known length vectorise.
template <class F>
DI_BODY void for_chunks(int begin, int end, F f) {
  int i = begin;
  for (; i + kLanes <= end; i += kLanes) f(i, Width<kLanes>{});
  for (; i < end; ++i) f(i, Width<1>{});
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
