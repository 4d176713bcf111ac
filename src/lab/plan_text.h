// lab/plan_text.h - numbers and lines of `deepinfer plan`.
#pragma once

#include <string>
#include <vector>

#include "cost/room.h"

namespace deepinfer {

// Three digits with a unit: "4.25 TB", "1.53 ms", "29,698".
std::string plan_bytes(double bytes);
std::string plan_seconds(double seconds);
std::string plan_number(double value);

// Each kernel of a step with its numbers filled in, at the limits of `hardware`.
std::string explain_kernels(const std::vector<KernelCost>& kernels, const Hardware& hardware);
// What others published, each with where.
std::string published_figures();

}  // namespace deepinfer
