// The norm of prompt rows: rows.cu's norm_rows for hundreds of rows, the same numbers without clusters.
//
// Moves   y, the residual both ways, x^: 14 k bytes a row.
// Shapes  k a multiple of 4, at most 8,192; a thread block of 8 warps a row.
// Order   of the sum of squares as in rows.cu: k steps of 128, joined by join_parts.
#include "kernels/cuda/row_values.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kWarps = kClusterBlocks;
constexpr int kMostSteps = 8;

__device__ __forceinline__ float4 embedding_at(const NormRows& a, int token, int element) {
  float v[4];
  read_embedding(a, token, element, v);
  return make_float4(v[0], v[1], v[2], v[3]);
}

// The linear's result as SlotReader has it, one slot, added to the residual.
__device__ __forceinline__ float4 add_result(const SlotView& y, float x_scale, int row, int element, float4 x) {
  const float4 sum = __ldcs(reinterpret_cast<const float4*>(y.partial + static_cast<size_t>(row) * y.rows + element));
  float4 scale = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  if (y.scales != nullptr) scale = *reinterpret_cast<const float4*>(y.scales + element);
  float4 v = make_float4(sum.x * (scale.x * x_scale), sum.y * (scale.y * x_scale), sum.z * (scale.z * x_scale),
                         sum.w * (scale.w * x_scale));
  if (y.bias != nullptr) {
    const float4 bias = *reinterpret_cast<const float4*>(y.bias + element);
    v = make_float4(v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w);
  }
  return make_float4(x.x + v.x, x.y + v.y, x.z + v.z, x.w + v.w);
}

template <int kSteps>
__global__ void __launch_bounds__(kWarps * 32) norm_prompt_kernel(const __grid_constant__ NormRows a) {
  __shared__ RowPart parts[kWarps * kSteps];
  const int row = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x >> 5),
            lane = static_cast<int>(threadIdx.x & 31);
  const auto element_of = [&](int step) { return ((warp * kSteps + step) * 32 + lane) * kValuesPerThread; };
  ptx::griddepcontrol_wait();
  float* residual = a.residual + static_cast<size_t>(row) * a.k;
  const float x_scale = a.y.x_scale != nullptr ? a.y.x_scale[row] : 1.0f;
  float4 x[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int element = element_of(s);
    x[s] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (element >= a.k) continue;
    x[s] = a.embedding != nullptr
               ? embedding_at(a, a.tokens[row], element)
               : add_result(a.y, x_scale, row, element, *reinterpret_cast<const float4*>(residual + element));
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int element = element_of(s);
    const float squares = ((x[s].x * x[s].x + x[s].y * x[s].y) + x[s].z * x[s].z) + x[s].w * x[s].w;
    float4 w = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (element < a.k) {
      *reinterpret_cast<float4*>(residual + element) = x[s];
      w = *reinterpret_cast<const float4*>(a.weight + element);
    }
    x[s] = make_float4(x[s].x * w.x, x[s].y * w.y, x[s].z * w.z, x[s].w * w.w);
    const float v[4] = {x[s].x, x[s].y, x[s].z, x[s].w};
    const RowPart part{warp_sum(squares), warp_amax(amax4(v))};
    if (lane == 0) parts[warp * kSteps + s] = part;
  }
  __syncthreads();
  const RowPart whole = join_parts(row_steps(a.k), [&](int step) { return parts[step]; });
  const float factor = norm_factor(whole.squares, a.k, a.eps);
  const RowRounding rounding(a.out, whole.amax * factor);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const float v[4] = {x[s].x * factor, x[s].y * factor, x[s].z * factor, x[s].w * factor};
    write_rounded(a.out, RowPlace(row, element_of(s)), 0, a.k, rounding, v);
  }
}

template <int kSteps>
Status launch_steps(const NormRows& args, int steps, int rows, const Launch& how) {
  if constexpr (kSteps < kMostSteps) {
    if (steps > kSteps) return launch_steps<kSteps + 1>(args, steps, rows, how);
  }
  return launch(norm_prompt_kernel<kSteps>, {dim3(static_cast<unsigned>(rows)), kWarps * 32}, how, "norm_prompt", args);
}

}  // namespace

Status norm_prompt(const NormRows& args, int rows, Launch how) {
  constexpr int kStep = kWarps * 32 * kValuesPerThread;
  if (args.k <= 0 || args.k % kValuesPerThread != 0 || args.k > kMostSteps * kStep || args.out.prompt_rows == 0)
    return norm_rows(args, rows, how);
  return launch_steps<1>(args, (args.k + kStep - 1) / kStep, rows, how);
}

}  // namespace halfbyte::cuda
