// Compiled once per instruction set: HALFBYTE_LOGIT_SUMS names the table this object defines
// (src/decode/CMakeLists.txt). The loops are written so that compilers vectorise them; nothing here may depend on the
// instruction set's width.
#include <limits>

#include "base/exp32.h"
#include "decode/logit_sums_tables.h"

namespace halfbyte {
namespace {

constexpr int64_t kLanes = 32;

// Lane i += lane i + half for half = 16, 8, 4, 2, 1.
double fold(double (&lanes)[kLanes]) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

float finite_max(const float* logits, int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float lane_max[kLanes];
  int32_t lane_nan[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) {
    lane_max[j] = -kInfinity;
    lane_nan[j] = 0;
  }
  const auto take = [&](int64_t i, int64_t j) {
    const float l = logits[i];
    lane_max[j] = l > lane_max[j] ? l : lane_max[j];
    lane_nan[j] |= l != l ? 1 : 0;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) take(i + j, j);
  for (int64_t j = 0; i + j < count; ++j) take(i + j, j);
  float max = -kInfinity;
  int32_t nan = 0;
  for (int64_t j = 0; j < kLanes; ++j) {
    max = lane_max[j] > max ? lane_max[j] : max;
    nan |= lane_nan[j];
  }
  const bool bad = nan != 0 || max == kInfinity || max == -kInfinity;
  return bad ? std::numeric_limits<float>::quiet_NaN() : max;
}

ChunkSums chunk_sums(const float* logits, int64_t count, float max) {
  double lane_z[kLanes] = {}, lane_s[kLanes] = {};
  // Two plain loops, the second over doubles: one loop over both is not vectorised.
  const auto take = [&](const float* from, int64_t lanes) {
    float d[kLanes], e[kLanes];
    for (int64_t j = 0; j < lanes; ++j) {
      const float below = from[j] - max;
      e[j] = exp32(below);
      d[j] = e[j] > 0.0f ? below : 0.0f;  // not 0 * infinity
    }
    for (int64_t j = 0; j < lanes; ++j) {
      lane_z[j] += static_cast<double>(e[j]);
      lane_s[j] += static_cast<double>(e[j]) * static_cast<double>(d[j]);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) take(logits + i, kLanes);
  take(logits + i, count - i);
  return {fold(lane_z), fold(lane_s)};
}

uint64_t weights(const float* logits, int64_t count, float max, float temperature, uint32_t* out) {
  const float top = max / temperature;
  uint64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float e = exp32(logits[i] / temperature - top);
    // e <= 1. Below 1 the product fits an int32, whose conversion vectorises; 1 itself is 2^31.
    const float below_one = e < 1.0f ? e : 0.0f;
    const uint32_t w = static_cast<uint32_t>(static_cast<int32_t>(below_one * 2147483648.0f));
    out[i] = e < 1.0f ? w : 0x80000000u;
  }
  for (int64_t i = 0; i < count; ++i) total += out[i];
  return total;
}

}  // namespace

const LogitFns HALFBYTE_LOGIT_SUMS = {HALFBYTE_LOGIT_SUMS_NAME, finite_max, chunk_sums, weights};

}  // namespace halfbyte
