// The row operations of rows.cu by a thread block a row, for devices without clusters. The same numbers, bit for bit.
//
// Moves   what rows.cu moves; the slots once more for each meeting of the row's threads (norms, and modes with a row's
//         amax), so that nothing is kept between.
// Shapes  those of rows.cu.
// Order   of the norm's sum of squares: that of a cluster. A row is cut into warps of 128 values as a cluster of 8 thread
//         blocks cuts it; the block's warps take them in turn and leave a sum each, which are added as the cluster adds.
#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/row_values.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarpsHere = kThreads / 32;
constexpr int kWarpValues = 32 * kValuesPerThread;
constexpr int kMostWarps = kMaxWidth / kWarpValues;  // of a row

// Warps of one of the cluster's thread blocks, for a row of k values.
__host__ __device__ constexpr int warps_of_block(int k) {
  return (k / kValuesPerThread + kClusterBlocks * 32 - 1) / (kClusterBlocks * 32);
}

struct RowScratch {
  float warps[kMostWarps];
  float blocks[kClusterBlocks];
};

// Calls value(element, v) for each four neighbours of the row that a lane has, ascending, then use(element, v). All lanes of
// a warp go along; the last may lie beyond k.
template <class Value, class Use>
__device__ __forceinline__ void each_four(int k, const Value& value, const Use& use) {
  const int lane = static_cast<int>(threadIdx.x & 31), warps = warps_of_block(k) * kClusterBlocks;
#pragma unroll 1
  for (int w = static_cast<int>(threadIdx.x >> 5); w < warps; w += kWarpsHere) {
    float v[4] = {};
    const int element = w * kWarpValues + lane * kValuesPerThread;
    value(element, v);
    use(w, element, v);
  }
}

// Joins of(v) over the row: lanes (xor 16 .. 1), a block's warps ascending, blocks ascending.
template <class Value, class Of, class Join>
__device__ __forceinline__ float row_reduce(RowScratch& scratch, int k, const Value& value, const Of& of, Join join) {
  each_four(k, value, [&](int w, int, const float(&v)[4]) {
    float sum = of(v);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum = join(sum, __shfl_xor_sync(~0u, sum, mask));
    if ((threadIdx.x & 31) == 0) scratch.warps[w] = sum;
  });
  __syncthreads();
  if (threadIdx.x < kClusterBlocks) {
    const int warps = warps_of_block(k);
    const float* mine = scratch.warps + threadIdx.x * warps;
    float sum = mine[0];
    for (int w = 1; w < warps; ++w) sum = join(sum, mine[w]);
    scratch.blocks[threadIdx.x] = sum;
  }
  __syncthreads();
  float sum = scratch.blocks[0];
  for (int b = 1; b < kClusterBlocks; ++b) sum = join(sum, scratch.blocks[b]);
  __syncthreads();  // the scratch may be used again
  return sum;
}

// Rounds a whole row, whose numbers value(element, v) gives as often as it is asked.
template <class Value>
__device__ __forceinline__ void round_whole(RowScratch& scratch, const RowOutput& out, int row, int columns, int k,
                                            const Value& value) {
  float amax = 0.0f;
  if (needs_row_amax(out.mode, out.static_alpha))
    amax = row_reduce(
        scratch, k, value, [](const float(&v)[4]) { return amax4(v); }, JoinAmax{});
  each_four(k, value,
            [&](int, int element, const float(&v)[4]) { store_rounded(out, row, element, columns, k, v, amax); });
}

