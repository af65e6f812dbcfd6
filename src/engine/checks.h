// What a request and the engine's options must satisfy, each failure in one sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "halfbyte/engine.h"
#include "model/config.h"

namespace halfbyte {

inline constexpr int64_t kMostPrefillChunk = 65536;  // of EngineOptions

// invalid_argument that names the first id outside the vocabulary and its place.
Status check_tokens(std::span<const int32_t> tokens, int64_t vocab);

// The request as the engine carries it. `context`: tokens that it may reach.
Result<std::unique_ptr<Request>> make_request(GenerateRequest ask, uint64_t id, int64_t vocab, int64_t context);

// Options with context, kv_tokens and threads filled in, what a runner needs to know, and the memory that it will take.
struct ResolvedOptions {
  EngineOptions options;
  RunnerLimits limits;
  RunnerFootprint footprint;
};

// `available` is the memory that may be taken, in bytes; nothing is allocated. A model that is only planned has facts
// too, so this is also how `inspect --fit` predicts.
Result<ResolvedOptions> resolve_options(const ModelFacts& model, const EngineOptions& asked, uint64_t available);
// With the memory of another runner than the CPU's.
using FootprintOf = std::function<RunnerFootprint(const RunnerLimits&)>;
Result<ResolvedOptions> resolve_options(const ModelConfig& config, const EngineOptions& asked, uint64_t available,
                                        const FootprintOf& footprint);

}  // namespace halfbyte
