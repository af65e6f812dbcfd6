// How much memory a model will take, before any weight is read.
#pragma once

#include <cstdint>
#include <string>

#include "model/load_plan.h"

namespace halfbyte::tools {

struct MemoryFit {
  int64_t context = 0;  // tokens a sequence may reach
  int batch = 1;        // sequences at once
  uint64_t weights = 0;
  uint64_t loading = 0;  // beside the weights, while they are made; gone before the cache is needed
  uint64_t kv = 0;       // when every sequence is as long as it may be
  uint64_t work = 0;     // activations, logits, samplers
  uint64_t available = 0;

  // The most that is needed at one time.
  uint64_t peak() const;
  bool fits() const { return peak() <= available; }
};

// What loading and the engine take with these options, in their own reckoning. context 0: the model's. kInvalidArgument
// when the model was not made for so long a context.
Result<MemoryFit> predict_memory(const LoadPlan& plan, int64_t context, int batch, int threads);

// A table that ends in one line of verdict.
std::string memory_fit_text(const MemoryFit& fit);

}  // namespace halfbyte::tools
