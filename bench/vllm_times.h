// Times of vLLM's FP4 linears, by a Python that has it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace halfbyte {

struct VllmTime {
  std::string kernel;  // "marlin"
  int n, k, tokens;
  double us;
};

// Runs bench/vllm_linears.py with `python`. kNotFound with its words where vLLM cannot be imported.
Result<std::vector<VllmTime>> vllm_times(const std::string& python, const std::vector<std::pair<int, int>>& shapes,
                                         const std::vector<int>& tokens, int rounds, int calls);

}  // namespace halfbyte