__global__ void __launch_bounds__(kThreads) norm_row_kernel(const __grid_constant__ NormRows a, int columns) {
  __shared__ RowScratch scratch;
  const int row = blockIdx.x;
  if (a.embedding != nullptr) ptx::griddepcontrol_wait();  // see rows.cu
  ptx::griddepcontrol_launch_dependents();
  const int source = a.pick != nullptr ? a.pick[row] : row;
  const bool absent = source < 0 || (a.positions != nullptr && a.positions[source] < 0);
  if (a.embedding == nullptr) ptx::griddepcontrol_wait();
  if (absent) return;
  float* residual = a.residual + static_cast<size_t>(source) * a.k;
  bool stored = false;
  const auto sum_at = [&](int element, float(&x)[4]) {
    if (element >= a.k) return;
    if (a.embedding != nullptr) return read_embedding(a, a.tokens[source], element, x);
    unpack(__ldcg(reinterpret_cast<const float4*>(residual + element)), x);
    if (stored) return;
    float y[4];
    SlotReader<4>(a.y, element).read(source, y);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] += y[i];
  };
  // Each thread reads later what it stores here.
  const auto summed_and_stored = [&](int element, float(&x)[4]) {
    sum_at(element, x);
    if (element < a.k && a.keep) *reinterpret_cast<float4*>(residual + element) = make_float4(x[0], x[1], x[2], x[3]);
  };
  const float sum = row_reduce(
      scratch, a.k, summed_and_stored,
      [](const float(&x)[4]) { return ((x[0] * x[0] + x[1] * x[1]) + x[2] * x[2]) + x[3] * x[3]; }, JoinSum{});
  stored = a.keep;
  const float inverse = 1.0f / sqrtf(sum / static_cast<float>(a.k) + a.eps);
  round_whole(scratch, a.out, row, columns, a.k, [&](int element, float(&v)[4]) {
    if (element >= a.k) return;
    sum_at(element, v);
    float w[4];
    unpack(*reinterpret_cast<const float4*>(a.weight + element), w);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = (v[i] * inverse) * w[i];
  });
}

__global__ void __launch_bounds__(kThreads) silu_row_kernel(const __grid_constant__ SiluRows a, int columns) {
  __shared__ RowScratch scratch;
  const int row = blockIdx.x;
  ptx::griddepcontrol_launch_dependents();
  const bool absent = a.positions != nullptr && a.positions[row] < 0;
  ptx::griddepcontrol_wait();
  if (absent) return;
  round_whole(scratch, a.out, row, columns, a.k, [&](int element, float(&v)[4]) {
    if (element >= a.k) return;
    float gate[4], up[4];
    SlotReader<4>(a.y, element).read(row, gate);
    SlotReader<4>(a.y, a.k + element).read(row, up);
    silu_times(gate, up, v);
  });
}

__global__ void __launch_bounds__(kThreads) round_row_kernel(const __grid_constant__ RoundRows a, int columns) {
  __shared__ RowScratch scratch;
  const int row = blockIdx.x;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  round_whole(scratch, a.out, row, columns, a.k, [&](int element, float(&v)[4]) {
    if (element < a.k) SlotReader<4>(a.y, element).read(row, v);
  });
}

__global__ void __launch_bounds__(kThreads) merge_row_kernel(const __grid_constant__ MergeRows a, int columns) {
  __shared__ RowScratch scratch;
  const int row = blockIdx.x;
  ptx::griddepcontrol_launch_dependents();
  const int position = a.positions[row];
  ptx::griddepcontrol_wait();
  if (position < 0) return;
  round_whole(scratch, a.out, row, columns, a.heads * a.head_dim,
              [&](int element, float(&v)[4]) { merge_parts(a, row, element, position, v); });
}

template <class Args>
Status launch_row(void (*kernel)(Args, int), const Args& args, int k, int rows, const char* name, const Launch& how) {
  if (k <= 0 || k % kValuesPerThread != 0 || k > kMaxWidth)
    return unsupported("a row of " + std::to_string(k) + " values on a CUDA device, expected a multiple of 4 up to " +
                       std::to_string(kMaxWidth));
  return launch(kernel, {dim3(static_cast<unsigned>(rows)), kThreads}, how, name, args, padded_rows(rows));
}

}  // namespace

Status norm_rows_portable(const NormRows& args, int rows, Launch how) {
  return launch_row(norm_row_kernel, args, args.k, rows, "norm_rows", how);
}
Status silu_rows_portable(const SiluRows& args, int rows, Launch how) {
  return launch_row(silu_row_kernel, args, args.k, rows, "silu_rows", how);
}
Status round_rows_portable(const RoundRows& args, int rows, Launch how) {
  return launch_row(round_row_kernel, args, args.k, rows, "round_rows", how);
}
Status merge_rows_portable(const MergeRows& args, int rows, Launch how) {
  return launch_row(merge_row_kernel, args, args.heads * args.head_dim, rows, "merge_rows", how);
}

}  // namespace halfbyte::cuda
