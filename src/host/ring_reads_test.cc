#include "host/ring_reads.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <map>
#include <string>
#include <thread>
#include <vector>

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
  disk->remove(number);
  EXPECT_EQ(*disk->add(file), number);
}

TEST(RingReads, SaysWhatIsInThePageCacheOfFilesThatThisUserMayWrite) {
  const auto disk = open_ring_reads();
  if (!disk) GTEST_SKIP() << "no io_uring here";
  const auto folder = *ScratchFolder::create("ring");
  const std::string path = folder.path() + "/hole";
  ASSERT_TRUE(write_file(path, "x").ok());
  constexpr int64_t kSize = int64_t{8} << 20;
  ASSERT_EQ(::truncate(path.c_str(), kSize), 0);
  const MappedFile hole = *MappedFile::open(path);
  const int32_t number = *disk->add(hole);
  EXPECT_FALSE(disk->in_page_cache(number, hole.bytes().data(), kSize)) << "nobody has read it";
  for (int64_t i = 0; i < kSize; i += DiskReads::kBlock)
    static_cast<void>(*static_cast<const volatile uint8_t*>(&hole.bytes()[static_cast<size_t>(i)]));
  EXPECT_TRUE(disk->in_page_cache(number, hole.bytes().data(), kSize));
  ASSERT_EQ(::truncate(path.c_str(), kSize - 1), 0);
  EXPECT_FALSE(disk->in_page_cache(number, hole.bytes().data(), kSize)) << "it was cut";
  // The system calls all of this one present.
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "root alone";
  const MappedFile of_root = *MappedFile::open("/bin/sh");
  const auto added = disk->add(of_root);
  const bool says = !added || disk->in_page_cache(*added, of_root.bytes().data(), 1);
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  EXPECT_FALSE(says);
  EXPECT_TRUE(added.ok());
}

// This thread's io_uring_enter fails from now on, as in a container that forgot it.
bool refuse_enter() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(RingReads, ReadsWithoutTheRingWhereItCannotBeEntered) {
  const auto disk = open_ring_reads();
  if (!disk) GTEST_SKIP() << "no io_uring here";
  const auto folder = *ScratchFolder::create("ring");
  ASSERT_TRUE(write_file(folder.path() + "/file", "content").ok());
  const MappedFile file = *MappedFile::open(folder.path() + "/file");
  const int32_t number = *disk->add(file);
  HugeVector<char> room(size_t{4} << 20);
  const DiskReads::Read read = {number, 0, DiskReads::kBlock, reinterpret_cast<uint8_t*>(room.data()), 0};
  const std::vector<DiskReads::Read> reads(200, read);
  int came = 0;
  bool refused = false, opens = false;
  std::thread([&] {
    refused = refuse_enter();
    if (!refused) return;
    opens = open_ring_reads() != nullptr;
    for (int i = 0; i < 5; ++i) {  // more than the ring has room for
      disk->start(reads);
      while (const auto done = disk->take(true)) came += done->bytes == 7;
    }
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp here";
  EXPECT_FALSE(opens);
  EXPECT_EQ(came, 1000);
  disk->start({&read, 1});  // entered again
  EXPECT_EQ(disk->take(true)->bytes, 7);
}

}  // namespace
}  // namespace deepinfer
