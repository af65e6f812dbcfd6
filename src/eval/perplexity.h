// Perplexity of a text: what every paper reports on WikiText-2.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "halfbyte/engine.h"

namespace halfbyte {

struct Perplexity {
  int64_t windows = 0, tokens = 0;  // tokens: scored
  double nats = 0;                  // mean negative log-likelihood of a scored token
  double perplexity = 0;
};

// The text's tokens in windows of `window`, one after the other; each is scored alone, all but its first token, and a last
// window that is not full is left out. (done, total) windows; false stops with kCancelled.
Result<Perplexity> perplexity(Engine& engine, std::span<const int32_t> tokens, int64_t window,
                              const std::function<bool(int64_t done, int64_t total)>& on_progress = nullptr);

}  // namespace halfbyte
