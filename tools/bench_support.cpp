#include "bench_support.h"

#include <algorithm>
#include <utility>

namespace halfbyte::tools {

std::vector<int32_t> made_up_prompt(int64_t tokens, int64_t vocab, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + salt * 104729 + 17) % vocab));
  return ids;
}

Result<std::vector<TokenEvent>> measured_step(Engine& engine) {
  HB_ASSIGN(std::vector<TokenEvent> events, engine.step());
  for (const TokenEvent& e : events)
    if (e.finish == FinishReason::kError) return internal_error("the engine gave a request up: " + e.error);
  return Result<std::vector<TokenEvent>>(std::move(events));
}

void ReadSpeed::measure() {
  std::vector<double> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(static_cast<double>(kSampleBytes) / probe_.read(kSampleBytes) / 1e9);
  gbps_ = std::max(gbps_, median(samples));
}

}  // namespace halfbyte::tools
