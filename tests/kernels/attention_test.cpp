// The key-value cache and attention over it, of every instruction set and format: against the golden vectors of the
// definition, and against the reference on odd sizes. All bit for bit.
#include <algorithm>
#include <cstring>

#include "formats/kv_blocks.h"
#include "formats/nvfp4.h"
#include "kernels/linear_support.h"
#include "kernels/ref/attention.h"
#include "kernels/vector_support.h"

namespace halfbyte::testing {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFP8, KvFormat::kNVFP4, KvFormat::kE1M2};

class Attention : public VectorTest {};

TEST_P(Attention, SaysWhoRuns) {
  EXPECT_EQ(fast().isa, GetParam().isa);
  for (const Isa other : {Isa::kRef, Isa::kAvx2, Isa::kAvx512}) {
    const AttentionKernels kernels = vector_kernels(other).attention;
    const bool same_set = other == GetParam().isa || (other == Isa::kAvx512 && GetParam().isa == Isa::kAmx);
    EXPECT_EQ(fast().attention.rows == kernels.rows, same_set && !GetParam().emulated);
    EXPECT_EQ(fast().attention.cut == kernels.cut, same_set && !GetParam().emulated);
  }
  const bool own_order = GetParam().isa == Isa::kAmx;
  EXPECT_EQ(fast().prompt_attention.rows == fast().attention.rows, !own_order);
  EXPECT_EQ(fast().prompt_attention.cut == fast().attention.cut, !own_order);
}

// A part filled with garbage, as fresh pages are.
std::vector<std::byte> fresh_part(const KvLayout& layout) {
  return std::vector<std::byte>(kv_part_bytes(layout), std::byte{0xFF});
}

