// The operations between linears that work on whole rows: residual + norm, SiLU * up, and the merge of attention's
// parts, each with the rounding of the next linear's input. They also add the slots that the linear ahead left.
//
// Moves   slots x k x 4 bytes a row from L2 (SiLU: twice), 2 k bytes of x^ back; the residual once each way.
// Shapes  k a multiple of 4, at most 32,768; one cluster of 8 (SiLU: 16) thread blocks a row, four neighbours a thread.
// Order   of the norm's sum of squares: four neighbours in order, lanes (xor 16 .. 1), warps, thread blocks ascending.
#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/row_values.cuh"

namespace halfbyte::cuda {
namespace {

__global__ void __launch_bounds__(kMostRowThreads, 1) norm_kernel(const __grid_constant__ NormRows a, int columns) {
  HB_FROM_SM90();
  __shared__ ClusterScratch scratch;
  const RowPlace at;
  ptx::cluster_arrive();  // the others may write to this block's shared memory
  const bool inside = at.element < a.k;
  float w[4] = {}, x[4] = {};
  if (inside) unpack(*reinterpret_cast<const float4*>(a.weight + at.element), w);
  const SlotReader<4> reader(a.y, at.element, inside && a.embedding == nullptr);
  // The first kernel of a step lets nobody begin before its own wait: the others read positions at once, which the step
  // ahead sets.
  if (a.embedding != nullptr) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int source = a.pick != nullptr ? a.pick[at.row] : at.row;
  const bool absent = source < 0 || (a.positions != nullptr && a.positions[source] < 0);  // for all of the cluster
  if (a.embedding == nullptr) ptx::griddepcontrol_wait();
  ptx::cluster_wait();
  if (absent) return;
  float* residual = a.residual + static_cast<size_t>(source) * a.k + at.element;
  if (inside) {
    if (a.embedding != nullptr) {
      read_embedding(a, a.tokens[source], at.element, x);
    } else {
      const float4 before = __ldcg(reinterpret_cast<const float4*>(residual));
      float y[4];
      reader.read(source, y);
      x[0] = before.x + y[0];
      x[1] = before.y + y[1];
      x[2] = before.z + y[2];
      x[3] = before.w + y[3];
    }
  }
  const float squares = ((x[0] * x[0] + x[1] * x[1]) + x[2] * x[2]) + x[3] * x[3];
  const float sum = cluster_reduce(scratch, 0, squares, JoinSum{});
  // After the cluster's barrier, which would wait until the device's memory has taken it.
  if (inside && a.keep) *reinterpret_cast<float4*>(residual) = make_float4(x[0], x[1], x[2], x[3]);
  const float inverse = 1.0f / sqrtf(sum / static_cast<float>(a.k) + a.eps);
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = (x[i] * inverse) * w[i];
  round_row(scratch, a.out, at, columns, a.k, v);
}

__global__ void __launch_bounds__(kMostRowThreads, 1) silu_kernel(const __grid_constant__ SiluRows a, int columns) {
  HB_FROM_SM90();
  __shared__ ClusterScratch scratch;
  const RowPlace at;
  ptx::cluster_arrive();  // the others may write to this block's shared memory
  const bool inside = at.element < a.k;
  const SlotReader<4> gates(a.y, at.element, inside), ups(a.y, a.k + at.element, inside);
  ptx::griddepcontrol_launch_dependents();
  const bool absent = a.positions != nullptr && a.positions[at.row] < 0;
  ptx::griddepcontrol_wait();
  ptx::cluster_wait();
  if (absent) return;
  float v[4] = {};
  if (inside) {
    float gate[4], up[4];
    gates.read(at.row, gate);
    ups.read(at.row, up);
    silu_times(gate, up, v);
  }
  round_row(scratch, a.out, at, columns, a.k, v);
}

__global__ void __launch_bounds__(kMostRowThreads, 1) round_kernel(const __grid_constant__ RoundRows a, int columns) {
  HB_FROM_SM90();
  __shared__ ClusterScratch scratch;
  const RowPlace at;
  ptx::cluster_arrive();  // the others may write to this block's shared memory
  const bool inside = at.element < a.k;
  const SlotReader<4> reader(a.y, at.element, inside);
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  ptx::cluster_wait();
  float v[4] = {};
  if (inside) reader.read(at.row, v);
  round_row(scratch, a.out, at, columns, a.k, v);
}

inline constexpr int kMostMergeThreads = 512;

__global__ void __launch_bounds__(kMostMergeThreads, 1) merge_kernel(const __grid_constant__ MergeRows a, int columns) {
  HB_FROM_SM90();
  __shared__ ClusterScratch scratch;
  const RowPlace at;
  ptx::cluster_arrive();  // the others may write to this block's shared memory
  const int k = a.heads * a.head_dim;
  ptx::griddepcontrol_launch_dependents();
  const int position = a.positions[at.row];
  ptx::griddepcontrol_wait();
  ptx::cluster_wait();
  if (position < 0) return;
  float v[4];
  merge_parts(a, at.row, at.element, position, v);
  round_row(scratch, a.out, at, columns, k, v);
}

Result<Grid> row_grid(int k, int rows, int most_threads, int cluster = kClusterBlocks) {
  const int threads = (k / kValuesPerThread + cluster * 32 - 1) / (cluster * 32) * 32;
  if (k <= 0 || k % kValuesPerThread != 0 || threads > most_threads)
    return unsupported("a row of " + std::to_string(k) + " values on a CUDA device, expected a multiple of 4 up to " +
                       std::to_string(most_threads * cluster * kValuesPerThread));
  return Grid{dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(rows)), threads, 0, cluster};
}

// 16 thread blocks a row where the device can place such clusters. Only for operations whose meetings are maxima: a sum
// would change its order.
int wide_cluster() {
  static const int kBlocks = [] {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kMostClusterBlocks);
    config.blockDim = dim3(kMostRowThreads);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = kMostClusterBlocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    const bool fits =
        cudaFuncSetAttribute(silu_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&clusters, silu_kernel, &config) == cudaSuccess && clusters > 0;
    cudaGetLastError();  // a refusal is an answer
    return fits ? kMostClusterBlocks : kClusterBlocks;
  }();
  return kBlocks;
}

}  // namespace

