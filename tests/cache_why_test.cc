// Why was it not served from the cache: eight situations, each prepared, each told by its name (kv_cache.md section 3).
#include <gtest/gtest.h>

#include "host/prefix_report.h"
#include "recipe/render.h"
#include "tests/store_lives.h"

namespace deepinfer {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer tokenizer = value(Tokenizer::parse(value(read_file(join_path(kModelDir, "tokenizer.json")))));
  return tokenizer;
}

std::string reason_of(const Served& served) {
  const Json report = prefix_report(served.verdict, 0, tokenizer(), {});
  return report.at("reason").as_string();
}

class CacheWhy : public testing::Test {
 protected:
  CacheWhy() : random_(21), request_(request_of(random_tokens(random_, 500), 2)) {}
  Served ask_again(const EngineOptions& options) { return Life("cpu", options).ask(request_); }

  std::mt19937 random_;
  MemoryDisk disk_;
  Request request_;
};

struct Rendered {
  Request request;
  PromptMap map;
};

Rendered rendered(const std::vector<Message>& messages) {
  Conversation chat;
  chat.thinking = false;
  chat.messages = messages;
  const Prompt prompt = render_prompt(chat);
  Rendered out;
  out.request = request_of(value(prompt.encode(tokenizer())), 2);
  out.map = map_prompt(prompt, out.request.prompt, {}, tokenizer());
  return out;
}

TEST_F(CacheWhy, ChangedWithTheTextTheMessageAndWhatUsuallyCausesIt) {
  std::string rules;
  for (int i = 0; i < 60; ++i) rules += "Answer in short words. ";
  const auto turn = [&](const std::string& day) {
    return rendered({Message::system(rules), Message::user("Hello."), Message::assistant("Hi."),
                     Message::user("Today is " + day + " and the sky is blue. What day is it? " + rules)});
  };
  Life life("cpu", with_store(disk_));
  EXPECT_EQ(life.ask(turn("2026-11-29").request).verdict.reason, MissReason::kNew);
  const Rendered again = turn("2026-11-30");
  const Served served = life.ask(again.request);
  const Json report = prefix_report(served.verdict, static_cast<int64_t>(again.request.prompt.size()), tokenizer(), again.map);
  EXPECT_EQ(report.at("reason").as_string(), "changed") << report.dump();
  EXPECT_GT(served.usage.cached_tokens, 0);
  EXPECT_EQ(report.at("message").number_text(), "3") << report.dump();
  EXPECT_EQ(report.at("hint").as_string(), "volatile value") << report.dump();
  const std::string all = tokenizer().decode(again.request.prompt);
  const std::string shown = report.at("before").as_string() + report.at("here").as_string();
  EXPECT_NE(all.find(shown), std::string::npos) << shown;
  EXPECT_NE(report.at("here").as_string(), report.at("there").as_string());
}

TEST_F(CacheWhy, Evicted) {
  EngineOptions options{.context = 640, .pages = 14};
  Life life("cpu", options);
  life.ask(request_);
  for (int i = 0; i < 6; ++i) life.ask(request_of(random_tokens(random_, 500), 2));
  EXPECT_EQ(reason_of(life.ask(request_)), "evicted");
}

TEST_F(CacheWhy, Expired) {
  ManualClock date;
  EngineOptions options = with_store(disk_);
  options.store.date = &date;
  ask_again(options);
  date.advance_us(int64_t{9} * 86'400 * 1'000'000);
  EXPECT_EQ(reason_of(ask_again(options)), "expired");
}

TEST_F(CacheWhy, OtherTenantIsToldToTheOperatorOnly) {
  Life life("cpu", with_store(disk_));
  request_.tenant = "a";
  life.ask(request_);
  request_.tenant = "b";
  const Served served = life.ask(request_);
  EXPECT_EQ(reason_of(served), "new");
  EXPECT_STREQ(miss_reason_name(operator_reason(served.verdict)), "other tenant");
}

TEST_F(CacheWhy, TooShort) {
  Life life("cpu", with_store(disk_));
  EXPECT_EQ(reason_of(life.ask(request_of(random_tokens(random_, 30), 2))), "too short");
  // A prompt of which the store has pages that are not worth reading.
  const Request two_pages = request_of(random_tokens(random_, 150), 2);
  { Life("cpu", with_store(disk_)).ask(two_pages); }
  EXPECT_EQ(reason_of(Life("cpu", with_store(disk_)).ask(two_pages)), "too short");
}

TEST_F(CacheWhy, OtherModelOrLayout) {
  EngineOptions options = with_store(disk_);
  ask_again(options);
  options.store.fingerprint = "another";
  EXPECT_EQ(reason_of(ask_again(options)), "other model or layout");
  request_.tenant = "b";  // whose prompt nobody has stored
  EXPECT_EQ(reason_of(Life("cpu", with_store(disk_)).ask(request_)), "new");
}

TEST_F(CacheWhy, TierDown) {
  ask_again(with_store(disk_));
  Life life("cpu", with_store(disk_));
  disk_.set_fault(refusing("read"));
  EXPECT_EQ(reason_of(life.ask(request_)), "tier down");
  disk_.set_fault(nullptr);
}

TEST_F(CacheWhy, Late) {
  ask_again(with_store(disk_));
  EngineOptions options = with_store(disk_);
  options.store.deadline = {.base_us = 100'000, .per_1k_us = 0};
  Life life("cpu", options);
  Gate gate;
  disk_.set_fault([&](const char* what, const std::string&) { return gate.pass(what); });
  EXPECT_EQ(reason_of(life.ask(request_)), "late");
  gate.open();
}

}  // namespace
}  // namespace deepinfer
