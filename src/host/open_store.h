// host/open_store.h - the store of KV pages that settings name, as the engine takes it (kvcache/tiers/store_tier.h).
//
// Where nothing else is said it lies in the folder that the program gives, limited to a tenth of what is free there and 10 GB.
// What another program, or other weights, would compute otherwise is another store: its name covers a hash of the program and
// names, sizes and dates of the model's files.
// Threads: a value that outlives its engine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "host/settings.h"
#include "kvcache/tiers/cached_disk.h"
#include "kvcache/tiers/store_tier.h"

namespace deepinfer {

class HostStore {
 public:
  // Null: there is to be none. `standard_folder` "" = none unless the settings name one.
  static Result<std::unique_ptr<HostStore>> open(const HostSettings& settings, const std::string& standard_folder,
                                                 const std::string& model);

  // `fingerprint`: of the opened model. `beside_device`: its pages lie in a device's own memory.
  StoreTierOptions options(const std::string& fingerprint, bool beside_device);
  bool was_asked_for() const { return was_asked_for_; }
  // A line for people: where, how large.
  std::string summary() const;

 private:
  PosixDisk disk_;
  std::optional<CachedDisk> memory_;
  DateClock date_;
  std::string trouble_;  // why nothing can be written there
  std::string folder_, identity_;
  int64_t limit_bytes_ = 0, memory_bytes_ = 0;
  uint64_t seed_ = 0;
  std::shared_ptr<const StoreCipher> cipher_;
  bool was_asked_for_ = false;
};

}  // namespace deepinfer
