#include "model/published_reset.h"

namespace halfbyte {
namespace {

struct Entry {
  std::string_view architecture;
  int64_t hidden, layers;
  bool r1;  // distilled from R1: see is_r1
  PublishedReset values;
};

constexpr Entry kEntries[] = {
    {"qwen3", 4096, 36, false, {"Qwen3-8B", 0.5505, 0.1f}},
    {"qwen3", 5120, 40, false, {"Qwen3-14B", 0.4863, 0.3f}},
    {"qwen3", 5120, 64, false, {"Qwen3-32B", 0.5363, 0.1f}},
    {"qwen2", 3584, 28, true, {"DeepSeek-R1-Distill-Qwen-7B", 0.6446, 0.4f}},
    {"qwen2", 5120, 48, true, {"DeepSeek-R1-Distill-Qwen-14B", 0.6488, 0.3f}},
};

// The distilled models end with one token and reach 128K; Qwen2.5's instruction models have two, or 32K.
bool is_r1(const ModelConfig& config) {
  return config.context == 131072 && config.stop_tokens.size() == 1;
}

}  // namespace

std::optional<PublishedReset> published_reset(const ModelConfig& config) {
  for (const Entry& e : kEntries) {
    if (config.architecture == e.architecture && config.hidden == e.hidden && config.layers == e.layers &&
        (!e.r1 || is_r1(config)))
      return e.values;
  }
  return std::nullopt;
}

}  // namespace halfbyte
