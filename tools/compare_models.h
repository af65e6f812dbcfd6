// Two models, tensor by tensor: what `inspect A B` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/model_source.h"

namespace halfbyte::tools {

struct TensorDifference {
  std::string name;                // of the module for a linear, else of the tensor
  std::string stored_a, stored_b;  // formats; "" where one model has no such tensor
  std::string note;                // why it was not compared: other shapes, missing, a type that is not read
  double snr_db = std::numeric_limits<double>::infinity();  // 10 log10(sum a^2 / sum (a - b)^2); infinite: equal
  double largest = 0;                                       // largest |a - b|
  uint64_t nan_a = 0, nan_b = 0;  // elements that are NaN or infinite; they count in neither sum
  bool compared() const { return note.empty(); }
};

// Every tensor of either model, in name order; linears by their dequantised values (times pre_quant_scale), whatever
// their formats. Fails only for files that cannot be read.
Result<std::vector<TensorDifference>> compare_models(const ModelSource& a, const ModelSource& b, ThreadPool& pool,
                                                     const std::function<void(size_t done, size_t total)>& progress);

std::string differences_text(const std::vector<TensorDifference>& differences);
// Whether there is nothing but equal tensors.
bool all_equal(const std::vector<TensorDifference>& differences);

}  // namespace halfbyte::tools
