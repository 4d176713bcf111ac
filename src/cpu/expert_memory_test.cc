// Which experts stay in memory, and that it never shows in a product.
#include "cpu/expert_memory.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/scratch_folder.h"
#include "cpu/delayed_device.h"
#include "cpu/test_values.h"

namespace deepinfer {
namespace {

TEST(ExpertMemory, KeepsWhatIsUsedMost) {
  std::vector<uint8_t> room(300);
  cpu::ExpertMemory memory;
  memory.open(room.data(), 100, 3, 8);
  const auto use = [&](std::vector<int32_t> places) {
    memory.begin();
    int held = 0;
    for (const int32_t place : places) {
      const auto found = memory.use(place);
      EXPECT_EQ(found.panels != nullptr, memory.holds(place));
      held += found.panels != nullptr;
    }
    return held;
  };
  EXPECT_EQ(use({0, 1, 2}), 3);
  EXPECT_EQ(use({0, 1, 3}), 2);  // no more than its equal: 2 stays
  EXPECT_TRUE(memory.holds(2) && !memory.holds(3));
  EXPECT_EQ(use({3}), 1);  // used more often than 2
  EXPECT_TRUE(memory.holds(3) && !memory.holds(2));
  for (int i = 0; i < 5; ++i) use({0, 1, 3});
  EXPECT_EQ(use({0, 1, 2, 3, 4, 5, 6, 7}), 3);  // one pass over all pushes nothing out
  for (int i = 0; i < 300; ++i) use({4, 5});
  EXPECT_TRUE(memory.holds(4) && memory.holds(5));  // what was hot once gives way
  memory.begin();
  memory.use(4), memory.use(5), memory.use(6);
  for (int i = 0; i < 400; ++i) memory.use(7);
  EXPECT_TRUE(memory.holds(4) && memory.holds(5));  // not within the product that uses them
}

// Some steps of products with experts that lie in memory or, as a checkpoint's do, mapped.
struct World {
  static constexpr int kExperts = 9, kN = 48, kK = 64, kRows = 5;
  static constexpr int64_t kPacked = (kN / 16) * (kK / 32) * 272;
  struct Step {
    std::vector<int32_t> offsets, pair_row;
  };

  World() : codes(random.e4m3(kRows * kK)), scales(random.e8m0(kRows * kK / 32)), steps(20) {
    for (int e = 0; e < kExperts; ++e) weights.push_back(random_weight(random, WeightFormat::kFp4, kN, kK));
    for (const Weight& w : weights) stored.push_back(w.matrix);
    for (Step& step : steps) {
      for (int e = 0; e < kExperts; ++e) {
        step.offsets.push_back(static_cast<int32_t>(step.pair_row.size()));
        for (int i = random.between(-3, 2); i > 0; --i) step.pair_row.push_back(random.below(kRows));
      }
      step.offsets.push_back(static_cast<int32_t>(step.pair_row.size()));
    }
  }

  // Every product of every step; `status`: what waiting for the steps gave, and stops at the first failure.
  std::vector<Bf16> run(Device& device, std::span<const MappedFile* const> files = {}, Status* status = nullptr) const {
    std::vector<Matrix> table = stored;
    std::vector<Matrix*> list;
    for (Matrix& w : table) list.push_back(&w);
    const Buffer room = *device.pack(list, {}, files);
    std::vector<Bf16> out;
    for (const Step& step : steps) {
      const auto pairs = static_cast<int32_t>(step.pair_row.size());
      const size_t at = out.size();
      out.resize(at + static_cast<size_t>(pairs) * kN);
      device.will_multiply(table, step.offsets.data());
      device.ops().grouped_matmul({{&pairs, pairs},
                                   codes.data(),
                                   scales.data(),
                                   step.pair_row.data(),
                                   step.offsets.data(),
                                   table.data(),
                                   kExperts,
                                   out.data() + at});
      const Status done = device.wait(device.record());
      if (status && *status) *status = done;
    }
    return out;
  }

