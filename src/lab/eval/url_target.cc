// A server with the Chat Completions interface.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/nearest.h"
#include "lab/eval/answer_text.h"
#include "lab/eval/target.h"
#include "net/http_client.h"

namespace deepinfer {
namespace {

constexpr int64_t kLongestPauseUs = 30'000'000, kLongestRetryAfterUs = 300'000'000;
constexpr int64_t kConnectTimeoutUs = 10'000'000;
const Error kInterrupted{ErrorCode::kCancelled, "interrupted"};

bool is_busy(int status) { return status == 408 || status == 425 || status == 429 || status >= 500; }

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What the server says about an error, in one short line.
std::string server_message(const HttpReply& reply) {
  const Result<Json> body = Json::parse(reply.body);
  std::string text = reply.body;
  if (body && body->at("error").at("message").is_string()) text = body->at("error").at("message").as_string();
  if (body && body->at("error").is_string()) text = body->at("error").as_string();
  text = std::string(trimmed(text)).substr(0, 200);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text.empty() ? http_reason(reply.status) : text;
}

int64_t count_of(const Json& value) {
  const Result<int64_t> count = value.to_int64("count");
  return count ? std::max<int64_t>(0, *count) : 0;
}

Result<int64_t> http_date(std::string_view text) {
  tm parts{};
  const std::string copy(text);
  if (!strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts)) return corrupt("no date");
  return static_cast<int64_t>(timegm(&parts));
}

class UrlTarget final : public EvalTarget {
 public:
  explicit UrlTarget(const UrlTargetOptions& options) : options_(options), model_(options.model) {
    while (options_.url.ends_with('/')) options_.url.pop_back();
    if (!options_.url.ends_with("/v1")) options_.url += "/v1";
  }

  Status find_model(const std::atomic<bool>& interrupted);
  std::string model() const override { return model_; }
  Result<EvalAnswer> ask(const Json& request, const std::atomic<bool>& interrupted) override;

 private:
  // One attempt: an answer, or why not and whether another may help.
  struct Attempt {
    Result<EvalAnswer> answer;
    bool may_retry = false;
    std::string retry_after;
  };
  Attempt attempt(const std::string& body, const std::atomic<bool>& interrupted);
  Result<HttpReply> send(HttpCall call, const std::atomic<bool>& interrupted);

  UrlTargetOptions options_;
  std::string model_;
  std::mutex mutex_;
  std::vector<HttpClient> idle_;
};

Result<HttpReply> UrlTarget::send(HttpCall call, const std::atomic<bool>& interrupted) {
  call.cancelled = &interrupted;
  call.headers.set("content-type", "application/json");
  call.headers.set("accept", "application/json");
  if (!options_.key.empty()) call.headers.set("authorization", "Bearer " + options_.key);
  std::optional<HttpClient> client;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) client.emplace(std::move(idle_.back())), idle_.pop_back();
  }
  if (!client) {
    HttpClientOptions options;
    options.connect_timeout_us = std::min(kConnectTimeoutUs, options_.timeout_us);
    options.idle_timeout_us = options_.timeout_us;
    options.ca_file = options_.ca_file;
    client.emplace(options);
  }
  Result<HttpReply> reply = client->send(call);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(*client));
  return reply;
}

