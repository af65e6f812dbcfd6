// Teacher-forced scores from a row of logits: what every runner's score() adds for a position.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "decode/logit_sums.h"
#include "halfbyte/engine.h"

namespace halfbyte {

// Appends log p(next), entropy, argmax and, if asked for, the logits of position `at`. invalid_data when a logit is NaN
// or infinite.
Status append_score(std::span<const float> logits, int32_t next, int64_t at, const ScoreOptions& options,
                    const LogitFns& fns, ScoreResult& out);

}  // namespace halfbyte