TEST_P(Attention, StoresWhatTheDefinitionStores) {
  const GoldenFile golden = open_golden("kv");
  int cases = 0;
  for (const std::string& dim : golden.children("")) {
    const auto x = golden.get<float>(dim + "/x"), shift = golden.get<float>(dim + "/shift");
    const int64_t head_dim = golden.dims(dim + "/x")[1], rows = golden.dims(dim + "/x")[0];
    for (const KvFormat format : kFormats) {
      if (format == KvFormat::kF32) continue;
      const std::string path = dim + "/" + kv_format_name(format);
      for (const std::string& name : golden.children(path)) {
        const float scale = name == "scaled" ? golden.scalar<float>(dim + "/scale") : 1.0f;
        const KvLayout layout{format, 8, head_dim};
        std::vector<std::byte> keys = fresh_part(layout), values = fresh_part(layout);
        for (int64_t slot = rows; slot-- > 0;) {
          std::vector<float> row(x.begin() + slot * head_dim, x.begin() + (slot + 1) * head_dim);
          for (size_t d = 0; name == "shifted" && d < row.size(); ++d) row[d] -= shift[d];
          fast().store_kv(layout, slot, row.data(), scale, row.data(), scale, keys.data(), values.data());
        }
        // Values lie row by row, as the golden codes do.
        std::vector<uint8_t> codes;
        if (format == KvFormat::kBF16) {
          const auto wide = golden.get<uint16_t>(path + "/" + name + "/codes");
          codes.resize(wide.size() * 2);
          std::memcpy(codes.data(), wide.data(), codes.size());
        } else {
          codes = golden.get<uint8_t>(path + "/" + name + "/codes");
        }
        EXPECT_EQ(std::memcmp(values.data(), codes.data(), codes.size()), 0) << path << "/" << name;
        const auto expected = golden.get<float>(path + "/" + name + "/values");
        std::vector<float> read_keys, read_values;
        for (int64_t i = 0; i < rows * head_dim; ++i) {
          read_keys.push_back(ref::read_key(layout, keys.data(), i / head_dim, i % head_dim, scale));
          read_values.push_back(ref::read_value(layout, values.data(), i / head_dim, i % head_dim, scale));
        }
        EXPECT_TRUE(same(expected, read_keys)) << path << "/" << name;
        EXPECT_TRUE(same(expected, read_values)) << path << "/" << name;
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 33);
}

// Sizes that are no multiples of anything, and numbers that need care.
TEST_P(Attention, StoresWhatTheReferenceStores) {
  for (const KvFormat format : kFormats) {
    for (const int64_t head_dim : {2, 12, 16, 24, 40, 64, 80, 128}) {
      for (const int64_t page : {1, 2, 16, 32}) {
        const KvLayout layout{format, page, head_dim};
        std::vector<std::byte> keys[2] = {fresh_part(layout), fresh_part(layout)}, values[2] = {keys[0], keys[0]};
        for (unsigned i = 0; i < 12; ++i) {
          const int64_t slot = static_cast<int64_t>(i * 5) % page;
          std::vector<float> key = normal_values(head_dim, i, i % 3 == 0 ? 1e-3f : 30.0f),
                             value = normal_values(head_dim, 50 + i, i % 4 == 0 ? 300.0f : 0.01f);
          const float odd[] = {0.0f,    -0.0f, kNan,   kInf,   -kInf,  1e-30f,
                               -1e-42f, 3e38f, 448.0f, 464.0f, 465.0f, 0x1p-10f};
          if (i % 2 == 1) key[i % key.size()] = odd[i];
          value[(i * 7) % value.size()] = odd[11 - i];
          const float scale = i % 5 == 2 ? 0.037f : 1.0f;
          ref().store_kv(layout, slot, key.data(), scale, value.data(), 2 * scale, keys[0].data(), values[0].data());
          fast().store_kv(layout, slot, key.data(), scale, value.data(), 2 * scale, keys[1].data(), values[1].data());
          ASSERT_EQ(keys[0], keys[1]) << kv_format_name(format) << ", head_dim " << head_dim << ", page " << page
                                      << ", row " << i;
          ASSERT_EQ(values[0], values[1])
              << kv_format_name(format) << ", head_dim " << head_dim << ", page " << page << ", row " << i;
        }
      }
    }
  }
}

// A paged cache of one layer, filled from [positions, kv_heads, head_dim].
class Cache {
 public:
  Cache(const std::vector<float>& k, const std::vector<float>& v, int64_t kv_heads, const KvLayout& layout,
        float key_scale = 1.0f, float value_scale = 1.0f) {
    const int64_t row = kv_heads * layout.head_dim, positions = static_cast<int64_t>(k.size()) / row;
    const size_t part = kv_part_bytes(layout);
    for (int64_t first = 0; first < positions; first += layout.page_tokens) {
      buffers_.push_back(Buffer::allocate(2 * part * static_cast<size_t>(kv_heads)));
      std::memset(buffers_.back().mutable_bytes().data(), 0xFF, buffers_.back().size());
    }
    for (int64_t p = 0; p < positions; ++p) {
      std::byte* page = buffers_[static_cast<size_t>(p / layout.page_tokens)].mutable_bytes().data();
      for (int64_t h = 0; h < kv_heads; ++h) {
        const int64_t at = p * row + h * layout.head_dim;
        std::byte* keys = page + static_cast<size_t>(h) * part;
        vector_kernels(Isa::kRef).store_kv(layout, p % layout.page_tokens, k.data() + at, key_scale, v.data() + at,
                                           value_scale, keys, keys + static_cast<size_t>(kv_heads) * part);
      }
    }
    // Pages lie in no order of their own, as in a real pool.
    for (Buffer& b : buffers_) pages_.push_back(b.bytes().data());
    view_ = {pages_.data(), layout, kv_heads, key_scale, value_scale};
  }

  // Queries [count, group, head_dim] at consecutive positions.
  std::vector<float> attend(const AttentionKernels& kernels, const std::vector<float>& q, int64_t group,
                            int64_t kv_head, int64_t position) const {
    const int64_t width = group * view_.layout.head_dim, count = static_cast<int64_t>(q.size()) / width;
    EXPECT_LE(count, kernels.max_rows(group));
    std::vector<float> out(q.size(), 777.0f), scratch = scratch_for(group);
    kernels.rows(view_, {q.data(), out.data(), width, position, count, kv_head, group, scale()}, scratch.data());
    EXPECT_EQ(scratch.back(), 777.0f) << "wrote behind its scratch";
    return out;
  }

  // The same for one query, cut by cut.
  std::vector<float> attend_in_cuts(const AttentionKernels& kernels, const std::vector<float>& q, int64_t group,
                                    int64_t kv_head, int64_t position) const {
    const int64_t cuts = position / kAttentionCut + 1;
    const auto size = static_cast<size_t>(attention_partial_floats(group, view_.layout.head_dim));
    std::vector<float> out(q.size(), 777.0f), partials(size * static_cast<size_t>(cuts) + 1, 777.0f);
    for (int64_t cut = cuts; cut-- > 0;) {
      std::vector<float> scratch = scratch_for(group);
      kernels.cut(view_, {q.data(), nullptr, 0, position, 1, kv_head, group, scale()}, cut, scratch.data(),
                  partials.data() + static_cast<size_t>(cut) * size);
    }
    kernels.merge(partials.data(), cuts, group, view_.layout.head_dim, out.data());
    EXPECT_EQ(partials.back(), 777.0f) << "wrote behind its partials";
    return out;
  }

 private:
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(view_.layout.head_dim))); }
  std::vector<float> scratch_for(int64_t group) const {
    return std::vector<float>(static_cast<size_t>(attention_scratch_floats(group, view_.layout.head_dim)) + 1, 777.0f);
  }

  std::vector<Buffer> buffers_;
  std::vector<const std::byte*> pages_;
  KvView view_;
};

