// The tiny random models of the parity tests, made from their config.json by the rule that tiny_models.py states.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace halfbyte::testing {

// Writes `folder`/config.json and model.safetensors of tests/parity/tiny/`name`.json. Returns the fingerprint that
// tiny.hbg holds for these weights.
Result<uint64_t> write_tiny_model(const std::string& name, const std::string& folder);

}  // namespace halfbyte::testing