Status UrlTarget::find_model(const std::atomic<bool>& interrupted) {
  DI_CHECK_OK(parse_url(options_.url));
  const std::string url = options_.url + "/models";
  for (int tries = 1;; ++tries) {
    DI_TRY(const HttpReply reply, send({.url = url}, interrupted));
    if (is_busy(reply.status) && tries < options_.tries) {
      const int64_t pause = retry_pause_us(tries, options_.first_pause_us, reply.headers.get("retry-after"), seconds_now(), 0);
      for (int64_t slept = 0; slept < pause && !interrupted.load(); slept += 50'000)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (interrupted.load()) return kInterrupted;
      continue;
    }
    // Some servers have no list; then the name must be given and is believed.
    if (reply.status == 404 && !model_.empty()) return {};
    if (reply.status == 401 || reply.status == 403) {
      return Error{ErrorCode::kPermission,
                   fmt::format("{}: status {}: {}; give a key with --key-file", url, reply.status, server_message(reply))};
    }
    if (reply.status != 200) {
      return Error{ErrorCode::kUnavailable, fmt::format("{}: status {}: {}; is this the address of an OpenAI-compatible server?",
                                                        url, reply.status, server_message(reply))};
    }
    const Result<Json> body = Json::parse(reply.body);
    std::vector<std::string> names;
    if (body) {
      for (const Json& item : body->at("data").items()) {
        if (item.at("id").is_string()) names.push_back(item.at("id").as_string());
      }
    }
    if (!body || names.empty())
      return corrupt(fmt::format("{}: the answer is no list of models; is this an OpenAI-compatible server?", url));
    if (model_.empty() && names.size() == 1) model_ = names[0];
    if (model_.empty()) {
      return invalid_argument(fmt::format("{} serves {}; choose one with --served-model", options_.url, fmt::join(names, ", ")));
    }
    if (std::find(names.begin(), names.end(), model_) != names.end()) return {};
    return not_found(fmt::format("{} has no model '{}'{} (it serves {})", options_.url, model_, did_you_mean(model_, names),
                                 fmt::join(names, ", ")));
  }
}

UrlTarget::Attempt UrlTarget::attempt(const std::string& body, const std::atomic<bool>& interrupted) {
  const std::string url = options_.url + "/chat/completions";
  const Result<HttpReply> reply = send({.method = "POST", .url = url, .body = body}, interrupted);
  if (!reply) return {reply.error(), reply.error().code != ErrorCode::kCancelled, ""};
  const auto error = [&](ErrorCode code) {
    return Error{code, fmt::format("{}: status {}: {}", url, reply->status, server_message(*reply))};
  };
  if (reply->status == 200) {
    const Result<Json> json = Json::parse(reply->body);
    if (!json) return {corrupt(fmt::format("{}: the answer is no JSON: {}", url, json.error().message)), true, ""};
    Result<EvalAnswer> answer = answer_of_response(*json);
    const bool ok = answer.ok();
    return {std::move(answer), !ok, ""};
  }
  if (reply->status == 401 || reply->status == 403) return {error(ErrorCode::kPermission), false, ""};
  if (reply->status == 404 || reply->status == 405) return {error(ErrorCode::kNotFound), false, ""};
  if (is_busy(reply->status)) return {error(ErrorCode::kUnavailable), true, std::string(reply->headers.get("retry-after"))};
  return {error(ErrorCode::kInvalidArgument), false, ""};
}

Result<EvalAnswer> UrlTarget::ask(const Json& request, const std::atomic<bool>& interrupted) {
  Json body = Json::object({{"model", model_}});
  for (const auto& [name, value] : request.members()) body.set(name, value);
  const std::string text = body.dump();
  const uint64_t salt = std::hash<std::string>()(text);
  for (int tries = 1;; ++tries) {
    Attempt last = attempt(text, interrupted);
    if (interrupted.load() && !last.answer) return kInterrupted;
    if (last.answer || !last.may_retry) return std::move(last.answer);
    if (tries >= options_.tries) {
      return Error{last.answer.error().code, fmt::format("given up after {} tries: {}", tries, last.answer.error().message)};
    }
    const int64_t until = retry_pause_us(tries, options_.first_pause_us, last.retry_after, seconds_now(), salt);
    for (int64_t slept = 0; slept < until; slept += 50'000) {
      if (interrupted.load()) return kInterrupted;
      std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(50'000, until - slept)));
    }
  }
}

}  // namespace

Result<std::unique_ptr<EvalTarget>> open_url_target(const UrlTargetOptions& options, const std::atomic<bool>& interrupted) {
  auto target = std::make_unique<UrlTarget>(options);
  DI_CHECK_OK(target->find_model(interrupted));
  return std::unique_ptr<EvalTarget>(std::move(target));
}

int64_t retry_pause_us(int tries_done, int64_t first_us, std::string_view retry_after, int64_t now_seconds, uint64_t salt) {
  if (!retry_after.empty()) {
    int64_t seconds = -1;
    if (const auto number = last_number(retry_after); number && *number == retry_after) {
      seconds = std::strtoll(number->c_str(), nullptr, 10);
    } else if (const Result<int64_t> date = http_date(retry_after)) {
      seconds = std::max<int64_t>(0, *date - now_seconds);
    }
    if (seconds >= 0) return std::min(seconds, kLongestRetryAfterUs / 1'000'000) * 1'000'000;
  }
  const int64_t pause = std::min(kLongestPauseUs, first_us << std::min(tries_done - 1, 20));
  return pause - static_cast<int64_t>(salt % 1024) * pause / 4096;
}

Result<EvalAnswer> answer_of_response(const Json& body) {
  const Json& choices = body.at("choices");
  if (!choices.is_array() || choices.size() == 0 || !choices[0].at("message").is_object()) {
    return corrupt("the answer is no chat completion: it has no choices[0].message");
  }
  const Json& message = choices[0].at("message");
  EvalAnswer answer;
  if (message.at("content").is_string()) answer.content = message.at("content").as_string();
  for (const char* name : {"reasoning_content", "reasoning"}) {
    if (message.at(name).is_string()) answer.reasoning = message.at(name).as_string();
  }
  // Servers without a parser for it leave the reasoning in the content.
  constexpr std::string_view kThink = "<think>", kEndThink = "</think>";
  if (const size_t end = answer.content.find(kEndThink);
      trimmed(answer.content).starts_with(kThink) && end != std::string::npos) {
    const size_t begin = answer.content.find(kThink) + kThink.size();
    answer.reasoning = answer.content.substr(begin, end - begin);
    answer.content.erase(0, end + kEndThink.size());
  }
  for (const Json& call : message.at("tool_calls").items()) {
    const Json &name = call.at("function").at("name"), &arguments = call.at("function").at("arguments");
    if (!name.is_string() || !arguments.is_string())
      return corrupt("the answer is no chat completion: a tool call without name or arguments");
    answer.tool_calls.push_back(Json::object({{"name", name}, {"arguments", arguments}}));
  }
  const Json& finish = choices[0].at("finish_reason");
  answer.ended = !finish.is_string() || finish.as_string() != "length";
  answer.prompt_tokens = count_of(body.at("usage").at("prompt_tokens"));
  answer.completion_tokens = count_of(body.at("usage").at("completion_tokens"));
  return answer;
}

}  // namespace deepinfer
