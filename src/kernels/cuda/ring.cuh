// How a warp that has read a stage of a ring in shared memory gives it back.
#pragma once

#include "kernels/cuda/ptx.cuh"

namespace halfbyte::cuda {

// One lane arrives for its warp, whose reads __syncwarp or the wait for wgmma has put before it. compute-sanitizer's racecheck
// does not follow that order and reports the next copy into the stage. Built for it, every lane arrives for itself.
#ifdef HALFBYTE_CUDA_RACECHECK
inline constexpr bool kEveryLaneArrives = true;
#else
inline constexpr bool kEveryLaneArrives = false;
#endif
inline constexpr int kWarpArrivals = kEveryLaneArrives ? 32 : 1;  // that a barrier counts on, a warp

__device__ __forceinline__ void arrive_for_warp(uint32_t barrier, int lane) {
  if (kEveryLaneArrives || lane == 0) ptx::mbarrier_arrive(barrier);
}

}  // namespace halfbyte::cuda
