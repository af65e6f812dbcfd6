// Which CUDA kernels a device gets, by what it is; names that force them; tables of measured times. Needs no CUDA.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/cuda/linear_table.h"

namespace halfbyte::cuda {
namespace {

constexpr size_t kKiB = 1024;
constexpr DeviceFacts kA100{8, 0, 163 * kKiB}, kAda{8, 9, 99 * kKiB}, kH200{9, 0, 227 * kKiB}, kB200{10, 0, 227 * kKiB},
    kBlackwellCard{12, 0, 99 * kKiB};

KernelSet set_of(const DeviceFacts& device, ForcedKernels forced = ForcedKernels::kNone) {
  const auto set = kernel_set(device, forced);
  EXPECT_TRUE(set.ok()) << set.status().message();
  return set.ok() ? *set : KernelSet();
}

TEST(CudaKernelSet, IsChosenByCapabilityAndSharedMemory) {
  const KernelSet h200 = set_of(kH200);
  EXPECT_TRUE(h200.ring && h200.clusters && h200.wgmma && h200.programmatic && h200.convert_fp8);
  EXPECT_EQ(h200.linear, LinearKernel::kRing);
  EXPECT_TRUE(h200.why.empty()) << h200.why;

  const KernelSet b200 = set_of(kB200);  // rings and clusters, but no wgmma
  EXPECT_TRUE(b200.ring && b200.clusters && b200.programmatic);
  EXPECT_FALSE(b200.wgmma);

  const KernelSet card = set_of(kBlackwellCard);
  EXPECT_FALSE(card.ring || card.clusters || card.wgmma);
  EXPECT_TRUE(card.programmatic && card.convert_fp8);
  EXPECT_EQ(card.linear, LinearKernel::kStages);
  EXPECT_EQ(card.why, "99 KiB of shared memory a thread block, the rings need 227");
  EXPECT_NE(describe(card).find("stages"), std::string::npos);
  EXPECT_NE(describe(card).find("the rings need 227"), std::string::npos);

  const KernelSet a100 = set_of(kA100), ada = set_of(kAda);
  EXPECT_FALSE(a100.ring || a100.clusters || a100.programmatic || a100.convert_fp8);
  EXPECT_TRUE(ada.convert_fp8);
  EXPECT_NE(a100.why.find("compute capability 8.0"), std::string::npos) << a100.why;

  const auto old = kernel_set({7, 5, 64 * kKiB}, ForcedKernels::kNone);
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.status().message().find("7.5, expected 8.0"), std::string::npos) << old.status().message();
}

TEST(CudaKernelSet, CanBeForced) {
  const KernelSet portable = set_of(kH200, ForcedKernels::kPortable);
  EXPECT_FALSE(portable.ring || portable.clusters || portable.wgmma);
  EXPECT_TRUE(portable.forced);
  EXPECT_EQ(portable.linear, LinearKernel::kStages);
  EXPECT_EQ(portable.why, "asked for");

  const KernelSet stages = set_of(kH200, ForcedKernels::kStages);
  EXPECT_TRUE(stages.ring && stages.clusters && stages.wgmma && stages.forced);
  EXPECT_EQ(stages.linear, LinearKernel::kStages);
  EXPECT_EQ(set_of(kH200, ForcedKernels::kRing).linear, LinearKernel::kRing);

  const auto refused = kernel_set(kBlackwellCard, ForcedKernels::kRing);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("99 KiB of shared memory"), std::string::npos);
}

TEST(CudaKernelSet, FamilyIsTheNameThatForcesIt) {
  EXPECT_EQ(family_name(set_of(kH200)), "ring");
  EXPECT_EQ(family_name(set_of(kH200, ForcedKernels::kStages)), "stages");
  EXPECT_EQ(family_name(set_of(kH200, ForcedKernels::kPortable)), "portable");
  EXPECT_EQ(family_name(set_of(kBlackwellCard)), "portable");
  EXPECT_EQ(family_name(set_of(kA100, ForcedKernels::kStages)), "portable");
}