  Random random{5};
  std::vector<uint8_t> codes, scales;
  std::vector<Step> steps;
  std::vector<Weight> weights;
  std::vector<Matrix> stored;
};

TEST(ExpertMemory, ProductsAreTheSameWithEveryBudget) {
  const World world;
  for (const CpuKernelsInfo& kernels : list_cpu_kernels()) {
    if (!kernels.supported) continue;
    auto whole = make_cpu_device({.threads = 2, .isa = kernels.isa});
    const auto want = world.run(**whole);
    EXPECT_EQ((*whole)->counts().expert_uses, 0);
    int64_t misses = INT64_MAX;
    for (const int64_t bytes : {1, 2000, 4000, 8000, 1 << 20}) {  // of 1,632 an expert
      auto device = make_cpu_device({.threads = 2, .isa = kernels.isa, .expert_bytes = bytes});
      EXPECT_TRUE(same_bits(world.run(**device), want)) << kernels.isa << " with " << bytes << " bytes";
      const WorkCounts counts = (*device)->counts();
      EXPECT_EQ(counts.weight_bytes, (*whole)->counts().weight_bytes);
      if (kernels.isa == std::string("portable")) continue;  // reads weights as stored
      EXPECT_LE(counts.expert_misses, misses);
      EXPECT_EQ(counts.missed_bytes, counts.expert_misses * World::kPacked);
      misses = counts.expert_misses;
      EXPECT_TRUE(same_bits(world.run(**device), want)) << "the first model's memory is another's";
    }
    EXPECT_TRUE(misses <= World::kExperts || kernels.isa == "portable") << "with room for all each is read once";
  }
}

// A disk whose reads come in any order, late and in parts, if they come.
class BadDisk final : public DiskReads {
 public:
  explicit BadDisk(uint32_t seed, int fails_at = -1, int cached = 3) : random_(seed), fails_at_(fails_at), cached_(cached) {}
  // Every file that was added is removed.
  ~BadDisk() override { EXPECT_FALSE(file_); }
  Result<int32_t> add(const MappedFile& file) override {
    file_ = &file;
    return 0;
  }
  void remove(int32_t) override { file_ = nullptr; }
  void start(std::span<const Read> reads) override {
    EXPECT_LE(waiting_.size() + reads.size(), kMost);
    for (const Read& read : reads) {
      EXPECT_TRUE(read.offset % kBlock == 0 && read.bytes % kBlock == 0 && reinterpret_cast<uintptr_t>(read.to) % kBlock == 0);
      waiting_.push_back(read);
    }
  }
  std::optional<Done> take(bool wait) override {
    if (waiting_.empty() || (!wait && random_.below(3) > 0)) return {};
    std::swap(waiting_[static_cast<size_t>(random_.below(static_cast<int>(waiting_.size())))], waiting_.back());
    const Read read = waiting_.back();
    waiting_.pop_back();
    if (num_++ == fails_at_) return Done{read.tag, -EIO};
    const int64_t bytes = random_.below(3) == 0 ? kBlock + random_.below(100) : read.bytes;
    return Done{read.tag, ::pread(file_->descriptor(), read.to, static_cast<size_t>(std::min(bytes, read.bytes)), read.offset)};
  }
  // Of a StoredWorld expert 3 and the last one.
  bool in_page_cache(int32_t, const void* mapped, int64_t) const override {
    return (static_cast<const uint8_t*>(mapped) - file_->bytes().data()) % 5 == cached_;
  }

 private:
  Random random_;
  int fails_at_, cached_, num_ = 0;
  const MappedFile* file_ = nullptr;
  std::vector<Read> waiting_;
};

// The world's experts in one file, none at a block's begin, data before scales and apart from them.
struct StoredWorld : World {
  StoredWorld() {
    std::string bytes(77, 'x');
    std::vector<size_t> at;
    for (const Weight& w : weights) {
      at.push_back(bytes.size());
      bytes.append(reinterpret_cast<const char*>(w.data.data()), w.data.size()).append(9001, 'x');
    }
    for (const Weight& w : weights) {
      at.push_back(bytes.size());
      bytes.append(reinterpret_cast<const char*>(w.scales.data()), w.scales.size());
    }
    EXPECT_TRUE(write_file(path(), bytes).ok());
    file = std::make_unique<MappedFile>(*MappedFile::open(path()));
    for (size_t e = 0; e < weights.size(); ++e) {
      stored[e].data = file->bytes().data() + at[e];
      stored[e].scales = file->bytes().data() + at[e + weights.size()];
    }
  }
  std::string path() const { return folder.path() + "/experts"; }

