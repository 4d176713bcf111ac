#include "host/ring_reads.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/huge_pages.h"
#include "base/scratch_folder.h"

namespace deepinfer {
namespace {

TEST(RingReads, ManyAtOnceAndPastTheEnd) {
  const auto disk = open_ring_reads();
  if (!disk) GTEST_SKIP() << "no io_uring here";
  constexpr int64_t kBlock = DiskReads::kBlock, kReads = 100, kSize = kReads * kBlock - 1000;
  const auto folder = *ScratchFolder::create("ring");
  std::string content;
  for (int64_t i = 0; i < kSize; ++i) content += static_cast<char>(i * 31 + i / 4096);
  ASSERT_TRUE(write_file(folder.path() + "/file", content).ok());
  const MappedFile file = *MappedFile::open(folder.path() + "/file");
  ASSERT_TRUE(write_file(folder.path() + "/file", "another one by that name").ok());
  const int32_t number = *disk->add(file);
  HugeVector<char> room(size_t{4} << 20);
  EXPECT_FALSE(disk->take(true));
  std::vector<DiskReads::Read> reads;
  for (int64_t i = 0; i < kReads; ++i)
    reads.push_back({number, i * kBlock, kBlock, reinterpret_cast<uint8_t*>(room.data()) + i * kBlock, static_cast<uint64_t>(i)});
  disk->start(reads);
  std::map<uint64_t, int64_t> done;
  while (const auto one = disk->take(true)) done[one->tag] = one->bytes;
  ASSERT_EQ(done.size(), static_cast<size_t>(kReads));
  for (const auto& [tag, bytes] : done) EXPECT_EQ(bytes, tag == kReads - 1 ? kBlock - 1000 : kBlock);
  EXPECT_TRUE(std::equal(content.begin(), content.end(), room.begin()));
  static_cast<void>(*static_cast<const volatile uint8_t*>(&file.bytes()[0]));
  EXPECT_TRUE(disk->in_page_cache(file.bytes().data(), 1));
}

}  // namespace
}  // namespace deepinfer