TEST_P(Attention, EqualsTheDefinition) {
  const GoldenFile golden = open_golden("attention");
  int cases = 0;
  for (const std::string& dim : golden.children("")) {
    const auto q = golden.get<float>(dim + "/q"), k = golden.get<float>(dim + "/k"), v = golden.get<float>(dim + "/v");
    const int64_t head_dim = golden.dims(dim + "/q")[1], group = golden.dims(dim + "/q")[0];
    for (const KvFormat format : kFormats) {
      const std::vector<std::string> there = golden.children(dim);
      if (std::find(there.begin(), there.end(), kv_format_name(format)) == there.end()) continue;
      const std::string path = dim + "/" + kv_format_name(format) + "/f32";
      for (const int64_t page : {4, 16, 64, 1024}) {
        const Cache cache(k, v, 1, {format, page, head_dim});
        for (const std::string& n : golden.children(path)) {
          const int64_t positions = std::stoll(n.substr(1));
          const auto expected = golden.get<float>(path + "/" + n + "/out");
          EXPECT_TRUE(same(expected, cache.attend(fast().attention, q, group, 0, positions - 1)))
              << path << "/" << n << ", pages of " << page;
          EXPECT_TRUE(same(expected, cache.attend_in_cuts(fast().attention, q, group, 0, positions - 1)))
              << path << "/" << n << ", pages of " << page;
          ++cases;
        }
      }
    }
  }
  EXPECT_EQ(cases, 4 * (2 * 7 + 5));
}

TEST_P(Attention, EqualsTheReference) {
  constexpr int64_t kHeads = 2, kPositions = 530;
  int64_t turn = 0;
  for (const int64_t head_dim : {8, 12, 16, 40, 64, 80, 128}) {
    const auto k = normal_values(kPositions * kHeads * head_dim, 8),
               v = normal_values(kPositions * kHeads * head_dim, 9);
    for (const KvFormat format : kFormats) {
      const int64_t page = int64_t{1} << (turn++ % 4 * 2 + 1);  // 2, 8, 32, 128
      const float scale = turn % 3 == 0 ? 0.011f : 1.0f;
      const Cache cache(k, v, kHeads, {format, page, head_dim}, scale, 3.0f * scale);
      for (const int64_t group : {1, 2, 3, 5, 6, 7}) {
        if (is_ref() && group != 2) continue;  // only cuts against rows
        const auto q = normal_values(group * head_dim, 10, 3.0f);
        for (const int64_t position :
             {int64_t{0}, 12 + group, int64_t{255} + group % 2, 280 + 7 * group, int64_t{529}}) {
          if (position > 256 && group % 2 == 0 && head_dim > 40) continue;  // the reference is slow
          const auto expected = cache.attend(ref().attention, q, group, 1, position);
          ASSERT_TRUE(same(expected, cache.attend(fast().attention, q, group, 1, position)))
              << kv_format_name(format) << ", head_dim " << head_dim << ", group " << group << ", position "
              << position;
          ASSERT_TRUE(same(expected, cache.attend_in_cuts(fast().attention, q, group, 1, position)))
              << kv_format_name(format) << ", head_dim " << head_dim << ", group " << group << ", position "
              << position;
        }
      }
    }
  }
}

// Rows that share a call give what each gives alone, wherever cuts and tiles fall.
TEST_P(Attention, RowsAreIndependent) {
  constexpr int64_t kPositions = 560, kHeadDim = 32;
  const auto k = normal_values(kPositions * kHeadDim, 11), v = normal_values(kPositions * kHeadDim, 12);
  for (const KvFormat format : kFormats) {
    const Cache cache(k, v, 1, {format, 32, kHeadDim});
    for (const int64_t group : {1, 3, 7, 60}) {
      if ((is_ref() && group != 3) || (GetParam().emulated && group != 7)) continue;
      const int64_t most = fast().attention.max_rows(group);
      for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{5}, most}) {
        if (count > most) continue;
        for (const int64_t position : {0, 13, 240, 255, 256, 500}) {
          const auto q = normal_values(count * group * kHeadDim, 13);
          const auto together = cache.attend(fast().attention, q, group, 0, position);
          for (int64_t i = 0; i < count; ++i) {
            const auto part = [&](const std::vector<float>& x) {
              return std::vector<float>(x.begin() + i * group * kHeadDim, x.begin() + (i + 1) * group * kHeadDim);
            };
            ASSERT_TRUE(same(part(together), cache.attend(fast().attention, part(q), group, 0, position + i)))
                << kv_format_name(format) << ", group " << group << ", row " << i << " of " << count << " at "
                << position;
          }
        }
      }
    }
  }
}

