#include "base/memory_info.h"

#include <gtest/gtest.h>

#include "support/fake_machine.h"

namespace halfbyte {
namespace {

using testing::FakeMachine;

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t available(const FakeMachine& m) {
  return available_memory_bytes(m.sys(), m.proc());
}

FakeMachine with_1_gib(const std::string& name) {
  FakeMachine m("memory_" + name);
  m.write("proc/meminfo", "MemTotal:        4194304 kB\nHugePages_Total:       0\nMemAvailable:    1048576 kB");
  return m;
}

TEST(AvailableMemory, UnknownIsUnlimited) {
  EXPECT_EQ(available(FakeMachine("memory_bare")), UINT64_MAX);
}

TEST(AvailableMemory, IsTheKernelsEstimate) {
  EXPECT_EQ(available(with_1_gib("meminfo")), 1024 * kMiB);
}

TEST(AvailableMemory, CgroupV2LimitOfGroupAndParents) {
  const FakeMachine m = with_1_gib("v2");
  m.write("proc/self/cgroup", "0::/app/inner");
  m.write("sys/fs/cgroup/app/memory.max", std::to_string(512 * kMiB));
  EXPECT_EQ(available(m), 1024 * kMiB) << "a limit without a use says nothing";
  m.write("sys/fs/cgroup/app/memory.current", std::to_string(212 * kMiB));
  EXPECT_EQ(available(m), 300 * kMiB);
  m.write("sys/fs/cgroup/app/inner/memory.max", "max");
  m.write("sys/fs/cgroup/app/inner/memory.current", std::to_string(100 * kMiB));
  EXPECT_EQ(available(m), 300 * kMiB);
  m.write("sys/fs/cgroup/app/inner/memory.max", std::to_string(150 * kMiB));
  EXPECT_EQ(available(m), 50 * kMiB);
}

TEST(AvailableMemory, PageCacheCountsAsFree) {
  const FakeMachine m = with_1_gib("cache");
  m.write("proc/self/cgroup", "0::/");
  m.write("sys/fs/cgroup/memory.max", std::to_string(400 * kMiB));
  m.write("sys/fs/cgroup/memory.current", std::to_string(390 * kMiB));
  m.write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file " + std::to_string(200 * kMiB) + "\nactive_file " +
                                           std::to_string(50 * kMiB) + "\ntotal_inactive_file 7");
  EXPECT_EQ(available(m), 260 * kMiB);
}

TEST(AvailableMemory, UseAboveTheLimitLeavesNothing) {
  const FakeMachine m = with_1_gib("full");
  m.write("proc/self/cgroup", "0::/");
  m.write("sys/fs/cgroup/memory.max", "1000");
  m.write("sys/fs/cgroup/memory.current", "2000");
  EXPECT_EQ(available(m), 0u);
}

TEST(AvailableMemory, CgroupV1Limit) {
  const FakeMachine m = with_1_gib("v1");
  m.write("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n0::/");
  m.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", std::to_string(300 * kMiB));
  m.write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", std::to_string(250 * kMiB));
  m.write("sys/fs/cgroup/memory/docker/abc/memory.stat",
          "inactive_file 7\ntotal_inactive_file " + std::to_string(30 * kMiB));
  EXPECT_EQ(available(m), 80 * kMiB);
  m.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(available(m), 1024 * kMiB) << "version 1 writes 'no limit' as a huge number";
}

TEST(AvailableMemory, NonsenseLimitsNothing) {
  const FakeMachine m = with_1_gib("nonsense");
  m.write("proc/self/cgroup", "\n:\n0::\nxx\n0::/a");
  m.write("sys/fs/cgroup/a/memory.max", "plenty");
  m.write("sys/fs/cgroup/a/memory.current", "");
  EXPECT_EQ(available(m), 1024 * kMiB);
}

TEST(AvailableMemory, ThisMachineHasSome) {
  EXPECT_GT(available_memory_bytes(), 0u);
}

}  // namespace
}  // namespace halfbyte
