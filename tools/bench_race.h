// halfbyte bench --race: one decode in BF16 and the same in a 4-bit plan, played side by side at the rates that were measured.
#pragma once

#include <string>
#include <vector>

#include "engine/cuda_api.h"

namespace halfbyte::tools {

// A lane of the race: the end of each step in ms from the start, rising; a step gives each of `batch` sequences a token.
struct RaceLane {
  std::string plan;
  std::vector<double> ends;
  int batch = 1;
  KvKind kv = KvKind::kBF16;

  static RaceLane of(const std::string& plan, const std::vector<double>& step_ms, int batch = 1,
                     KvKind kv = KvKind::kBF16);
  double total_ms() const { return ends.empty() ? 0 : ends.back(); }
  int64_t tokens() const { return batch * static_cast<int64_t>(ends.size()); }
  int64_t tokens_at(double ms) const;  // of all sequences
};

// What both lanes show after `ms`, a line each.
std::string race_frame(const std::vector<RaceLane>& lanes, double ms);
// The result, as a table or one JSON object.
std::string race_result(const CudaDecodeOptions& options, const CudaDecodeReport& first,
                        const std::vector<RaceLane>& lanes, bool json);

// BF16 and options.plan. same_cache: both with that plan's cache, where it was asked for by name; else BF16 with its own, as the
// papers compare.
Result<std::vector<CudaDecodeOptions>> race_entries(const CudaDecodeOptions& options, bool same_cache);

// Measures both one after the other, then plays them on a terminal in real time.
int run_race(const CudaDecodeOptions& options, bool same_cache, bool json);

}  // namespace halfbyte::tools
