#include "bench_support.h"

#include <algorithm>

namespace halfbyte::tools {

std::vector<int32_t> made_up_prompt(int64_t tokens, int64_t vocab, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + salt * 104729 + 17) % vocab));
  return ids;
}

void ReadSpeed::measure() {
  std::vector<double> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(static_cast<double>(kSampleBytes) / probe_.read(kSampleBytes) / 1e9);
  gbps_ = std::max(gbps_, median(samples));
}

}  // namespace halfbyte::tools
