// What the parity tests share: a model on a forced instruction set, teacher-forced logits, greedy text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halfbyte/engine.h"
#include "halfbyte/model.h"

namespace halfbyte::testing {

// The failure as an exception, which GoogleTest reports with its text.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

std::unique_ptr<Engine> open_engine(const std::string& path, const std::string& plan, const std::string& kernels,
                                    const EngineOptions& options = {});

// Greedy continuations of several prompts, run together; each ends at `stop` (if >= 0) or after max_tokens.
std::vector<std::vector<int32_t>> greedy(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                         int64_t max_tokens, int32_t stop);

}  // namespace halfbyte::testing
