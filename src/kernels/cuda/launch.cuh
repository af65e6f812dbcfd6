// How every kernel of this folder is launched.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace halfbyte::cuda {

inline constexpr int kClusterBlocks = 8;       // thread blocks of a row operation's cluster: the portable most
inline constexpr int kMostClusterBlocks = 16;  // where the device has room for it

inline constexpr int kMostSharedBytes =
    227 * 1024;  // that a thread block may have where there are clusters, 12.0 apart

struct Grid {
  dim3 blocks;
  int threads;
  size_t shared_bytes = 0;
  int cluster = 1;  // thread blocks of a cluster, along x
};

template <class... Args, class... Given>
Status launch(void (*kernel)(Args...), const Grid& grid, const Launch& launch, const char* name, Given&&... given) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (launch.programmatic && active_kernels().programmatic) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = static_cast<unsigned>(grid.cluster);
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
  }
  return check(cudaLaunchKernelEx(&config, kernel, Args(given)...), name);
}

// How many clusters of so many thread blocks the device holds at once; 0 where it has no room for one.
template <class Kernel>
int most_clusters(Kernel kernel, int blocks, int threads, size_t shared_bytes) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const bool fits = (blocks <= kClusterBlocks ||
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess) &&
                    cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
  cudaGetLastError();  // a refusal is an answer
  return fits ? clusters : 0;
}

// Reads kWidth neighbouring outputs of a linear: adds their slots in ascending order and finishes step 4 of
// docs/numerics.md 3. Made before the wait for the kernel ahead (it reads only what never changes), used after it. All
// slots are on their way before the first is used. kWidth 4 needs a row that is a multiple of 4.
template <int kWidth>
class SlotReader {
 public:
  __device__ __forceinline__ SlotReader(const SlotView& view, int row, bool inside = true) : view_(view), row_(row) {
    if (!inside) return;
    slots_ = view.slot_counts != nullptr ? view.slot_counts[row >> 7] : 1;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      scale_[i] = view.scales != nullptr ? view.scales[row + i] : 1.0f;
      bias_[i] = view.bias != nullptr ? view.bias[row + i] : 0.0f;
    }
  }

  __device__ __forceinline__ void read(int column, float (&y)[kWidth]) const {
    const float* at = view_.partial + static_cast<size_t>(column) * view_.rows + row_;
    const size_t stride = static_cast<size_t>(view_.columns) * view_.rows;
    float part[kMaxSlots][kWidth];
#pragma unroll
    for (int s = 0; s < kMaxSlots; ++s) {
      if (s < slots_) load(at + s * stride, part[s]);
    }
    const float x_scale = view_.x_scale != nullptr ? __ldcg(view_.x_scale + column) : 1.0f;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float sum = part[0][i];
#pragma unroll
      for (int s = 1; s < kMaxSlots; ++s) sum = s < slots_ ? sum + part[s][i] : sum;
      y[i] = sum * (scale_[i] * x_scale);
      if (view_.bias != nullptr) y[i] += bias_[i];
    }
  }

 private:
  static __device__ __forceinline__ void load(const float* from, float (&to)[kWidth]) {
    if constexpr (kWidth == 4) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
      to[0] = v.x;
      to[1] = v.y;
      to[2] = v.z;
      to[3] = v.w;
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) to[i] = __ldcg(from + i);
    }
  }

  const SlotView& view_;
  int row_;
  int slots_ = 0;
  float scale_[kWidth], bias_[kWidth];
};

}  // namespace halfbyte::cuda
