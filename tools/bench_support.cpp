#include "bench_support.h"

#include <algorithm>

namespace halfbyte::tools {

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

std::vector<int32_t> made_up_prompt(int64_t tokens, int64_t vocab, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + salt * 104729 + 17) % vocab));
  return ids;
}

void ReadSpeed::measure() {
  std::vector<double> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(static_cast<double>(kSampleBytes) / probe_.read(kSampleBytes) / 1e9);
  gbps_ = std::max(gbps_, percentile(samples, 0.5));
}

}  // namespace halfbyte::tools
