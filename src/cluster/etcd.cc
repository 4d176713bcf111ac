#include "cluster/etcd.h"

#include <fmt/format.h>

#include <charconv>

#include "base/base64.h"
#include "base/json.h"

namespace deepinfer {
namespace {

// Its numbers come as texts; a number that is 0 is left out.
int64_t number_of(const Json& json) {
  int64_t out = 0;
  const std::string& text = json.is_string() ? json.as_string() : json.number_text();
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string text_of(const Json& json) { return json.is_string() ? base64_decoded(json.as_string()).value_or("") : ""; }

Error cut_off(const std::string& why) { return {ErrorCode::kUnavailable, "etcd: " + why}; }

// The range of all keys that begin with `prefix`, which ends in a plain character.
Json range_of(const std::string& prefix) {
  std::string end = prefix;
  ++end.back();
  return Json::object({{"key", base64(prefix)}, {"range_end", base64(end)}});
}

constexpr size_t kLongestLine = size_t{16} << 20;  // of a watch; entries of all workers have some 20 KB

// Some of the stream of a watch: the view changes with each whole line. False: nothing more comes.
class WatchReader {
 public:
  WatchReader(Etcd::Keys& keys, const std::function<void(const Etcd::Keys&)>& tell) : keys_(keys), tell_(tell) {}
  bool take(std::string_view piece) {
    rest_ += piece;
    if (rest_.size() > kLongestLine) return false;
    for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
      const bool goes_on = take_line(std::string_view(rest_).substr(0, end));
      rest_.erase(0, end + 1);
      if (!goes_on) return false;
    }
    return true;
  }

 private:
  bool take_line(std::string_view line) {
    if (line.empty()) return true;
    const auto message = Json::parse(line);
    if (!message) return false;
    const Json& result = message->at("result");
    if (!result.is_object() || result.find("canceled")) return false;
    for (const Json& event : result.at("events").items()) {
      const std::string key = text_of(event.at("kv").at("key"));
      if (event.at("type").is_string() && event.at("type").as_string() == "DELETE") {
        keys_.erase(key);
      } else {
        keys_[key] = text_of(event.at("kv").at("value"));
      }
    }
    if (result.at("events").size() > 0) tell_(keys_);
    return true;
  }

  Etcd::Keys& keys_;
  const std::function<void(const Etcd::Keys&)>& tell_;
  std::string rest_;
};

}  // namespace

Result<std::vector<std::string>> parse_etcd_endpoints(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string one = text.substr(at, comma - at);
    at = comma + 1;
    if (one.find("://") == std::string::npos) one = "http://" + one;
    DI_TRY(const Url url, parse_url(one));
    if (url.target != "/") return invalid_argument(fmt::format("'{}': an endpoint of etcd is http://HOST:PORT and no more", one));
    out.push_back(url.origin());
  }
  if (out.empty()) return invalid_argument("no endpoint of etcd: name them as http://10.0.0.5:2379,http://10.0.0.6:2379");
  return out;
}

Etcd::Etcd(EtcdOptions options, const std::atomic<bool>* cancelled)
    : options_(std::move(options)),
      cancelled_(cancelled),
      client_({.connect_timeout_us = options_.call_us, .ca_file = options_.ca_file, .total_timeout_us = options_.call_us}),
      watcher_({.connect_timeout_us = options_.call_us, .idle_timeout_us = options_.silence_us, .ca_file = options_.ca_file}) {}

Result<std::string> Etcd::call(const std::string& path, const std::string& body) {
  Error last = cut_off("no endpoint");
  for (size_t i = 0; i < options_.endpoints.size(); ++i) {
    const std::string& endpoint = options_.endpoints[turn_ % options_.endpoints.size()];
    const auto reply = client_.send({.method = "POST", .url = endpoint + path, .body = body, .cancelled = cancelled_});
    if (reply && reply->status == 200) return reply->body;
    if (reply && reply->status == 404) return not_found(fmt::format("etcd: {}", reply->body.substr(0, 200)));
    last = cut_off(reply ? fmt::format("{} answers {}: {}", endpoint, reply->status, reply->body.substr(0, 200))
                         : reply.error().message);
    ++turn_;
  }
  return last;
}

Result<int64_t> Etcd::grant(int64_t seconds) {
  DI_TRY(const std::string body, call("/v3/lease/grant", Json::object({{"TTL", seconds}}).dump()));
  DI_TRY(const Json json, Json::parse(body));
  const int64_t lease = number_of(json.at("ID"));
  return lease == 0 ? Result<int64_t>(cut_off("a lease without a number")) : lease;
}

Status Etcd::keep_alive(int64_t lease) {
  DI_TRY(const std::string body, call("/v3/lease/keepalive", Json::object({{"ID", fmt::format("{}", lease)}}).dump()));
  DI_TRY(const Json json, Json::parse(body));
  return number_of(json.at("result").at("TTL")) > 0 ? Status() : Status(not_found("etcd: the lease has ended"));
}

Status Etcd::put(const std::string& key, const std::string& value, int64_t lease) {
  const Json body = Json::object({{"key", base64(key)}, {"value", base64(value)}, {"lease", fmt::format("{}", lease)}});
  DI_TRY(const std::string ignored, call("/v3/kv/put", body.dump()));
  return {};
}

Result<bool> Etcd::holds(const std::string& key) {
  DI_TRY(const std::string body, call("/v3/kv/range", Json::object({{"key", base64(key)}, {"count_only", true}}).dump()));
  DI_TRY(const Json json, Json::parse(body));
  return number_of(json.at("count")) > 0;
}

Status Etcd::revoke(int64_t lease) {
  DI_TRY(const std::string ignored, call("/v3/lease/revoke", Json::object({{"ID", fmt::format("{}", lease)}}).dump()));
  return {};
}

Error Etcd::follow(const std::string& prefix, const std::function<void(const Keys&)>& tell) {
  Json range = range_of(prefix);
  const auto body = call("/v3/kv/range", range.dump());
  if (!body) return body.error();
  const auto listed = Json::parse(*body);
  if (!listed) return listed.error();
  const int64_t revision = number_of(listed->at("header").at("revision"));
  if (revision < 1) return corrupt("etcd: a list without a revision, as something else answers there");
  Keys keys;
  for (const Json& kv : listed->at("kvs").items()) keys[text_of(kv.at("key"))] = text_of(kv.at("value"));
  tell(keys);
  range.set("start_revision", fmt::format("{}", revision + 1));
  WatchReader reader(keys, tell);
  const auto reply = watcher_.send({.method = "POST",
                                    .url = options_.endpoints[turn_ % options_.endpoints.size()] + "/v3/watch",
                                    .body = Json::object({{"create_request", std::move(range)}}).dump(),
                                    .sink = [&](std::string_view piece) { return reader.take(piece); },
                                    .cancelled = cancelled_});
  // What answers lists and breaks watches must not be asked the same for ever.
  if (!reply && reply.error().code != ErrorCode::kDeadline) ++turn_;
  return reply ? cut_off("the watch has ended") : reply.error();
}

}  // namespace deepinfer