// A number that is not finite reaches the rows that see it, and no others.
TEST_P(Attention, NansReachWhoSeesThem) {
  constexpr int64_t kPositions = 300, kHeadDim = 32;
  for (const KvFormat format : kFormats) {
    for (const bool in_keys : {true, false}) {
      auto k = normal_values(kPositions * kHeadDim, 14), v = normal_values(kPositions * kHeadDim, 15);
      (in_keys ? k : v)[270 * kHeadDim + 5] = kNan;
      const Cache cache(k, v, 1, {format, 32, kHeadDim});
      const auto q = normal_values(2 * kHeadDim, 16);
      for (const int64_t position : {269, 270, 290}) {
        const auto expected = cache.attend(ref().attention, q, 2, 0, position);
        EXPECT_EQ(std::isnan(expected[5]), position >= 270) << kv_format_name(format);
        EXPECT_TRUE(same(expected, cache.attend(fast().attention, q, 2, 0, position)))
            << kv_format_name(format) << " " << position;
      }
    }
  }
}

// Prompt rows in an order of their own: the reference of that order, over every format, page size and company.
class PromptAttention : public VectorTest {
 protected:
  // Where a set has no such order, prompt rows are what decode rows are.
  AttentionKernels expected() const {
    if (GetParam().isa != Isa::kAmx) return ref().attention;
    return {&ref::attention_rows_in_tiles, &ref::attention_cut_in_tiles, &ref::attention_merge};
  }
  const AttentionKernels& prompt() const { return fast().prompt_attention; }
};

TEST_P(PromptAttention, EqualsTheReference) {
  constexpr int64_t kHeads = 2, kPositions = 300;
  int64_t turn = 0;
  for (const int64_t head_dim : {8, 32, 40, 64, 96, 128}) {
    auto k = normal_values(kPositions * kHeads * head_dim, 21), v = normal_values(kPositions * kHeads * head_dim, 22);
    for (size_t i = 0; i < k.size(); i += 37) k[i] *= 1e-39f, v[i] = i % 2 == 0 ? -0.0f : 1e-40f;  // subnormals, zeros
    for (const KvFormat format : kFormats) {
      if (format != KvFormat::kBF16 && head_dim != 64) continue;
      for (const int64_t page : {4, 16, 128}) {
        if (format != KvFormat::kBF16 && page != 16) continue;
        const Cache cache(k, v, kHeads, {format, page, head_dim});
        for (const int64_t group : {1, 3, 6}) {
          if (group == 6 && head_dim > 64) continue;  // the reference is slow
          const auto q = normal_values(group * head_dim, 23, turn++ % 4 == 0 ? 1e-20f : 3.0f);
          for (const int64_t position : {int64_t{0}, 15 + group, int64_t{31}, int64_t{255}, int64_t{299}}) {
            const auto wanted = cache.attend(expected(), q, group, 1, position);
            ASSERT_TRUE(same(wanted, cache.attend(prompt(), q, group, 1, position)))
                << kv_format_name(format) << ", head_dim " << head_dim << ", pages of " << page << ", group " << group
                << ", position " << position;
            ASSERT_TRUE(same(wanted, cache.attend_in_cuts(prompt(), q, group, 1, position)))
                << kv_format_name(format) << ", head_dim " << head_dim << ", group " << group << ", position "
                << position;
          }
        }
      }
    }
  }
}

// A subnormal q, and a subnormal rest of one, count as zeros though rounding them would give the smallest normal number; keys
// so large that it would show.
TEST_P(PromptAttention, SubnormalQueriesEqualTheReference) {
  constexpr int64_t kPositions = 40, kHeadDim = 64;
  const auto k = normal_values(kPositions * kHeadDim, 31, 1e36f), v = normal_values(kPositions * kHeadDim, 32);
  auto q = normal_values(2 * kHeadDim, 33, 1e-36f);
  const float subnormal = 0x1.fffffcp-127f, rest_is_subnormal = 0x1p-118f + (0x1p-126f - 0x1p-141f);
  for (size_t i = 0; i < q.size(); i += 2) q[i] = i < kHeadDim ? subnormal : rest_is_subnormal;
  const Cache cache(k, v, 1, {KvFormat::kBF16, 16, kHeadDim});
  EXPECT_TRUE(same(cache.attend(expected(), q, 2, 0, 39), cache.attend(prompt(), q, 2, 0, 39)));
}