Status norm_rows(const NormRows& args, int rows, Launch how) {
  if (!active_kernels().clusters) return norm_rows_portable(args, rows, how);
  HB_ASSIGN(const Grid grid, row_grid(args.k, rows, kMostRowThreads));
  return launch(norm_kernel, grid, how, "norm_rows", args, padded_rows(rows));
}

Status silu_rows(const SiluRows& args, int rows, Launch how) {
  if (!active_kernels().clusters) return silu_rows_portable(args, rows, how);
  HB_ASSIGN(const Grid grid, row_grid(args.k, rows, kMostRowThreads, wide_cluster()));
  return launch(silu_kernel, grid, how, "silu_rows", args, padded_rows(rows));
}

Status round_rows(const RoundRows& args, int rows, Launch how) {
  if (!active_kernels().clusters) return round_rows_portable(args, rows, how);
  HB_ASSIGN(const Grid grid, row_grid(args.k, rows, kMostRowThreads));
  return launch(round_kernel, grid, how, "round_rows", args, padded_rows(rows));
}

Status merge_rows(const MergeRows& args, int rows, Launch how) {
  if (args.heads > 1 && args.head_dim % (kMaxSplits * kValuesPerThread) != 0)
    return unsupported("heads of " + std::to_string(args.head_dim) +
                       " dimensions on a CUDA device, expected a multiple of 64");
  if (!active_kernels().clusters) return merge_rows_portable(args, rows, how);
  HB_ASSIGN(const Grid grid, row_grid(args.heads * args.head_dim, rows, kMostMergeThreads));
  return launch(merge_kernel, grid, how, "merge_rows", args, padded_rows(rows));
}

}  // namespace halfbyte::cuda