  ScratchFolder folder = *ScratchFolder::create("experts");
  std::unique_ptr<MappedFile> file;
};

std::unique_ptr<Device> small_device(const std::string& isa, std::unique_ptr<DiskReads> disk) {
  return *make_cpu_device({.threads = 2, .isa = isa, .expert_bytes = 4000, .disk = std::move(disk), .file_pages = 0});
}

TEST(ExpertMemory, ReadsComeInAnyOrderAndInParts) {
  const StoredWorld world;
  const MappedFile* files[] = {world.file.get()};
  for (const CpuKernelsInfo& kernels : list_cpu_kernels()) {
    if (!kernels.supported) continue;
    const auto want = world.run(**make_cpu_device({.threads = 2, .isa = kernels.isa}));
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const auto device = small_device(kernels.isa, std::make_unique<BadDisk>(seed));
      Status status;
      EXPECT_TRUE(same_bits(world.run(*device, files, &status), want)) << kernels.isa << " with seed " << seed;
      EXPECT_TRUE(status.ok());
    }
  }
}

TEST(ExpertMemory, AReadThatFailsIsAnErrorOfItsStep) {
  const StoredWorld world;
  const MappedFile* files[] = {world.file.get()};
  const auto whole = *make_cpu_device({.threads = 2});
  if (whole->isa() == "portable") GTEST_SKIP() << "reads weights as stored";
  const auto want = world.run(*whole);
  for (const int number : {0, 1, 20}) {
    const auto device = small_device("", std::make_unique<BadDisk>(1, number));
    Status status;
    world.run(*device, files, &status);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message.find(world.path() + ": cannot read experts at byte "), 0) << status.error().message;
    EXPECT_TRUE(same_bits(world.run(*device, files), want)) << "the next ones are as ever";
  }
}

TEST(ExpertMemory, AFileThatWasCutIsAnError) {
  const StoredWorld world;
  const MappedFile* files[] = {world.file.get()};
  ASSERT_EQ(::truncate(world.path().c_str(), static_cast<off_t>(world.file->bytes().size()) - 50), 0);
  const auto device = small_device("", std::make_unique<BadDisk>(1, -1, -1));  // a mapping shows zeros there
  if (device->isa() == "portable") GTEST_SKIP() << "reads weights as stored";
  Status status;
  world.run(*device, files, &status);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(status.error().message.find("the file ends there"), std::string::npos) << status.error().message;
}

TEST(ExpertMemory, AReadThatFailsIsAnErrorOfTheDelayedDevice) {
  const StoredWorld world;
  const MappedFile* files[] = {world.file.get()};
  const auto device =
      *make_delayed_device({.threads = 2, .expert_bytes = 4000, .disk = std::make_unique<BadDisk>(1, 0), .file_pages = 0});
  if (device->isa() == "portable") GTEST_SKIP() << "reads weights as stored";
  Status status;
  world.run(*device, files, &status);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

// A disk that cannot be had.
class NoDisk final : public DiskReads {
 public:
  Result<int32_t> add(const MappedFile&) override { return io_error("too many open files"); }
  void remove(int32_t) override {}
  void start(std::span<const Read>) override {}
  std::optional<Done> take(bool) override { return {}; }
  bool in_page_cache(int32_t, const void*, int64_t) const override { return false; }
};

TEST(ExpertMemory, AFileThatCannotBeOpenedAgainIsAnErrorUnlessThePageCacheHoldsAll) {
  const StoredWorld world;
  const MappedFile* files[] = {world.file.get()};
  constexpr int64_t kRest = (World::kExperts - 2) * 1664;  // two have slots
  for (const int64_t pages : {kRest, kRest * 2}) {
    const auto device =
        *make_cpu_device({.threads = 2, .expert_bytes = 4000, .disk = std::make_unique<NoDisk>(), .file_pages = pages});
    if (device->isa() == "portable") GTEST_SKIP() << "reads weights as stored";
    std::vector<Matrix> table = world.stored;
    std::vector<Matrix*> list;
    for (Matrix& w : table) list.push_back(&w);
    const auto room = device->pack(list, {}, files);
    EXPECT_EQ(room.ok(), pages > kRest) << pages;
    EXPECT_EQ(room.ok() ? "too many open files" : room.error().message, "too many open files");
  }
}

}  // namespace
}  // namespace deepinfer