TEST_P(PromptAttention, IsCloseToTheExactSums) {
  constexpr int64_t kPositions = 300, kHeadDim = 64;
  const auto k = normal_values(kPositions * kHeadDim, 24), v = normal_values(kPositions * kHeadDim, 25),
             q = normal_values(3 * kHeadDim, 26);
  const Cache cache(k, v, 1, {KvFormat::kBF16, 32, kHeadDim});
  const auto decode = cache.attend(ref().attention, q, 3, 0, 290), got = cache.attend(prompt(), q, 3, 0, 290);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], decode[i], 2e-5) << i;
}

TEST_P(PromptAttention, RowsAreIndependent) {
  constexpr int64_t kPositions = 470, kHeadDim = 64;
  const auto k = normal_values(kPositions * kHeadDim, 27), v = normal_values(kPositions * kHeadDim, 28);
  const Cache cache(k, v, 1, {KvFormat::kBF16, 32, kHeadDim});
  for (const int64_t group : {1, 3, 7, 200}) {
    if ((is_ref() || group == 200) && GetParam().emulated) continue;
    const int64_t most = prompt().max_rows(group);
    for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{5}, int64_t{11}, most}) {
      if (count > most || (GetParam().emulated && count == most && group != 7)) continue;
      for (const int64_t position : {0, 13, 250, 256}) {
        const auto q = normal_values(count * group * kHeadDim, 29);
        const auto together = cache.attend(prompt(), q, group, 0, position);
        for (int64_t i = 0; i < count; i += 1 + i / 3) {
          const auto part = [&](const std::vector<float>& x) {
            return std::vector<float>(x.begin() + i * group * kHeadDim, x.begin() + (i + 1) * group * kHeadDim);
          };
          ASSERT_TRUE(same(part(together), cache.attend(prompt(), part(q), group, 0, position + i)))
              << "group " << group << ", row " << i << " of " << count << " at " << position;
        }
      }
    }
  }
}

TEST_P(PromptAttention, NansReachWhoSeesThem) {
  constexpr int64_t kPositions = 300, kHeadDim = 32, kRows = 12;
  for (const float damaged : {kNan, kInf}) {
    for (const bool in_keys : {true, false}) {
      auto k = normal_values(kPositions * kHeadDim, 30), v = normal_values(kPositions * kHeadDim, 31);
      (in_keys ? k : v)[270 * kHeadDim + 5] = damaged;
      const Cache cache(k, v, 1, {KvFormat::kBF16, 32, kHeadDim});
      const auto q = normal_values(kRows * 2 * kHeadDim, 32);
      const auto together = cache.attend(prompt(), q, 2, 0, 264), wanted = cache.attend(expected(), q, 2, 0, 264);
      for (int64_t i = 0; i < kRows; ++i) {
        const bool finite = std::isfinite(together[static_cast<size_t>(i * 2 * kHeadDim + 5)]), sees = 264 + i >= 270;
        // A key that is infinite may give a score of minus infinity, which is a weight of 0.
        if (sees && in_keys && damaged == kInf) continue;
        EXPECT_EQ(finite, !sees) << i;
      }
      EXPECT_TRUE(same(wanted, together)) << (in_keys ? "key " : "value ") << damaged;
    }
  }
}

TEST(KvBlocks, OfE2m1AreNvfp4ActivationRows) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    auto x = normal_values(40, seed, seed % 3 == 0 ? 1e-4f : 5.0f);
    if (seed == 7) x[3] = kNan;
    for (const float alpha : {1.0f, 0.03f}) {
      uint8_t codes[40], scales[3], packed[24], expected_scales[3];
      KvBlocks<E2M1>::quantize_row(x.data(), 40, alpha, codes, scales);
      NVFP4::quantize_activation_row(x.data(), 40, alpha, packed, expected_scales);
      for (int i = 0; i < 40; ++i) EXPECT_EQ(codes[i], E2M1::unpack(packed, i));
      for (int b = 0; b < 3; ++b) EXPECT_EQ(scales[b], expected_scales[b]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Attention, vector_cases(), vector_case_name);
INSTANTIATE_TEST_SUITE_P(All, PromptAttention, vector_cases(), vector_case_name);

}  // namespace
}  // namespace halfbyte::testing
