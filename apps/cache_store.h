// apps/cache_store.h - what `cache ls|stat|verify|drop` and `verify cache` do with the folder of a KV store.
//
// No server is needed, and those that run may go on: they find their files changed at their next look.
#pragma once

#include <string>

#include "base/result.h"

namespace deepinfer {

struct CacheStoreSettings {
  std::string folder;  // "" = the standard one
  std::string tenant, retention, keys;
  std::string prefix, model;  // a file with the beginning of a prompt, and whose tokenizer reads it
  std::string key_file;       // of what is encrypted; "" = none
  bool json = false;
};

// `what` is ls, stat, verify or drop. The exit code; an Error says what is wrong with the folder or the words.
Result<int> look_into_store(const std::string& what, const CacheStoreSettings& settings);

}  // namespace deepinfer
