// images/problem.h - why an image is refused.
//
// Threads: values.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/result.h"

namespace deepinfer {

enum class ImageFault {
  kEmpty,
  kUnsupportedMediaType,
  kDecode,
  kInvalidDataUrl,
  kDimensionsTooLarge,
  kTooLarge,
  kTooMany,
  kTotalTooLarge,
  kFetch,  // the only one that may pass when tried again, unless it is refused
  kInvalidUrl,
  kUrlTooLong,
};
const char* image_fault_name(ImageFault fault);

struct ImageProblem {
  ImageFault fault = ImageFault::kDecode;
  std::string message;
  bool is_refused = false;  // a link that is not to be fetched
  bool is_retryable() const { return fault == ImageFault::kFetch && !is_refused; }
};

// A value or a problem; `P` is ImageFault where no place is known yet.
template <class T, class P = ImageProblem>
class ImageResult {
 public:
  ImageResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  ImageResult(P problem) : state_(std::in_place_index<1>, std::move(problem)) {}
  explicit operator bool() const { return state_.index() == 0; }
  // REQUIRES: true.
  T& operator*() & { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  const T& operator*() const& { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  // REQUIRES: false.
  const P& problem() const { return std::get<1>(state_); }

 private:
  std::variant<T, P> state_;
};

}  // namespace deepinfer
