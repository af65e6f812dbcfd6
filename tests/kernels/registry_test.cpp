#include "kernels/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kNVFP4,
                                     WeightFormat::kMXFP4};
constexpr ActivationMode kModes[] = {ActivationMode::kF32, ActivationMode::kA16, ActivationMode::kA8,
                                     ActivationMode::kA4};

TEST(Registry, EveryCombinationOfTheContractHasAKernelInEverySet) {
  for (Isa isa : all_isas()) {
    for (WeightFormat format : kFormats) {
      for (ActivationMode mode : kModes) {
        const bool plain = block_size(format) == 1;
        const auto found = find_linear_kernel(format, mode, isa);
        const bool exists = !plain || mode == ActivationMode::kF32 || mode == ActivationMode::kA16;
        ASSERT_EQ(found.ok(), exists);
        if (!exists) {
          EXPECT_EQ(found.status().code(), StatusCode::kUnsupported);
          continue;
        }
        EXPECT_EQ((*found)->weights, format);
        EXPECT_EQ((*found)->activations, mode);
        EXPECT_LE((*found)->isa, isa);
        EXPECT_TRUE((*found)->name.ends_with(isa_name((*found)->isa))) << (*found)->name;
        EXPECT_EQ(find_linear_kernel_named((*found)->name), *found);
        EXPECT_FALSE((*found)->prompt_only);

        // The prompt rows' kernel reads what the decode rows' kernel packed.
        const auto prompt = find_linear_kernel(format, mode, isa, RowRole::kPrompt);
        ASSERT_TRUE(prompt.ok());
        EXPECT_EQ((*prompt)->pack, (*found)->pack) << (*prompt)->name;
        EXPECT_EQ((*prompt)->packed_bytes, (*found)->packed_bytes) << (*prompt)->name;
        EXPECT_EQ((*prompt)->row_tile % (*found)->row_tile, 0) << (*prompt)->name;
        const bool tiles = isa == Isa::kAmx && format != WeightFormat::kF32 && format != WeightFormat::kFP8 &&
                           (format != WeightFormat::kBF16 || mode == ActivationMode::kA16) &&
                           mode != ActivationMode::kF32;
        EXPECT_EQ((*prompt)->isa == Isa::kAmx, tiles) << (*prompt)->name;
        // Beside BF16 weights one kernel runs both roles.
        EXPECT_EQ((*prompt)->prompt_only, tiles && format != WeightFormat::kBF16) << (*prompt)->name;
      }
    }
  }
}

// AVX-VNNI has the FP4 linears and takes everything else from AVX2. No other set takes anything from it: a CPU with
// AVX-512 need not have it.
TEST(Registry, AvxVnniIsABranchOfItsOwn) {
  int its_own = 0;
  for (WeightFormat format : kFormats) {
    for (ActivationMode mode : kModes) {
      for (Isa isa : all_isas()) {
        const auto found = find_linear_kernel(format, mode, isa);
        if (!found.ok()) continue;
        const bool own = isa == Isa::kAvxVnni && block_size(format) != 1 && mode != ActivationMode::kF32;
        EXPECT_EQ((*found)->isa == Isa::kAvxVnni, own) << (*found)->name << " for " << isa_name(isa);
        its_own += own ? 1 : 0;
        if (isa == Isa::kAvxVnni && !own) {
          EXPECT_EQ(*found, *find_linear_kernel(format, mode, Isa::kAvx2));
        }
      }
    }
  }
#if defined(__x86_64__)
  EXPECT_EQ(its_own, 6);
  EXPECT_EQ(vector_kernels(Isa::kAvxVnni).isa, Isa::kAvx2);
#endif
}

TEST(Registry, NamesAreUniqueAndShapesSane) {
  std::set<std::string_view> names;
  for (const LinearKernel& k : all_linear_kernels()) {
    EXPECT_TRUE(names.insert(k.name).second) << k.name;
    EXPECT_GE(k.row_tile, 1);
    EXPECT_GE(k.max_rows, 8) << k.name;
    for (int64_t n : {1, 15, 16, 17, 1000}) {
      for (int64_t width : {1, 15, 16, 31, 33, 576}) {
        EXPECT_EQ(k.activation_bytes(width) % kKernelAlign, 0u) << k.name;
        EXPECT_GT(k.packed_bytes(n, width), 0u) << k.name;
      }
    }
  }
  EXPECT_EQ(find_linear_kernel_named("linear_nvfp4_a16_sse"), nullptr);
}

TEST(Registry, ChoosesAndRefuses) {
  ASSERT_TRUE(choose_isa("ref").ok());
  EXPECT_EQ(*choose_isa("ref"), Isa::kRef);
  ASSERT_TRUE(choose_isa("").ok());
  EXPECT_TRUE(isa_runs_here(*choose_isa("")));
  const auto unknown = choose_isa("neon");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("ref, avx2, avxvnni, avx512, amx"));
  for (Isa isa : all_isas()) {
    const auto forced = choose_isa(isa_name(isa));
    ASSERT_EQ(forced.ok(), isa_runs_here(isa));
    if (forced.ok()) {
      EXPECT_EQ(*forced, isa);
    } else {
      EXPECT_THAT(forced.status().message(), HasSubstr(isa == Isa::kAmx ? "amx" : "avx"));
    }
  }
}

TEST(Registry, PrintsEveryKernel) {
  const std::string text = registry_text();
  for (const LinearKernel& k : all_linear_kernels()) EXPECT_THAT(text, HasSubstr(std::string(k.name)));
}

}  // namespace
}  // namespace halfbyte