TEST(CudaKernelSet, NamesAreListedWhenOneIsWrong) {
  EXPECT_EQ(*forced_kernels_named(""), ForcedKernels::kNone);
  EXPECT_EQ(*forced_kernels_named("ring"), ForcedKernels::kRing);
  EXPECT_EQ(*forced_kernels_named("stages"), ForcedKernels::kStages);
  EXPECT_EQ(*forced_kernels_named("portable"), ForcedKernels::kPortable);
  for (const char* wrong : {"rign", "avx2", "Ring", " ring"}) {
    const auto forced = forced_kernels_named(wrong);
    ASSERT_FALSE(forced.ok()) << wrong;
    EXPECT_NE(forced.status().message().find("expected ring, stages"), std::string::npos) << forced.status().message();
  }
}

TEST(CudaKernelSet, NeedsCodeForTheDevice) {
  EXPECT_TRUE(check_built_for(kH200, {"90a"}).ok());
  EXPECT_TRUE(check_built_for(kAda, {"80"}).ok());          // 8.x runs what was compiled for an older 8.x
  EXPECT_FALSE(check_built_for(kA100, {"86", "89"}).ok());  // and nothing newer
  EXPECT_FALSE(check_built_for(kH200, {"80", "100a"}).ok());
  EXPECT_FALSE(check_built_for({10, 3, 227 * kKiB}, {"100a"}).ok());
  EXPECT_TRUE(check_built_for(kBlackwellCard, {"90a", "120a"}).ok());
  const std::string message = check_built_for(kA100, {"90a", "120a"}).message();
  EXPECT_NE(message.find("code for 90a, 120a only"), std::string::npos) << message;
  EXPECT_NE(message.find("-DHALFBYTE_CUDA_ARCHITECTURES=80"), std::string::npos) << message;
  EXPECT_NE(check_built_for(kH200, {"80"}).message().find("=90a"), std::string::npos);
  EXPECT_NE(check_built_for({8, 9, 0}, {"90a"}).message().find("=89"), std::string::npos);
  EXPECT_EQ(code_for(kAda, {"80", "86", "90a"}), 86);
  EXPECT_EQ(code_for(kAda, {"89", "80"}), 89);
  EXPECT_EQ(code_for(kH200, {"80", "90a"}), 90);
  EXPECT_EQ(code_for(kH200, {"80"}), 0);
  EXPECT_TRUE(check_built_for({8, 7, 0}, {"86", "89"}).ok());
  EXPECT_FALSE(check_built_for({8, 7, 0}, {"89", "90a"}).ok());
  for (const int minor : {7, 8})  // what CMake takes, not the device's own number
    EXPECT_TRUE(check_built_for({8, minor, 0}, {"90a"}).message().ends_with("ARCHITECTURES=86"));
  for (const DeviceFacts& newer : {DeviceFacts{10, 3, 0}, DeviceFacts{12, 1, 0}})
    EXPECT_NE(check_built_for(newer, {"100a", "120a"}).message().find("no kernels for it yet"), std::string::npos);
}

// --- tables ---

const TableKey kKey{"NVIDIA H200", 13000, "0123456789ab"};

LinearTable a_table() {
  LinearTable table;
  table.add({6144, 4096, 1, {5.71, 6.4}});
  table.add({6144, 4096, 16, {8.0, 7.0}});
  table.add({4096, 4096, 1, {4.0, 3.95}});  // within the noise
  table.add({512, 256, 1, {0, 3.0}});       // no ring there
  return table;
}

TEST(CudaLinearTable, ChoosesTheFastest) {
  const LinearTable table = a_table();
  EXPECT_EQ(table.best(6144, 4096, 1), LinearKernel::kRing);
  EXPECT_EQ(table.best(6144, 4096, 2), LinearKernel::kStages);  // as 16 rows, the next that was measured
  EXPECT_EQ(table.best(6144, 4096, 16), LinearKernel::kStages);
  EXPECT_EQ(table.best(4096, 4096, 1), LinearKernel::kRing);
  EXPECT_EQ(table.best(4096, 4096, 2), std::nullopt);
  EXPECT_EQ(table.best(512, 256, 1), LinearKernel::kStages);
  EXPECT_EQ(table.best(100, 100, 1), std::nullopt);
  EXPECT_NE(table.text().find("5.710"), std::string::npos) << table.text();
}

TEST(CudaLinearTable, IsWhatWasWritten) {
  const std::string text = a_table().file_text(kKey);
  const auto read = LinearTable::parse(text, kKey);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->file_text(kKey), text);
  EXPECT_EQ(read->lines().size(), 4u);
}

