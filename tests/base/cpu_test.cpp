#include <gtest/gtest.h>

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "support/fake_machine.h"

namespace halfbyte {
namespace {

class Machine : public testing::FakeMachine {
 public:
  using FakeMachine::FakeMachine;
  void siblings(int cpu, const std::string& list) const {
    write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list);
  }
  int threads(const std::vector<int>& allowed) const { return thread_count_for(allowed, sys(), proc()); }
  std::vector<std::vector<int>> cores(const std::vector<int>& allowed) const { return physical_cores(allowed, sys()); }
};

TEST(ThreadCount, CountsPhysicalCoresInTheAffinityMask) {
  const Machine m("smt");
  for (int c = 0; c < 8; ++c) m.siblings(c, std::to_string(c % 4) + "," + std::to_string(c % 4 + 4));
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(m.threads({0, 4}), 1);
  EXPECT_EQ(m.threads({0, 1, 5}), 2);
  EXPECT_EQ(m.threads({}), 1);
}

TEST(PhysicalCores, AreListsOfSiblings) {
  const Machine m("cores");
  for (int c = 0; c < 8; ++c) m.siblings(c, std::to_string(c % 4) + "," + std::to_string(c % 4 + 4));
  using Cores = std::vector<std::vector<int>>;
  EXPECT_EQ(m.cores({0, 1, 4, 5, 7}), (Cores{{0, 4}, {1, 5}, {7}}));
  EXPECT_EQ(m.cores({9}), (Cores{{9}}));  // not known
  EXPECT_EQ(m.cores({}), Cores{});
  EXPECT_FALSE(usable_cores().empty());
}

TEST(BindThread, RefusesNothingAndCpusThatAreNotThere) {
  EXPECT_FALSE(bind_thread({}));
  EXPECT_FALSE(bind_thread({100000}));
  std::thread([] {
    const std::vector<int>& core = usable_cores().back();
    ASSERT_TRUE(bind_thread(core));
    EXPECT_NE(std::find(core.begin(), core.end(), sched_getcpu()), core.end());
  }).join();
}

TEST(ThreadCount, WithoutTopologyEachCpuIsACore) {
  EXPECT_EQ(Machine("bare").threads({0, 1, 2}), 3);
}

TEST(ThreadCount, CgroupV2QuotaOfGroupAndParents) {
  const Machine m("v2");
  m.write("proc/self/cgroup", "0::/app/inner");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4, 5}), 6);
  m.write("sys/fs/cgroup/app/cpu.max", "400000 100000");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4, 5}), 4);
  m.write("sys/fs/cgroup/app/inner/cpu.max", "250000 100000");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4, 5}), 2) << "a part of a CPU does not carry a thread";
  EXPECT_EQ(m.threads({0}), 1);
  m.write("sys/fs/cgroup/app/inner/cpu.max", "max 100000");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4, 5}), 4);
  m.write("sys/fs/cgroup/app/cpu.max", "50000 100000");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4, 5}), 1);
}

TEST(ThreadCount, ContainersMountTheirOwnGroupAsRoot) {
  const Machine m("container");
  m.write("proc/self/cgroup", "0::/");
  m.write("sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(m.threads({0, 1, 2, 3}), 2);
}

TEST(ThreadCount, CgroupV1Quota) {
  const Machine m("v1");
  m.write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/");
  m.write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "300000");
  m.write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4}), 3);
  m.write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(m.threads({0, 1, 2, 3, 4}), 5);
}

TEST(ThreadCount, NonsenseLimitsNothing) {
  const Machine m("nonsense");
  m.write("proc/self/cgroup", "\n:\n0::\nxx\n0:::::\n0::/a");
  m.write("sys/fs/cgroup/a/cpu.max", "lots of it");
  m.write("sys/fs/cgroup/cpu.max", "-5 0");
  EXPECT_EQ(m.threads({0, 1}), 2);
}

TEST(CpuFeatures, AgreeWithTheKernel) {
  std::ifstream in("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("flags", 0) == 0) {
      flags = line + " ";
      break;
    }
  }
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const CpuFeatures& f = cpu_features();
  const auto has = [&](const std::string& name) { return flags.find(" " + name + " ") != std::string::npos; };
  EXPECT_EQ(f.avx2, has("avx2"));
  EXPECT_EQ(f.fma, has("fma"));
  EXPECT_EQ(f.f16c, has("f16c"));
  EXPECT_EQ(f.avx_vnni, has("avx_vnni"));
  EXPECT_EQ(f.avx512f, has("avx512f"));
  EXPECT_EQ(f.avx512bw, has("avx512bw"));
  EXPECT_EQ(f.avx512dq, has("avx512dq"));
  EXPECT_EQ(f.avx512vl, has("avx512vl"));
  EXPECT_EQ(f.avx512_vbmi, has("avx512vbmi"));
  EXPECT_EQ(f.avx512_vnni, has("avx512_vnni"));
  EXPECT_EQ(f.avx512_bf16, has("avx512_bf16"));
  EXPECT_EQ(f.avx512_fp16, has("avx512_fp16"));
  EXPECT_EQ(f.amx_tile, has("amx_tile"));
  EXPECT_EQ(f.amx_int8, has("amx_int8"));
  EXPECT_EQ(f.amx_bf16, has("amx_bf16"));
}

TEST(CpuFeatures, Text) {
  EXPECT_EQ(cpu_features_text({}), "none");
  CpuFeatures f;
  f.avx2 = f.amx_bf16 = true;
  EXPECT_EQ(cpu_features_text(f), "avx2 amx_bf16");
  EXPECT_FALSE(cpu_model_name().empty());
}

}  // namespace
}  // namespace halfbyte
