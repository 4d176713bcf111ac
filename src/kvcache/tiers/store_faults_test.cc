// What a disk may do to the segment store: damage, lost power, refusals, a folder that goes; and death of the writer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/detail/Configuration.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

// Draws bits from what rapidcheck generated; all zero behind its end.
class Draws {
 public:
  explicit Draws(std::vector<uint32_t> values) : values_(std::move(values)) {}
  uint32_t operator()(uint32_t below) {
    const uint32_t mix = at_ < values_.size() ? values_[at_] : static_cast<uint32_t>(at_ * 2654435761u >> 7);
    ++at_;
    return mix % below;
  }

 private:
  std::vector<uint32_t> values_;
  size_t at_ = 0;
};

std::vector<uint32_t> any_draws() {
  return *rc::gen::container<std::vector<uint32_t>>(60, rc::gen::inRange<uint32_t>(0, 1u << 31));
}

TEST(StoreFaults, APipeOrAFolderIsNoSegmentAndHoldsNobodyUp) {
  const std::string folder = testing::TempDir() + "deepinfer-pipe-" + std::to_string(getpid());
  std::filesystem::create_directories(folder + "/d");
  ASSERT_EQ(::mkfifo((folder + "/p").c_str(), 0600), 0);
  PosixDisk disk;
  for (const char* name : {"/p", "/d"}) {
    EXPECT_FALSE(disk.open(folder + name, false)) << name;
    EXPECT_FALSE(disk.open(folder + name, true)) << name;
  }
  std::filesystem::remove_all(folder);
}

// More writes than may be under way, as runs of parts; then a disk that takes no more, whose error is that of a plain write.
TEST(StoreFaults, WritesUnderWayAreWholeOrAnError) {
  const std::string path = testing::TempDir() + "deepinfer-writes-" + std::to_string(getpid());
  PosixDisk disk;
  auto file = disk.create(path);
  ASSERT_TRUE(file);
  BlockBuffer buffer(64 * kStoreBlock), back(64 * kStoreBlock);
  for (size_t i = 0; i < buffer.bytes().size(); ++i) buffer.bytes()[i] = static_cast<uint8_t>(i * 7 >> 8);
  const auto block = [&](int64_t i) {
    return std::span<const uint8_t>(buffer.bytes()).subspan(static_cast<size_t>(i * kStoreBlock), kStoreBlock);
  };
  for (int64_t i = 0; i < 64; i += 2) {
    const std::span<const uint8_t> parts[] = {block(i), block(i + 1)};
    ASSERT_TRUE((*file)->start(i * kStoreBlock, parts));
  }
  ASSERT_TRUE((*file)->finish());
  ASSERT_TRUE((*file)->read(0, back.bytes()));
  EXPECT_TRUE(std::ranges::equal(back.bytes(), buffer.bytes()));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{64 * kStoreBlock, before.rlim_max};
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status done;
  for (int64_t i = 62; i < 66 && done; ++i) {
    const std::span<const uint8_t> part = block(i % 64);
    done = (*file)->start(i * kStoreBlock, {&part, 1});
  }
  const Status ended = (*file)->finish();
  EXPECT_FALSE(done && ended);
  EXPECT_TRUE((*file)->finish()) << "it was told";
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::filesystem::remove(path);
}

