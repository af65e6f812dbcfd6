#include "decode/logit_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace halfbyte {
namespace {

std::vector<float> random_logits(size_t count, uint64_t seed) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<double>(philox_draw(seed, 0, i) >> 11) * 0x1p-53 * 40.0 - 20.0);
  return out;
}

TEST(LogitSums, EveryFormHasItsOwnNameAndTheBaselineIsFirst) {
  const auto forms = logit_fns_here();
  ASSERT_FALSE(forms.empty());
  EXPECT_EQ(forms[0]->name, "baseline");
  for (size_t i = 1; i < forms.size(); ++i) EXPECT_NE(forms[i]->name, forms[i - 1]->name);
}

TEST(LogitSums, AForcedSetOfKernelsChoosesItsForm) {
  EXPECT_EQ(logit_fns("ref").name, "baseline");
  EXPECT_EQ(&logit_fns("avxvnni"), &logit_fns("avx2"));
  EXPECT_EQ(&logit_fns("amx"), &best_logit_fns());  // has no form of its own
  for (const LogitFns* form : logit_fns_here().subspan(1)) EXPECT_EQ(&logit_fns(form->name), form);
}

TEST(LogitSums, FormsAgreeInEveryBit) {
  const LogitFns& baseline = *logit_fns_here()[0];
  for (const LogitFns* form : logit_fns_here()) {
    for (const size_t n : {1u, 7u, 31u, 32u, 33u, 4095u, 4096u, 4097u, 151936u}) {
      std::vector<float> logits = random_logits(n, n);
      logits[n / 2] = -std::numeric_limits<float>::infinity();
      if (n == 1) logits[0] = 3.0f;
      const auto count = static_cast<int64_t>(n);
      const float max = baseline.finite_max(logits.data(), count);
      ASSERT_EQ(form->finite_max(logits.data(), count), max) << form->name << " " << n;
      const LogitSums a = baseline.sums(logits.data(), count, max), b = form->sums(logits.data(), count, max);
      EXPECT_EQ(a.log_z, b.log_z) << form->name << " " << n;
      EXPECT_EQ(a.entropy, b.entropy) << form->name << " " << n;
      std::vector<uint32_t> wa(n), wb(n);
      EXPECT_EQ(baseline.weights(logits.data(), count, max, 0.7f, wa.data()),
                form->weights(logits.data(), count, max, 0.7f, wb.data()));
      EXPECT_EQ(wa, wb) << form->name << " " << n;
    }
  }
}

TEST(LogitSums, UniformLogitsHaveTheLogOfTheirCountAsEntropy) {
  for (const LogitFns* form : logit_fns_here()) {
    const std::vector<float> logits(50000, 1.25f);
    const LogitSums sums = form->sums(logits.data(), 50000, 1.25f);
    EXPECT_NEAR(sums.entropy, std::log(50000.0), 1e-12);
    EXPECT_NEAR(sums.log_z, std::log(50000.0), 1e-12);
  }
}

TEST(LogitSums, MaximumReportsNumbersThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const LogitFns* form : logit_fns_here()) {
    for (const size_t at : {0u, 31u, 32u, 40u}) {
      std::vector<float> logits(41, 0.5f);
      logits[at] = nan;
      EXPECT_TRUE(std::isnan(form->finite_max(logits.data(), 41))) << form->name << " " << at;
      logits[at] = inf;
      EXPECT_TRUE(std::isnan(form->finite_max(logits.data(), 41))) << form->name << " " << at;
      logits[at] = -inf;
      EXPECT_EQ(form->finite_max(logits.data(), 41), 0.5f) << form->name << " " << at;
    }
    const std::vector<float> banned(40, -inf);
    EXPECT_TRUE(std::isnan(form->finite_max(banned.data(), 40)));
  }
}

}  // namespace
}  // namespace halfbyte
