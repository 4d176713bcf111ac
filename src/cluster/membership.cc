#include "cluster/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <memory>

#include "base/json.h"

namespace deepinfer {
namespace {

constexpr int64_t kFirstPauseUs = 250'000, kLongestPauseUs = 3'000'000;

// Pauses that grow while it fails, and a word when that begins and ends.
class Outage {
 public:
  explicit Outage(Told told) : told_(std::move(told)) {}
  void over() {
    if (std::exchange(pause_us_, 0) > 0) told_("etcd answers again");
  }
  int64_t note(const Error& why) {
    if (pause_us_ == 0) told_(why.message + "; going on with what was known");
    pause_us_ = std::clamp(pause_us_ * 2, kFirstPauseUs, kLongestPauseUs);
    return pause_us_;
  }

 private:
  const Told told_;
  int64_t pause_us_ = 0;
};

}  // namespace

bool is_cluster_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

std::string workers_prefix(const std::string& cluster) { return "/deepinfer/" + cluster + "/workers/"; }

std::string member_key(const std::string& cluster, const Member& member) {
  return fmt::format("{}{}/{}", workers_prefix(cluster), member.role, address_text(member.at));
}

std::string member_value(const Member& member) {
  return Json::object({{"address", address_text(member.at)}, {"epoch", member.epoch}}).dump();
}

Result<Member> parse_member(const std::string& cluster, std::string_view key, std::string_view value) {
  Member member;
  const std::string prefix = workers_prefix(cluster);
  const std::string_view rest = key.starts_with(prefix) ? key.substr(prefix.size()) : "";
  member.role = rest.substr(0, rest.find('/'));
  DI_TRY(const Json json, Json::parse(value));
  DI_TRY(const std::string address, json.at("address").to_string("address"));
  DI_TRY(member.epoch, json.at("epoch").to_string("epoch"));
  DI_TRY(const auto addresses, parse_worker_addresses(address));
  if (addresses.size() != 1 || !is_cluster_name(member.role))
    return corrupt(fmt::format("'{}' is no entry of a worker", key.substr(0, 200)));
  member.at = addresses[0];
  return member;
}

void Beat::start(std::function<int64_t()> turn) {
  thread_ = std::thread([this, turn = std::move(turn)] {
    while (!stopped_) {
      const int64_t pause_us = turn();
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::microseconds(pause_us), [&] { return stopped_.load(); });
    }
  });
}

void Beat::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Registration::Registration(MembershipOptions options, const Member& self, Told told)
    : options_(std::move(options)),
      key_(member_key(options_.cluster, self)),
      value_(member_value(self)),
      etcd_(options_.etcd, &beat_.stopped()) {
  beat_.start([this, outage = std::make_shared<Outage>(std::move(told))] {
    const Status renewed = renew();
    if (!renewed && !beat_.stopped()) return outage->note(renewed.error());
    outage->over();
    return options_.keep_alive_us;
  });
}

Registration::~Registration() {
  beat_.stop();
  if (lease_ != 0) static_cast<void>(Etcd(options_.etcd).revoke(lease_));
}

Status Registration::renew() {
  if (lease_ != 0) {
    const Status kept = etcd_.keep_alive(lease_);
    if (kept) {
      // Somebody may have removed the key by hand.
      DI_TRY(const bool is_there, etcd_.holds(key_));
      return is_there ? Status() : etcd_.put(key_, value_, lease_);
    }
    if (kept.error().code != ErrorCode::kNotFound) return kept;
    lease_ = 0;
  }
  DI_TRY(const int64_t lease, etcd_.grant(options_.lease_seconds));
  DI_CHECK_OK(etcd_.put(key_, value_, lease));
  lease_ = lease;
  return {};
}

MemberWatch::MemberWatch(MembershipOptions options, std::function<void(std::vector<Member>)> changed, Told told) {
  auto etcd = std::make_shared<Etcd>(options.etcd, &beat_.stopped());
  auto outage = std::make_shared<Outage>(told);
  beat_.start([=, this] {
    bool answered = false;
    const Error why = etcd->follow(workers_prefix(options.cluster), [&](const Etcd::Keys& keys) {
      outage->over();
      answered = true;
      std::vector<Member> members;
      for (const auto& [key, value] : keys) {
        auto member = parse_member(options.cluster, key, value);
        if (member) members.push_back(*std::move(member));
        if (!member) told(member.error().message);
      }
      changed(std::move(members));
    });
    // A watch that ended after a list begins anew at once; only a list that fails is an outage.
    return answered || beat_.stopped() ? kFirstPauseUs : outage->note(why);
  });
}

}  // namespace deepinfer