TEST(StoreFaults, EveryFlippedBitOfAFileIsAMissOrHarmless) {
  const ManualClock clock;
  MemoryDisk whole;
  constexpr uint64_t kPages = 6;
  {
    const auto store = must_open(whole, clock, test_store_options("kv"));
    for (uint64_t i = 0; i < kPages; ++i) ASSERT_TRUE(put_page(*store, TestPage(i)));
  }
  std::string path;
  for (const std::string& name : whole.paths()) path = name.ends_with(".seg") ? name : path;
  const std::vector<uint8_t> bytes = whole.bytes_of(path);
  int64_t lost = 0;
  for (size_t at = 0; at < bytes.size(); at += at % 4096 < 140 ? 1 : 97) {
    MemoryDisk disk;
    disk.add(path, bytes);
    disk.bytes_of(path)[at] ^= static_cast<uint8_t>(1u << (at % 8));
    const auto store = must_open(disk, clock, test_store_options("kv"));
    int64_t missed = 0;
    for (int round = 0; round < 2; ++round) {
      for (uint64_t i = 0; i < kPages; ++i) {
        const Found found = find_page(*store, TestPage(i));
        ASSERT_NE(found, Found::kWrong) << "byte " << at;
        missed += found == Found::kMiss && round == 0 ? 1 : 0;
      }
    }
    // A record's damage costs that record and counts once; a header's costs the segment; a table's nothing, it is made again.
    const bool in_header = at < kStoreBlock, in_table = at >= bytes.size() - 2 * kStoreBlock;
    ASSERT_EQ(missed, in_header ? static_cast<int64_t>(kPages) : in_table ? 0 : 1) << "byte " << at;
    const SegmentStoreStats stats = store->stats();
    ASSERT_EQ(stats.corrupt_records + stats.corrupt_segments, in_table ? 0 : 1) << "byte " << at;
    lost += missed;
  }
  EXPECT_GT(lost, 0);
}

TEST(StoreFaults, SwappedFilesAndSwappedRecordsAreMisses) {
  const ManualClock clock;
  MemoryDisk disk;
  std::vector<TestPage> pages;
  for (uint64_t i = 0; i < 40; ++i) pages.emplace_back(i);
  {
    const auto store = must_open(disk, clock, test_store_options("kv"));
    for (const TestPage& page : pages) ASSERT_TRUE(put_page(*store, page));
  }
  std::vector<std::string> files;
  for (const std::string& name : disk.paths()) {
    if (name.ends_with(".seg")) files.push_back(name);
  }
  ASSERT_GE(files.size(), 2u);
  std::vector<uint8_t>& bytes = disk.bytes_of(files[0]);
  std::swap_ranges(bytes.begin() + 4096, bytes.begin() + 8192, bytes.begin() + 8192);
  {
    const auto store = must_open(disk, clock, test_store_options("kv"));
    int64_t missed = 0;
    for (const TestPage& page : pages) missed += find_page(*store, page) == Found::kMiss ? 1 : 0;
    EXPECT_EQ(missed, 2);
  }
  disk.swap_files(files[0], files[1]);
  const auto store = must_open(disk, clock, test_store_options("kv"));
  for (const TestPage& page : pages) ASSERT_NE(find_page(*store, page), Found::kWrong);
  EXPECT_EQ(store->stats().corrupt_segments, 2);
}

TEST(StoreFaults, PowerFailuresLoseTheUnsyncedAtMost) {
  EXPECT_TRUE(rc::check("what was sealed is there, the rest is exact or a miss", [] {
    Draws draw(any_draws());
    MemoryDisk disk;
    ManualClock clock;
    std::set<uint64_t> sealed, open, all;
    for (int life = 0; life < 4; ++life) {
      auto store = must_open(disk, clock, test_store_options("kv"));
      for (const uint64_t number : all) {
        const Found found = find_page(*store, TestPage(number));
        RC_ASSERT(found != Found::kWrong);
        RC_ASSERT(found == Found::kExact || !sealed.contains(number));
      }
      for (uint32_t puts = draw(60); puts > 0; --puts) {
        const uint64_t number = draw(500);
        const bool known = store->contains(RecordKind::kPage, TestPage(number).key);
        RC_ASSERT(put_page(*store, TestPage(number)).ok());
        all.insert(number);
        if (!known) open.insert(number);
        if (draw(20) == 0) {
          RC_ASSERT(store->seal().ok());
          sealed.merge(open);
          open.clear();
        }
      }
      open.clear();
      disk.lose_power([&] { return draw(2) == 0; });
      clock.advance_us(1'000'000);
      // The process died with the machine: what its end would write meets a disk that takes nothing.
      disk.set_fault([](const char*, const std::string&) -> Status { return io_error("no power"); });
      store.reset();
      disk.set_fault({});
    }
  }));
}

