// cluster/etcd.h - what this room needs of etcd, by the JSON gateway of its v3 API: leases, keys under them, keys followed.
//
// Promise: each call ends within its time-out, tries every endpoint once and begins with the one that answered last; follow()
// tells a whole view each time, so a reader cannot miss a change. Threads: one object, one thread at a time, but `cancelled` may
// be set by any: calls then end within a tenth of a second.
//
//   Etcd etcd({.endpoints = {"http://127.0.0.1:2379"}});
//   DI_TRY(const int64_t lease, etcd.grant(10));
//   DI_CHECK_OK(etcd.put("/deepinfer/c/workers/all/1", value, lease));
//   etcd.follow("/deepinfer/c/workers/", [](const Etcd::Keys& keys) { ... });   // until cancelled or cut off
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/http_client.h"

namespace deepinfer {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // http://HOST:PORT
  std::string ca_file;                 // of https endpoints; "" = the system's
  int64_t call_us = 3'000'000;
  int64_t silence_us = 30'000'000;  // a watch without a word for so long begins anew: its connection may be dead
};

// "http://a:2379,http://b:2379"; without a scheme http is meant.
Result<std::vector<std::string>> parse_etcd_endpoints(const std::string& text);

class Etcd {
 public:
  using Keys = std::map<std::string, std::string>;
  explicit Etcd(EtcdOptions options, const std::atomic<bool>* cancelled = nullptr);

  Result<int64_t> grant(int64_t seconds);
  // kNotFound: the lease has ended.
  Status keep_alive(int64_t lease);
  Status put(const std::string& key, const std::string& value, int64_t lease);
  Result<bool> holds(const std::string& key);
  Status revoke(int64_t lease);
  // Lists the keys that begin with `prefix`, tells them, and all of them again after each change. Comes back with an Error when
  // it is cut off, silent, cancelled, or asked for what was compacted meanwhile: call it again.
  Error follow(const std::string& prefix, const std::function<void(const Keys&)>& tell);

 private:
  // On one endpoint after another, until one answers.
  Result<std::string> call(const std::string& path, const std::string& body);

  const EtcdOptions options_;
  const std::atomic<bool>* const cancelled_;
  HttpClient client_, watcher_;
  size_t turn_ = 0;
};

}  // namespace deepinfer
