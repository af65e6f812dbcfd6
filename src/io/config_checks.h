// Ranges and rules that hold for a configuration from any file. Inside io only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "io/hf_config.h"

namespace halfbyte {

// Far above every published model, low enough that products of two fit in 63 bits.
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 32;

// kUnsupported that names the architecture and lists the supported ones.
Status unsupported_architecture(const std::string& file, std::string_view architecture);

// The member is there and not null.
Status require_present(const JsonValue& object, std::string_view key);

// Fills what has a default that depends on other fields (head_dim, rope.original_max_position) and checks how the
// fields fit together.
Status check_config(HfConfig& config);

}  // namespace halfbyte