TEST(StoreFaults, ADiskThatRefusesAnythingAnyTimeLosesNothingAcknowledged) {
  EXPECT_TRUE(rc::check("full, broken, read-only by turns", [] {
    Draws draw(any_draws());
    MemoryDisk disk;
    ManualClock clock;
    std::set<uint64_t> acknowledged;
    const uint32_t every = 2 + draw(12);
    const ErrorCode codes[] = {ErrorCode::kExhausted, ErrorCode::kIo, ErrorCode::kPermission};
    for (int life = 0; life < 3; ++life) {
      disk.set_fault([&, code = codes[draw(3)]](const char*, const std::string&) -> Status {
        if (draw(every) != 0) return {};
        return Error{code, "refused"};
      });
      const auto store = must_open(disk, clock, test_store_options("kv"));
      for (int i = 0; i < 60; ++i) {
        const uint64_t number = draw(400);
        if (put_page(*store, TestPage(number))) acknowledged.insert(number);
        clock.advance_us(draw(3) == 0 ? 31'000'000 : 1'000);
        RC_ASSERT(find_page(*store, TestPage(draw(400))) != Found::kWrong);
        if (draw(9) == 0) static_cast<void>(store->refresh());
      }
    }
    disk.set_fault({});
    const auto store = must_open(disk, clock, test_store_options("kv"));
    for (const uint64_t number : acknowledged) RC_ASSERT(find_page(*store, TestPage(number)) == Found::kExact);
  }));
}

TEST(StoreFaults, AFullDiskIsTriedAgainAfterAWhile) {
  MemoryDisk disk;
  ManualClock clock;
  const auto store = must_open(disk, clock, test_store_options("kv"));
  ASSERT_TRUE(put_page(*store, TestPage(1)));
  disk.set_fault([](const char* operation, const std::string&) -> Status {
    if (std::string(operation) == "write") return exhausted("no space left");
    return {};
  });
  EXPECT_EQ(put_page(*store, TestPage(2)).error().code, ErrorCode::kExhausted);
  disk.set_fault({});
  EXPECT_EQ(put_page(*store, TestPage(2)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(find_page(*store, TestPage(1)), Found::kExact);
  clock.advance_us(30'000'000);
  EXPECT_TRUE(put_page(*store, TestPage(2)));
  EXPECT_EQ(find_page(*store, TestPage(2)), Found::kExact);
  EXPECT_EQ(store->stats().write_faults, 1);
  EXPECT_EQ(store->stats().last_error, "no space left");
}

TEST(StoreFaults, ADiskThatCannotBeReadIsLeftAloneForAWhile) {
  MemoryDisk disk;
  ManualClock clock;
  const auto store = must_open(disk, clock, test_store_options("kv"));
  ASSERT_TRUE(put_page(*store, TestPage(1)));
  int64_t asked = 0;
  disk.set_fault([&](const char* operation, const std::string&) -> Status {
    if (std::string(operation) != "read") return {};
    ++asked;
    return io_error("input/output error");
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(find_page(*store, TestPage(1)), Found::kMiss);
  EXPECT_EQ(asked, 4);
  disk.set_fault({});
  clock.advance_us(30'000'000);
  EXPECT_EQ(find_page(*store, TestPage(1)), Found::kExact);
}

TEST(StoreFaults, AFolderThatGoesAndComesBack) {
  MemoryDisk disk;
  ManualClock clock;
  const auto store = must_open(disk, clock, test_store_options("kv"));
  for (uint64_t i = 0; i < 30; ++i) ASSERT_TRUE(put_page(*store, TestPage(i)));
  ASSERT_TRUE(store->refresh());
  disk.rename_folder("kv", "away");
  ASSERT_TRUE(store->refresh());
  EXPECT_EQ(find_page(*store, TestPage(0)), Found::kMiss);
  ASSERT_TRUE(put_page(*store, TestPage(100)));
  EXPECT_EQ(find_page(*store, TestPage(100)), Found::kExact);
  disk.rename_folder("away", "kv");
  ASSERT_TRUE(store->refresh());
  for (uint64_t i = 0; i < 30; ++i) EXPECT_EQ(find_page(*store, TestPage(i)), Found::kExact);
  EXPECT_EQ(find_page(*store, TestPage(100)), Found::kExact);
}

TEST(StoreFaults, AReadOnlyDiskIsReadAndRefusesPuts) {
  MemoryDisk disk;
  ManualClock clock;
  {
    const auto store = must_open(disk, clock, test_store_options("kv"));
    ASSERT_TRUE(put_page(*store, TestPage(1)));
  }
  disk.set_fault([](const char* operation, const std::string&) -> Status {
    if (std::set<std::string>{"list", "open", "read"}.contains(operation)) return {};
    return Error{ErrorCode::kPermission, "read-only"};
  });
  const auto store = must_open(disk, clock, test_store_options("kv"));
  EXPECT_EQ(find_page(*store, TestPage(1)), Found::kExact);
  EXPECT_EQ(put_page(*store, TestPage(2)).error().code, ErrorCode::kPermission);
}

// Nothing has to make room for what 200 writers leave.
constexpr int64_t kLimit = int64_t{8} << 30;

// A child that puts pages, one after another, and says the number of each that is acknowledged; it never returns.
[[noreturn]] void write_until_killed(const std::string& root, uint64_t first, int report) {
  PosixDisk disk;
  const DateClock clock;
  const auto store = must_open(disk, clock, test_store_options(root, kLimit));
  const RetentionClass classes[] = {RetentionClass::kAgent, RetentionClass::kChat};
  for (uint64_t number = first;; ++number) {
    const bool done = put_page(*store, TestPage(number), classes[number % 2]).ok();
    if (!done || ::write(report, &number, sizeof(number)) != sizeof(number)) ::_exit(1);
  }
}

void kill_writers(uint32_t kills, uint32_t draw) {
  const std::string root = testing::TempDir() + "kv_store_kill-" + std::to_string(getpid());  // several builds may run
  std::filesystem::remove_all(root);
  std::set<uint64_t> acknowledged;
  uint64_t first = 0;
  const auto one_kill = [&](uint32_t records, uint32_t wait_us) {
    const uint64_t born = first;
    int pipe[2];
    ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) write_until_killed(root, first, pipe[1]);
    ::close(pipe[1]);
    uint64_t number = 0;
    for (uint32_t i = 0; i < records && ::read(pipe[0], &number, sizeof(number)) == sizeof(number); ++i)
      acknowledged.insert(number);
    ::usleep(wait_us);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (::read(pipe[0], &number, sizeof(number)) == sizeof(number)) acknowledged.insert(number);
    ::close(pipe[0]);
    first = std::max(first, number + 1) + 10;
    PosixDisk disk;
    const DateClock clock;
    const auto store = must_open(disk, clock, test_store_options(root, kLimit));
    for (auto known = acknowledged.lower_bound(born); known != acknowledged.end(); ++known) {
      ASSERT_EQ(find_page(*store, TestPage(*known)), Found::kExact) << *known;
    }
    // The one that was under way is there whole or not at all.
    for (uint64_t next = number + 1; next < first; ++next) ASSERT_NE(find_page(*store, TestPage(next)), Found::kWrong);
    ASSERT_EQ(store->stats().corrupt_records + store->stats().wrong_records, 0);
  };
  for (uint32_t i = 0; i < kills && !testing::Test::HasFatalFailure(); ++i) {
    const uint32_t mix = (draw + i) * 2654435761u;
    one_kill((mix >> 8) % 60, (mix >> 4) % 3'000);
  }
  EXPECT_GT(acknowledged.size(), size_t{kills} * 10);
  PosixDisk disk;
  const DateClock clock;
  auto store = must_open(disk, clock, test_store_options(root, kLimit));
  for (const uint64_t known : acknowledged) ASSERT_EQ(find_page(*store, TestPage(known)), Found::kExact) << known;
  store.reset();
  std::filesystem::remove_all(root);
}

// 20 kills; 200 under RC_PARAMS="max_success=1000", every 20 in a new folder, which stays quick to open.
TEST(StoreFaults, KilledWritersLoseNothingAcknowledged) {
  const auto rounds = static_cast<uint32_t>(std::max(rc::detail::configuration().testParams.maxSuccess / 100, 1));
  for (uint32_t round = 0; round < rounds && !HasFatalFailure(); ++round) kill_writers(20, round * 20);
}

}  // namespace
}  // namespace deepinfer