TEST(CudaLinearTable, RefusesWhatIsForeign) {
  const std::string text = a_table().file_text(kKey);
  for (TableKey other : {TableKey{"NVIDIA H100", 13000, "0123456789ab"}, TableKey{"NVIDIA H200", 12080, "0123456789ab"},
                         TableKey{"NVIDIA H200", 13000, "ba9876543210"}}) {
    const auto read = LinearTable::parse(text, other);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(read.status().message().find("measured with"), std::string::npos) << read.status().message();
  }
}

TEST(CudaLinearTable, RefusesWhatIsBroken) {
  const std::string text = a_table().file_text(kKey);
  const auto refused = [](const std::string& changed) {
    const auto read = LinearTable::parse(changed, kKey);
    EXPECT_FALSE(read.ok()) << changed;
    return read.ok() ? "" : read.status().message();
  };
  EXPECT_NE(refused("").find("line 1"), std::string::npos);
  EXPECT_NE(refused("halfbyte cuda linears 2\n").find("line 1"), std::string::npos);
  for (size_t bytes = 0; bytes + 1 < text.size(); ++bytes) refused(text.substr(0, bytes));  // cut off anywhere
  const size_t at = text.find("5.710");
  ASSERT_NE(at, std::string::npos);
  for (const char* wrong : {"abcde", "-5.71", "0.000", "nan  ", "inf  "}) {
    std::string changed = text;
    changed.replace(at, 5, wrong);
    EXPECT_NE(refused(changed).find("line 5"), std::string::npos) << wrong;
  }
  std::string rows = text;
  rows.replace(text.find("4096 1 "), 7, "4096 3 ");
  EXPECT_NE(refused(rows).find("expected 'fp4 N K ROWS"), std::string::npos);
  EXPECT_NE(refused(text + "more\n").find("line 10 is 'more', expected nothing behind 'end'"), std::string::npos);
  std::string twice = text;
  twice.replace(twice.find("stages 6.400"), 12, "ring 9.0");
  EXPECT_NE(refused(twice).find("line 5"), std::string::npos);
  EXPECT_NE(refused(LinearTable().file_text(kKey)).find("line 5 is 'end', expected 'fp4 N K ROWS"), std::string::npos);
}

TEST(CudaLinearTable, LiesInTheUsersCache) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(HALFBYTE_TEST_TMP) / "cache";
  fs::remove_all(folder);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", folder.c_str(), 1), 0);
  const fs::path path = linear_table_path("NVIDIA H200/../x");
  EXPECT_EQ(path, folder / "halfbyte" / "cuda" / "linears-NVIDIA-H200----x.txt");
  const auto none = read_linear_table(path, kKey);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->lines().empty());
  const Status written = write_linear_table(path, a_table(), kKey);
  ASSERT_TRUE(written.ok()) << written.message();
  const auto read = read_linear_table(path, kKey);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->file_text(kKey), a_table().file_text(kKey));
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), fs::directory_iterator()), 1);
  std::ofstream(path) << "something else";
  const auto broken = read_linear_table(path, kKey);
  ASSERT_FALSE(broken.ok());
  EXPECT_TRUE(broken.status().message().starts_with(path.string() + ": line 1")) << broken.status().message();
  EXPECT_TRUE(write_linear_table(path, a_table(), kKey).ok());
  EXPECT_TRUE(read_linear_table(path, kKey).ok());
}

TEST(CudaLinearTable, SaysWhatLiesInItsPlace) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(HALFBYTE_TEST_TMP) / "place";
  fs::remove_all(folder);
  const fs::path path = folder / "linears-x.txt";
  fs::create_directories(path / "something");
  const auto read = read_linear_table(path, kKey);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(read.status().message().ends_with("; remove it")) << read.status().message();
  const Status written = write_linear_table(path, a_table(), kKey);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.message().find("cannot be kept in " + path.string() + ": "), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << "part of a file was left";

  const Status no_folder = write_linear_table("/dev/null/halfbyte/cuda/x.txt", a_table(), kKey);
  ASSERT_FALSE(no_folder.ok());
  EXPECT_TRUE(no_folder.message().starts_with("the measured times cannot be kept in /dev/null/halfbyte/cuda/x.txt: "))
      << no_folder.message();
  EXPECT_NE(no_folder.message().find("XDG_CACHE_HOME"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte::cuda
