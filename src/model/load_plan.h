// What loading a model will do, worked out and checked before any weight is read: which tensor becomes which linear, in
// which format, for which kernel, and how much memory that takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "halfbyte/plan.h"
#include "io/load_linear.h"
#include "io/model_source.h"
#include "kernels/registry.h"
#include "model/facts.h"

namespace halfbyte {

// What a plan's words mean to the kernels. Weights for study (int4, int3) are kept as BF16.
WeightFormat weight_format_of(WeightKind kind);
ActivationMode activation_mode_of(ActivationKind kind);

struct LinearTask {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  LinearPlan plan;
  LinearFacts facts;                            // what the source holds
  const LinearKernel* kernel = nullptr;         // for decode rows
  const LinearKernel* prompt_kernel = nullptr;  // for prompt rows
  bool stored_as_planned = false;               // the source's bytes are packed as they are; else they are rounded anew
  int integer_bits = 0;                         // > 0: rounded to integers of so many bits before anything else
  uint64_t packed_bytes = 0;
  uint64_t shared_staging = 0;  // made of the whole weight while it is loaded: scales and codes in another form
  uint64_t thread_staging = 0;  // that each thread needs beside that: rows on their way
};

struct LayerTask {
  const TensorInfo* attention_norm = nullptr;
  const TensorInfo* mlp_norm = nullptr;
  const TensorInfo* q_norm = nullptr;  // null without qk_norm
  const TensorInfo* k_norm = nullptr;
  const TensorInfo* key_scale = nullptr;  // of the cache; null: 1
  const TensorInfo* value_scale = nullptr;
  LinearTask q, k, v, o, gate, up, down;
};

// Memory that a model's weights take.
struct WeightFootprint {
  uint64_t linears = 0;  // packed, with the head
  uint64_t head = 0;     // of which the head
  uint64_t embedding = 0;
  uint64_t small = 0;           // norms and biases
  uint64_t shared_staging = 0;  // most that is needed beside them while one linear is loaded
  uint64_t thread_staging = 0;  // and for each thread

  uint64_t resident() const { return linears + embedding + small; }
  uint64_t staging(int threads) const { return shared_staging + static_cast<uint64_t>(threads) * thread_staging; }
  uint64_t peak(int threads) const { return resident() + staging(threads); }
};

struct LoadPlan : ModelFacts {
  std::string config_file;  // for messages
  bool tied_head = false;   // the head is made from the embedding, because it says so or has none of its own
  const TensorInfo* embedding = nullptr;
  bool embedding_as_stored = false;  // its rows are kept as the file has them
  const TensorInfo* final_norm = nullptr;
  std::vector<LayerTask> layers;
  LinearTask head;
  WeightFootprint footprint;
  uint64_t source_bytes = 0;  // stored bytes that loading reads
  int64_t parameters = 0;
  std::string calibrated_plan;     // of the folder's calibrated values that this plan does not have; else empty
  std::vector<std::string> notes;  // what a user should know: weights rounded anew, a head that was missing, ...
};

// The plan of a source when the user names none: the folder's halfbyte_plan.json; else the formats that its
// quantisation stores with 16-bit activations; else w4a16.
Result<PrecisionPlan> default_plan(const ModelSource& source, const ModelConfig& config);

// `plan`: the user's, or none; `kv` replaces its cache format. Fails for missing, superfluous or misshapen tensors and
// for plans without a kernel.
Result<LoadPlan> make_load_plan(const ModelSource& source, const std::optional<PrecisionPlan>& plan, Isa isa,
                                std::optional<KvKind> kv = {});

}  // namespace halfbyte
