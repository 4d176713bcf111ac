// cluster/membership.h - who belongs to a cluster, as etcd keeps it: a worker's own entry, and the list that routers follow.
//
// The key is /deepinfer/CLUSTER/workers/ROLE/HOST:PORT, under a lease of ten seconds that its worker renews every three; the
// value names a new epoch for each start. Without etcd everybody goes on with the last view: a worker works, a router places,
// nobody joins or leaves, and both ask again with growing pauses. Promise: a lease or an entry that was lost is there again
// within three seconds; destructors come back within a few seconds. Threads: each object has one; `changed` and `told` are called
// on it.
//
//   Registration here(options, {.at = {"10.0.0.7", 8101}, .epoch = "..."}, print_note);     // until it goes
//   MemberWatch watch(options, [&](std::vector<Member> members) { router->set_workers(members); }, print_note);
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cluster/etcd.h"
#include "cluster/worker_address.h"

namespace deepinfer {

struct Member {
  WorkerAddress at;
  std::string epoch;  // of its start; "" = of a list that has none
  std::string role = "all";
};

struct MembershipOptions {
  EtcdOptions etcd;
  std::string cluster = "default";
  int64_t lease_seconds = 10, keep_alive_us = 3'000'000;
};

// Letters, digits, '-', '_' and '.': a part of a key.
bool is_cluster_name(std::string_view name);
std::string workers_prefix(const std::string& cluster);
std::string member_key(const std::string& cluster, const Member& member);
std::string member_value(const Member& member);
// Errors: no key or value of a worker.
Result<Member> parse_member(const std::string& cluster, std::string_view key, std::string_view value);

using Told = std::function<void(const std::string&)>;

// A thread that does one thing again and again, with pauses that end when it has to.
class Beat {
 public:
  ~Beat() { stop(); }
  // `turn` gives the pause before the next one, in microseconds.
  void start(std::function<int64_t()> turn);
  void stop();
  const std::atomic<bool>& stopped() const { return stopped_; }

 private:
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

class Registration {
 public:
  Registration(MembershipOptions options, const Member& self, Told told);
  ~Registration();  // its entry goes

 private:
  Status renew();

  const MembershipOptions options_;
  const std::string key_, value_;
  int64_t lease_ = 0;  // 0: none
  Beat beat_;
  Etcd etcd_;
};

class MemberWatch {
 public:
  MemberWatch(MembershipOptions options, std::function<void(std::vector<Member>)> changed, Told told);
  void stop() { beat_.stop(); }  // `changed` is called no more

 private:
  Beat beat_;
};

}  // namespace deepinfer
