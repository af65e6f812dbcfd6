// The row operations of rows.cu by a thread block a row, for devices without clusters. The same numbers, bit for bit.
//
// Moves   what rows.cu moves; the slots once more for a meeting of the row's threads (norms, and modes with a row's amax), so
//         that nothing is kept between.
// Shapes  those of rows.cu.
// Order   of the norm's sum of squares: join_parts (rounding.cuh), as there.
#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/row_values.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarpsHere = kThreads / 32;

struct RowScratch {
  RowPart parts[kMostRowSteps];
};

// Calls value(element, v) for each four neighbours of the row that a lane has, ascending, then use(element, v). All lanes of
// a warp go along; the last may lie beyond k.
template <class Value, class Use>
__device__ __forceinline__ void each_four(int k, const Value& value, const Use& use) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll 1
  for (int step = static_cast<int>(threadIdx.x >> 5); step < row_steps(k); step += kWarpsHere) {
    float v[4] = {};
    const int element = step * kStepK + lane * kValuesPerThread;
    value(element, v);
    use(element, v);
  }
}

// Joins part(element, v) of the row's warps.
template <class Value, class Part>
__device__ __forceinline__ RowPart join_row(RowScratch& scratch, int k, const Value& value, const Part& part) {
  each_four(k, value, [&](int element, const float(&v)[4]) {
    const RowPart mine = part(element, v);
    if ((threadIdx.x & 31) == 0) scratch.parts[element / kStepK] = mine;
  });
  __syncthreads();
  return join_parts(row_steps(k), [&](int step) { return scratch.parts[step]; });
}

// Rounds a whole row, whose numbers value(element, v) gives.
template <class Value>
__device__ __forceinline__ void round_with(const RowOutput& out, int row, int columns, int k, const Value& value,
                                           float amax) {
  const RowRounding rounding(out, amax);
  each_four(k, value, [&](int element, const float(&v)[4]) {
    write_rounded(out, RowPlace(row, element), columns, k, rounding, v);
  });
}

// The same, finding the row's amax first where it is needed: value gives the numbers as often as it is asked.
template <class Value>
__device__ __forceinline__ void round_whole(RowScratch& scratch, const RowOutput& out, int row, int columns, int k,
                                            const Value& value) {
  float amax = 0.0f;
  if (needs_row_amax(out.mode, out.static_alpha))
    amax = join_row(scratch, k, value, [](int, const float(&v)[4]) { return RowPart{0.0f, warp_amax(amax4(v))}; }).amax;
  round_with(out, row, columns, k, value, amax);
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
  const auto times_weight = [&](int element, float(&x)[4]) {
    if (element >= a.k) return;
    float w[4];
    unpack(*reinterpret_cast<const float4*>(a.weight + element), w);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] *= w[i];
  };
  // Each thread reads later what it stores here.
  const auto summed_and_stored = [&](int element, float(&x)[4]) {
    sum_at(element, x);
    if (element < a.k && a.keep) *reinterpret_cast<float4*>(residual + element) = make_float4(x[0], x[1], x[2], x[3]);
  };
  const RowPart whole = join_row(scratch, a.k, summed_and_stored, [&](int element, const float(&x)[4]) {
    float v[4] = {x[0], x[1], x[2], x[3]};
    times_weight(element, v);
    return RowPart{warp_sum(((x[0] * x[0] + x[1] * x[1]) + x[2] * x[2]) + x[3] * x[3]), warp_amax(amax4(v))};
  });
  stored = a.keep;
  const float factor = norm_factor(whole.squares, a.k, a.eps);
  const auto normed = [&](int element, float(&v)[4]) {
    sum_at(element, v);
    times_weight(element, v);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] *= factor;
  };
  round_with(a.out, row, columns, a.k, normed, whole.amax * factor);
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
  if (a.positions != nullptr && a.positions[row] < 0) return;
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
