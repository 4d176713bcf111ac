// The store on a disk under the engine: what one process left serves the next one with the bytes of a cold engine, in every
// replay mode and from every state of the disk; nobody waits for a disk that does not answer (oracle_rules.md R2, R8, R9).
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tests/store_lives.h"

namespace deepinfer {
namespace {

TEST(StoreUnderEngine, EachTurnInAnotherLifeGivesTheBytesOfAColdEngine) {
  for (const char* device : {"cpu", "delayed"}) {
    for (const ReplayMode mode : {ReplayMode::kOff, ReplayMode::kDecoder}) {
      MemoryDisk disk;
      Life fresh("cpu", cold(mode));
      std::mt19937 random(7);
      std::vector<TokenId> history = random_tokens(random, 400);
      for (int turn = 0; turn < 3; ++turn) {
        Life life(device, with_store(disk, mode));
        const Request request = request_of(history, 70, static_cast<uint64_t>(turn));
        const Served hit = life.ask(request);
        ASSERT_EQ(hit.answer, fresh.ask(request).answer) << device << ' ' << replay_mode_name(mode) << ", turn " << turn;
        EXPECT_EQ(hit.usage.cached_tokens > 0, turn > 0);
        EXPECT_EQ(hit.verdict.loaded_tokens, hit.usage.cached_tokens);
        append(history, hit.answer.tokens);
        append(history, random_tokens(random, 20));
      }
    }
  }
}

// Each life has another number of ranks.
TEST(StoreUnderEngine, AnyNumberOfRanksFindsWhatAnotherStored) {
  MemoryDisk disk;
  Life fresh("cpu", cold(ReplayMode::kDecoder));
  std::mt19937 random(9);
  std::vector<TokenId> history = random_tokens(random, 400);
  for (const int32_t ranks : {2, 1, 4}) {
    const Request request = request_of(history, 70, static_cast<uint64_t>(ranks));
    const Served hit = Life("cpu", with_store(disk), ranks).ask(request);
    ASSERT_EQ(hit.answer, fresh.ask(request).answer) << ranks << " ranks";
    EXPECT_EQ(hit.usage.cached_tokens > 0, ranks != 2);
    append(history, hit.answer.tokens);
    append(history, random_tokens(random, 20));
  }
}

// At most R + W - 1 + a page and what is new.
TEST(StoreUnderEngine, TheNextTurnComputesNoMoreThanItsWindowsAndWhatIsNew) {
  MemoryDisk disk;
  std::mt19937 random(8);
  std::vector<TokenId> history = random_tokens(random, 450);
  {
    Life life("cpu", with_store(disk));
    append(history, life.ask(request_of(history, 400)).answer.tokens);
  }
  const auto turn_end = static_cast<int64_t>(history.size());
  append(history, random_tokens(random, 15));
  Life life("cpu", with_store(disk));
  const Served hit = life.ask(request_of(history, 4));
  const int64_t window = shipped().shape.window, size = static_cast<int64_t>(history.size());
  EXPECT_GE(hit.usage.cached_tokens, turn_end / 64 * 64 - 64);
  EXPECT_LE(size - hit.usage.cached_tokens + hit.usage.replayed_tokens, 2 * window + 62 + (size - turn_end));
  const StoreTierStats stats = life.engine().stats().store;
  EXPECT_EQ(stats.loads, 1);
  EXPECT_EQ(stats.loaded_snapshots, 1);
}

TEST(StoreUnderEngine, AnotherTenantOrModelFindsNothing) {
  MemoryDisk disk;
  std::mt19937 random(9);
  Request request = request_of(random_tokens(random, 500), 4);
  request.tenant = "a";
  Served first = Life("cpu", with_store(disk)).ask(request);
  request.tenant = "b";
  const Served other = Life("cpu", with_store(disk)).ask(request);
  EXPECT_EQ(other.usage.cached_tokens, 0);
  EXPECT_EQ(other.verdict.reason, MissReason::kNew);
  EXPECT_EQ(other.answer, first.answer);
  request.tenant = "a";
  EngineOptions options = with_store(disk);
  options.store.fingerprint = "another";
  EXPECT_EQ(Life("cpu", options).ask(request).usage.cached_tokens, 0);
  EXPECT_EQ(Life("cpu", with_store(disk)).ask(request).usage.cached_tokens, 448);
}

TEST(StoreUnderEngine, DamageIsAMiss) {
  std::mt19937 random(10);
  const Request request = request_of(random_tokens(random, 500), 8);
  MemoryDisk disk;
  const Served first = Life("cpu", with_store(disk)).ask(request);
  for (int round = 0; round < 6; ++round) {
    for (const std::string& path : disk.paths()) {
      if (!path.ends_with(".seg") || path.find("/chat/") == std::string::npos) continue;
      auto& bytes = disk.bytes_of(path);
      bytes[4096 + random() % (bytes.size() - 4096)] ^= static_cast<uint8_t>(1 + random() % 255);
    }
    ASSERT_EQ(Life("cpu", with_store(disk)).ask(request).answer, first.answer) << round;
  }
}

TEST(StoreUnderEngine, ADiskThatRefusesCostsHitsOnly) {
  std::mt19937 random(11);
  const Request request = request_of(random_tokens(random, 500), 4);
  MemoryDisk disk;
  const Served first = Life("cpu", with_store(disk)).ask(request);
  disk.set_fault(refusing("read"));
  {
    Life life("cpu", with_store(disk));
    const Served served = life.ask(request);
    EXPECT_EQ(served.answer, first.answer);
    EXPECT_EQ(served.usage.cached_tokens, 0);
  }
  disk.set_fault(nullptr);
  Life life("cpu", with_store(disk));
  disk.set_fault(refusing("read"));
  const Served served = life.ask(request);
  EXPECT_EQ(served.answer, first.answer);
  EXPECT_EQ(served.verdict.reason, MissReason::kTierDown);
  disk.set_fault(refusing("write"));
  EXPECT_EQ(life.ask(request_of(random_tokens(random, 200), 4)).answer.finals, 1);
  disk.set_fault(nullptr);
}

TEST(StoreUnderEngine, NobodyWaitsForADiskThatDoesNotAnswer) {
  std::mt19937 random(12);
  const Request request = request_of(random_tokens(random, 500), 4);
  MemoryDisk disk;
  const Served first = Life("cpu", with_store(disk)).ask(request);
  Gate gate;
  EngineOptions options = with_store(disk);
  options.store.deadline = {.base_us = 300'000, .per_1k_us = 0};
  Life life("cpu", options);
  disk.set_fault([&](const char* what, const std::string&) { return gate.pass(what); });
  Recorder& seen = life.seen();
  Served late;
  const RequestId waits = value(life.engine().submit(request, [&](const Event& event) {
    if (event.finish != FinishReason::kNone) late.usage = event.usage, late.verdict = *event.report->prefix;
    seen.handler()(event);
  }));
  const RequestId passes = value(life.engine().submit(request_of(random_tokens(random, 20), 4), seen.handler()));
  while (seen[passes].finals == 0) life.engine().step();
  EXPECT_EQ(seen[waits].finals, 0) << "the one that waits for the store was overtaken";
  run_until_idle(life.engine());
  EXPECT_EQ(seen[waits], first.answer);
  EXPECT_EQ(late.verdict.reason, MissReason::kLate);
  EXPECT_EQ(late.usage.cached_tokens, 0);
  EXPECT_EQ(life.engine().stats().store.late, 1);
  gate.open();
}

// As `cache drop` does it beside a running server: what stayed in memory is stored again when it is used.
TEST(StoreUnderEngine, PagesThatWereDroppedFromTheStoreAreStoredAgainWhenUsed) {
  std::mt19937 random(14);
  const Request request = request_of(random_tokens(random, 500), 4);
  MemoryDisk disk;
  EngineOptions options = with_store(disk);
  options.store.refresh_us = 10'000;
  {
    Life life("cpu", options);
    life.ask(request);
    const auto stored = [&] { return life.engine().stats().store.segments.written_records; };
    const auto wait_until = [](auto is_so) {
      for (int i = 0; i < 2'000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return is_so();
    };
    ASSERT_TRUE(wait_until([&] { return stored() >= 7; }));
    for (const std::string& path : disk.paths()) ASSERT_TRUE(disk.remove(path));
    ASSERT_TRUE(wait_until([&] { return life.engine().stats().store.segments.segments == 0; }));
    const Served hit = life.ask(request);
    EXPECT_EQ(hit.verdict.loaded_tokens, 0);
    EXPECT_EQ(hit.usage.cached_tokens, 448);
  }
  EXPECT_EQ(Life("cpu", with_store(disk)).ask(request).usage.cached_tokens, 448);
}

// Pages that were loaded are published before their upload was waited for: a second request reads them behind it.
TEST(StoreUnderEngine, OthersUseLoadedPagesBehindTheirUpload) {
  std::mt19937 random(15);
  const auto stem = random_tokens(random, 500);
  MemoryDisk disk;
  Life fresh("cpu", cold(ReplayMode::kDecoder));
  static_cast<void>(Life("cpu", with_store(disk)).ask(request_of(stem, 2)));
  Life life("delayed", with_store(disk));
  std::vector<std::pair<Request, RequestId>> asked;
  for (int i = 0; i < 4; ++i) {
    std::vector<TokenId> prompt = stem;
    append(prompt, random_tokens(random, 10 + i));
    asked.emplace_back(request_of(prompt, 6, random()), 0);
    asked.back().second = submit_patiently(life.engine(), asked.back().first, life.seen().handler());
  }
  run_until_idle(life.engine());
  expect_all_free(life.engine());
  for (const auto& [request, id] : asked) EXPECT_EQ(life.seen()[id], fresh.ask(request).answer);
  EXPECT_EQ(life.engine().stats().store.loads, 1);
}

// Requests that share beginnings, in a pool that is always full, over lives and a disk that fails now and then.
TEST(StoreUnderEngine, CrowdedPoolsAndFailingDisksGiveTheBytesOfAColdEngine) {
  MemoryDisk disk;
  std::mt19937 random(13);
  const auto stem = random_tokens(random, 260);
  Life fresh("cpu", cold(ReplayMode::kDecoder));
  for (int life_number = 0; life_number < 4; ++life_number) {
    std::mt19937 faults(static_cast<uint32_t>(life_number));
    std::mutex mutex;
    disk.set_fault([&](std::string_view what, const std::string&) {
      const std::lock_guard lock(mutex);
      return what == "read" && faults() % 8 == 0 ? Status(io_error("EIO")) : Status();
    });
    EngineOptions options = with_store(disk);
    options.pages = 14, options.max_batch = 4, options.context = 640;
    options.store.retry_us = 1'000;
    options.store.staged_pages = 4;
    Life life("cpu", options);
    std::vector<std::pair<Request, RequestId>> asked;
    for (int i = 0; i < 6; ++i) {
      std::vector<TokenId> prompt(stem.begin(), stem.begin() + 64 * (1 + static_cast<int64_t>(random() % 4)));
      append(prompt, random_tokens(random, 1 + static_cast<int32_t>(random() % 150)));
      Request request = request_of(prompt, 1 + static_cast<int32_t>(random() % 40), random());
      asked.emplace_back(request, submit_patiently(life.engine(), request, life.seen().handler()));
    }
    run_until_idle(life.engine());
    expect_all_free(life.engine());
    for (const auto& [request, id] : asked) ASSERT_EQ(life.seen()[id], fresh.ask(request).answer) << life_number;
    disk.set_fault(nullptr);
  }
}

}  // namespace
}  // namespace deepinfer
