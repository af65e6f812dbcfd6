// What a model takes of a CUDA device's memory: weights, cache, and the work space of every pass that may run, laid out in one
// allocation that is made at the start. Plain C++, in every build, so that it can be tested without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/cuda_limits.h"
#include "engine/runner.h"
#include "halfbyte/plan.h"
#include "kernels/cuda/work_sizes.h"
#include "model/config.h"
#include "model/weights.h"

namespace halfbyte {

// The device's cache: a page holds page_tokens positions of one sequence for every layer, [layers][K, V][kv_heads]
// [page_tokens][head_dim] in BF16 or FP8.
struct CudaKvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_tokens = 0;
  bool fp8 = false;

  size_t layer_bytes() const { return static_cast<size_t>(2 * kv_heads * page_tokens * head_dim) * (fp8 ? 1 : 2); }
  size_t page_bytes() const { return static_cast<size_t>(layers) * layer_bytes(); }
};

// What a pass may have to hold.
struct CudaPassLimits {
  int64_t pages = 0;         // of the cache
  int64_t prompt_rows = 0;   // of one prompt pass; 0: no prompts
  int64_t sequences = 1;     // of one prompt pass
  int rows = kMaxPassRows;   // of one decode pass
  int64_t table_stride = 0;  // pages of the longest sequence
};
CudaPassLimits cuda_pass_limits(const ModelConfig& config, const RunnerLimits& limits);

// A model as its memory depends on it.
struct CudaModelShape {
  struct Layer {
    cuda::LinearSize qkv, o, gate_up, down;
    bool fuses_silu = false;  // prompts never write the result of gate and up: cuda::fuses_prompt_silu
  };
  ModelConfig config;
  bool embedding_bf16 = true;
  bool fp8_cache = false;
  std::vector<Layer> layers;
  cuda::LinearSize head;
};
// wgmma: the device's prompts run on it (KernelSet).
CudaModelShape cuda_model_shape(const ModelConfig& config, const PrecisionPlan& plan, const ModelWeights& weights,
                                bool wgmma);
// All layers in the plan's formats, whatever its overrides say: random weights.
CudaModelShape uniform_cuda_shape(const ModelConfig& config, const PrecisionPlan& plan, bool wgmma);

// A piece of the work space.
struct WorkPiece {
  size_t offset = 0, bytes = 0;
};
// The rounded input of one kind of linear, in both forms that a plan may mix, and the scales of its rows.
struct CudaInputPieces {
  WorkPiece fp4, bf16, scales;
};
// Of one padded number of rows in one group. What is not an input belongs to all numbers of rows: passes run one after the
// other, and nothing in it outlives one. The head's slots belong to all groups, whose draws follow one another.
struct CudaGroupPieces {
  CudaInputPieces attention, o, mlp, down, head;
  WorkPiece partial, logits_partial, parts, stats;
};
struct CudaPromptPieces {
  CudaInputPieces attention, o, mlp, down;
  WorkPiece tokens, positions, tables, residual, queries, attended, y;
};
struct CudaWorkLayout {
  std::map<std::pair<int, int>, CudaGroupPieces> groups;  // by padded rows and group
  CudaPromptPieces prompt;                                // nothing without prompt_rows
  WorkPiece tables, residual, plain;  // of decode rows: page tables, residual stream, logits for the host
  WorkPiece classes;                  // [rows][vocab] step classes of temperature policies
  size_t bytes = 0;
};
CudaWorkLayout lay_out_cuda_work(const CudaModelShape& shape, const CudaPassLimits& limits);

// What make_cuda_runner will take beside the weights.
RunnerFootprint cuda_runner_footprint(const CudaModelShape& shape, const RunnerLimits& limits);

// The device as it is now.
struct CudaMemory {
  std::string device;
  uint64_t free_bytes = 0, memory_bytes = 0;
  int multiprocessors = 0;
  bool wgmma = false;
};
// Of device 0 where it can run the kernels; else as cuda_usable().
Result<CudaMemory> cuda_memory();
// What the weights leave of it for cache and work space. kResourceExhausted with all numbers when they leave nothing.
Result<uint64_t> cuda_memory_beside_weights(const CudaMemory& memory, const CudaModelShape& shape);
uint64_t cuda_weight_bytes(const CudaModelShape& shape, int multiprocessors);

}  // namespace halfbyte
