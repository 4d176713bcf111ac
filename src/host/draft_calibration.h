// host/draft_calibration.h - what speculation learnt of a drafter's confidence, kept over restarts.
//
// One small JSON file: whose it is (the model's fingerprint and the way of verifying) and one temperature a place. A fit needs
// 10,000 blocks of which a sequence gives one in 64 steps, which is hours of traffic; a restart should not forget it.
// Promise: a file that is missing, damaged or another model's is as none; a write is whole or not at all.
// Threads: any.
//
//   options.temperatures = read_calibration(path, key);
//   options.fitted = [=](const Temperatures& fit) { write_calibration(path, key, fit); };
#pragma once

#include <string>

#include "base/result.h"
#include "policy/calibration.h"

namespace deepinfer {

Temperatures read_calibration(const std::string& path, const std::string& key);
Status write_calibration(const std::string& path, const std::string& key, const Temperatures& temperatures);

}  // namespace deepinfer
