// lab/error_metrics.h - how far two arrays of numbers are apart. FP64 inside; arrays of different length count as infinitely far.
#pragma once

#include <span>

namespace deepinfer {

double rms(std::span<const float> values);
double rms_error(std::span<const float> got, std::span<const float> want);
double max_error(std::span<const float> got, std::span<const float> want);
// rms_error / rms(want); 0 when both are all zero.
double relative_rms(std::span<const float> got, std::span<const float> want);
double correlation(std::span<const float> a, std::span<const float> b);
double standard_deviation(std::span<const float> values);
// Share of equal elements.
double equal_share(std::span<const float> got, std::span<const float> want);

}  // namespace deepinfer
