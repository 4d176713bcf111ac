// core/prefix_verdict.h - why the prefix cache did not serve more of a prompt.
//
// Made when a request starts, told with its final event, shown by `cache why` and on request in the usage. A prompt is served
// up to a page border; behind it either nothing is cached, or something else is: then the verdict names the first token that
// differs, with a few ids on both sides, so that a person sees which header, tool or message moved.
// Promise: plain data; what is long is shared, and there only where something changed. The ids of `there` are of the request's
// own tenant. Threads: plain data.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/ids.h"

namespace deepinfer {

enum class MissReason {
  kNone,         // every complete page was there
  kOff,          // the cache is switched off
  kShort,        // the prompt is shorter than a page, or what the store has of it is not worth reading
  kNew,          // nothing follows the served part here, and nothing is known to have
  kChanged,      // other tokens follow it
  kOtherImage,   // the same tokens with another picture follow it
  kEvicted,      // the next page was here and had to make room, or was dropped
  kExpired,      // the store had it for as long as its class is kept
  kLate,         // the store on the disk has it and did not give it in time
  kTierDown,     // the store has it, and its disk does not answer
  kOtherModel,   // the store has its first page as another model, program or layout made it
  kOtherTenant,  // another tenant has the first page: never told to this one
};
const char* miss_reason_name(MissReason reason);

// A few ids in a row.
struct TokenWindow {
  static constexpr size_t kMost = 8;
  std::array<TokenId, kMost> ids{};
  int32_t count = 0;

  void set(std::span<const TokenId> from) {
    count = static_cast<int32_t>(std::min(kMost, from.size()));
    std::copy_n(from.begin(), count, ids.begin());
  }
  std::span<const TokenId> span() const { return {ids.data(), static_cast<size_t>(count)}; }
};

// More of both sides of a difference, to tell what kind it is.
struct PrefixSides {
  static constexpr size_t kMostBefore = 64, kMost = 320;
  std::vector<TokenId> before, here, there;
};

struct PrefixVerdict {
  MissReason reason = MissReason::kOff;
  Position cached_tokens = 0;    // served from pages
  Position loaded_tokens = 0;    // of those, read from the store on the disk
  Position replayed_tokens = 0;  // of the cached ones, run again to rebuild what pages do not hold
  // Of kChanged, else -1: where the prompt leaves what is cached, the common ids before it, the prompt's from there on, and
  // the cached ones.
  Position first_different = -1;
  TokenWindow before, here, there;
  std::shared_ptr<const PrefixSides> sides;
  // Another tenant has the first page of this prompt. All the rest is the same without other tenants; this is for the operator.
  bool elsewhere = false;
};

inline MissReason operator_reason(const PrefixVerdict& verdict) {
  return verdict.elsewhere ? MissReason::kOtherTenant : verdict.reason;
}

}  // namespace deepinfer
