// A model's weights in a CUDA device's memory, packed for its kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/cuda_memory.h"
#include "kernels/cuda/ops.h"
#include "model/config.h"
#include "model/model_impl.h"

namespace halfbyte {

// Weights of one input, stacked, and how that input is rounded.
struct CudaLinear {
  cuda::LinearStorage storage;
  cuda::RowMode mode = cuda::RowMode::kA16;
  float static_alpha = 0.0f;
};

struct CudaLayer {
  cuda::DeviceBuffer attention_norm, q_norm, k_norm, mlp_norm;  // q_norm, k_norm: empty without
  CudaLinear qkv, o, gate_up, down;
  float key_scale = 1.0f, value_scale = 1.0f;  // of an FP8 cache
};

// Thread-compatible; immutable once made.
struct CudaWeights {
  ModelConfig config;
  CudaModelShape shape;
  cuda::DeviceInfo device;
  bool embedding_bf16 = true;
  cuda::DeviceBuffer embedding;  // [vocab][hidden]
  std::vector<CudaLayer> layers;
  cuda::DeviceBuffer final_norm;
  CudaLinear head;
  cuda::DeviceBuffer cos, sin;  // [context][head_dim / 2]
  int64_t context = 0;          // positions that cos and sin cover

  uint64_t linear_bytes() const;  // that a decode step reads, without the head
};

// `model` holds its weights in their normal form (kernels "ref"). context: longest sequence. kUnsupported for formats
// that the device's kernels do not have, with the linear's name.
Result<CudaWeights> upload_weights(const Model::Impl& model, const cuda::DeviceInfo& device, int64_t context);

// Random weights of a shape, made on the device, in the formats of `plan` (linear and head).
Result<CudaWeights> random_cuda_weights(const ModelConfig& config, const PrecisionPlan& plan,
                                        const cuda::DeviceInfo& device, int64_t context);

}  // namespace halfbyte
