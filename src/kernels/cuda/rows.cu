// The operations between linears that work on whole rows: residual + norm, SiLU * up, and the merge of attention's
// parts, each with the rounding of the next linear's input. They also add the slots that the linear ahead left.
//
// Moves   slots x k x 4 bytes a row from L2 (SiLU: twice), 2 k bytes of x^ back; the residual once each way.
// Shapes  k a multiple of 4, at most 32,768; four neighbours a thread, 128 a warp. Where the rounding looks at the whole row
//         its warps are one cluster of 8 (SiLU: 16) thread blocks, or leave it open (rounding.cuh).
// Order   of the norm's sum of squares: four neighbours in order, lanes (xor 16 .. 1); then join_parts (rounding.cuh).
#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/row_values.cuh"

namespace halfbyte::cuda {
namespace {

// How the warps of a row end. kAlone: their rounding looks no further than themselves; kMeeting: they are one cluster, which
// joins its parts; kOpen: unrounded values and parts go to the linear that reads the row.
enum class RowForm { kAlone, kMeeting, kOpen };

inline constexpr int kFreeThreads = 128;  // of a thread block without a cluster
template <RowForm kForm>
inline constexpr int kMostThreads = kForm == RowForm::kMeeting ? kMostRowThreads : kFreeThreads;

// A cluster's blocks may write to this block's shared memory from here on.
template <RowForm kForm>
__device__ __forceinline__ void announce() {
  if constexpr (kForm == RowForm::kMeeting) ptx::cluster_arrive();
}
template <RowForm kForm>
__device__ __forceinline__ void await_others() {
  if constexpr (kForm == RowForm::kMeeting) ptx::cluster_wait();
}

// Rounds a row that nothing is added up of.
template <RowForm kForm>
__device__ __forceinline__ void finish_row(const RowOutput& out, const RowPlace& at, int columns, int k,
                                           const float (&v)[4]) {
  if constexpr (kForm == RowForm::kAlone) {
    write_rounded(out, at, columns, k, RowRounding(out, 0.0f), v);
  } else {
    const RowPart part{0.0f, warp_amax(amax4(v))};
    if constexpr (kForm == RowForm::kOpen) {
      write_open(out, at, k, part, v);
    } else {
      __shared__ RowMeeting meeting;
      write_rounded(out, at, columns, k, RowRounding(out, meeting.join(at, k, part).amax), v);
    }
  }
}

template <RowForm kForm>
__global__ void __launch_bounds__(kMostThreads<kForm>) norm_kernel(const __grid_constant__ NormRows a, int columns) {
  static_assert(kForm != RowForm::kAlone);
  HB_FROM_SM90();
  const RowPlace at;
  announce<kForm>();
  const bool inside = at.element < a.k;
  float w[4] = {}, x[4] = {};
  if (inside) unpack(*reinterpret_cast<const float4*>(a.weight + at.element), w);
  const SlotReader<4> reader(a.y, at.element, inside && a.embedding == nullptr);
  // The first kernel of a step lets nobody begin before its own wait: the others read positions at once, which the step
  // ahead sets.
  if (a.embedding != nullptr) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int source = a.pick != nullptr ? a.pick[at.row] : at.row;
  const bool absent = source < 0 || (a.positions != nullptr && a.positions[source] < 0);  // for all of the row
  if (a.embedding == nullptr) ptx::griddepcontrol_wait();
  await_others<kForm>();
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
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = x[i] * w[i];
  const RowPart part{warp_sum(((x[0] * x[0] + x[1] * x[1]) + x[2] * x[2]) + x[3] * x[3]), warp_amax(amax4(v))};
  const auto keep = [&] {
    if (inside && a.keep) *reinterpret_cast<float4*>(residual) = make_float4(x[0], x[1], x[2], x[3]);
  };
  if constexpr (kForm == RowForm::kOpen) {
    write_open(a.out, at, a.k, part, v);
    keep();
  } else {
    __shared__ RowMeeting meeting;
    const RowPart row = meeting.join(at, a.k, part);
    keep();  // after the cluster's barrier, which would wait until the device's memory has taken it
    const float factor = norm_factor(row.squares, a.k, a.eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] *= factor;
    write_rounded(a.out, at, columns, a.k, RowRounding(a.out, row.amax * factor), v);
  }
}

template <RowForm kForm>
__global__ void __launch_bounds__(kMostThreads<kForm>) silu_kernel(const __grid_constant__ SiluRows a, int columns) {
  HB_FROM_SM90();
  const RowPlace at;
  announce<kForm>();
  const bool inside = at.element < a.k;
  const SlotReader<4> gates(a.y, at.element, inside), ups(a.y, a.k + at.element, inside);
  ptx::griddepcontrol_launch_dependents();
  const bool absent = a.positions != nullptr && a.positions[at.row] < 0;
  ptx::griddepcontrol_wait();
  await_others<kForm>();
  if (absent) return;
  float v[4] = {};
  if (inside) {
    float gate[4], up[4];
    gates.read(at.row, gate);
    ups.read(at.row, up);
    silu_times(gate, up, v);
  }
  finish_row<kForm>(a.out, at, columns, a.k, v);
}

template <RowForm kForm>
__global__ void __launch_bounds__(kMostThreads<kForm>) round_kernel(const __grid_constant__ RoundRows a, int columns) {
  static_assert(kForm != RowForm::kOpen);
  HB_FROM_SM90();
  const RowPlace at;
  announce<kForm>();
  const bool inside = at.element < a.k;
  const SlotReader<4> reader(a.y, at.element, inside);
  ptx::griddepcontrol_launch_dependents();
  const bool absent = a.positions != nullptr && a.positions[at.row] < 0;
  ptx::griddepcontrol_wait();
  await_others<kForm>();
  if (absent) return;
  float v[4] = {};
  if (inside) reader.read(at.row, v);
  finish_row<kForm>(a.out, at, columns, a.k, v);
}

inline constexpr int kMostMergeThreads = 512;

template <RowForm kForm>
__global__ void __launch_bounds__(kForm == RowForm::kMeeting ? kMostMergeThreads : kFreeThreads)
    merge_kernel(const __grid_constant__ MergeRows a, int columns) {
  HB_FROM_SM90();
  const RowPlace at;
  announce<kForm>();
  const int k = a.heads * a.head_dim;
  ptx::griddepcontrol_launch_dependents();
  const int position = a.positions[at.row];
  ptx::griddepcontrol_wait();
  await_others<kForm>();
  if (position < 0) return;
  float v[4];
  merge_parts(a, at.row, at.element, position, v);
  finish_row<kForm>(a.out, at, columns, k, v);
}

// cluster: thread blocks a row; 0: as many as it takes, each by itself.
Result<Grid> row_grid(int k, int rows, int most_threads, int cluster) {
  if (k <= 0 || k % kValuesPerThread != 0 || k > kMaxWidth)
    return unsupported("a row of " + std::to_string(k) + " values on a CUDA device, expected a multiple of 4 up to " +
                       std::to_string(kMaxWidth));
  const auto lines = static_cast<unsigned>(rows);
  if (cluster == 0) {
    constexpr int kValues = kFreeThreads * kValuesPerThread;
    return Grid{dim3(static_cast<unsigned>((k + kValues - 1) / kValues), lines), kFreeThreads};
  }
  const int threads = (row_steps(k) + cluster - 1) / cluster * 32;
  if (threads > most_threads)
    return unsupported("a row of " + std::to_string(k) + " values on a CUDA device, expected up to " +
                       std::to_string(most_threads * cluster * kValuesPerThread));
  return Grid{dim3(static_cast<unsigned>(cluster), lines), threads, 0, cluster};
}

// 16 thread blocks a row where the device can place such clusters.
int wide_cluster() {
  static const int kBlocks = most_clusters(silu_kernel<RowForm::kMeeting>, kMostClusterBlocks, kMostRowThreads, 0) > 0
                                 ? kMostClusterBlocks
                                 : kClusterBlocks;
  return kBlocks;
}

}  // namespace

Status norm_rows(const NormRows& args, int rows, Launch how) {
  if (!active_kernels().clusters) return norm_rows_portable(args, rows, how);
  const int columns = padded_rows(rows);
  HB_ASSIGN(const Grid grid, row_grid(args.k, rows, kMostRowThreads, args.out.open ? 0 : kClusterBlocks));
  return launch(args.out.open ? norm_kernel<RowForm::kOpen> : norm_kernel<RowForm::kMeeting>, grid, how, "norm_rows",
                args, columns);
}

Status silu_rows(const SiluRows& args, int rows, Launch how) {
  if (!active_kernels().clusters) return silu_rows_portable(args, rows, how);
  const int columns = padded_rows(rows);
  const bool meet = !args.out.open && needs_row_amax(args.out.mode, args.out.static_alpha);
  HB_ASSIGN(const Grid grid, row_grid(args.k, rows, kMostRowThreads, meet ? wide_cluster() : 0));
  return launch(args.out.open ? silu_kernel<RowForm::kOpen>
                : meet        ? silu_kernel<RowForm::kMeeting>
                              : silu_kernel<RowForm::kAlone>,
                grid, how, "silu_rows", args, columns);
}

Status round_rows(const RoundRows& args, int rows, Launch how) {
  if (!active_kernels().clusters) return round_rows_portable(args, rows, how);
  const bool meet = needs_row_amax(args.out.mode, args.out.static_alpha);
  HB_ASSIGN(const Grid grid, row_grid(args.k, rows, kMostRowThreads, meet ? kClusterBlocks : 0));
  return launch(meet ? round_kernel<RowForm::kMeeting> : round_kernel<RowForm::kAlone>, grid, how, "round_rows", args,
                padded_rows(rows));
}

Status merge_rows(const MergeRows& args, int rows, Launch how) {
  if (args.heads > 1 && args.head_dim % (kMaxSplits * kValuesPerThread) != 0)
    return unsupported("heads of " + std::to_string(args.head_dim) +
                       " dimensions on a CUDA device, expected a multiple of 64");
  if (!active_kernels().clusters) return merge_rows_portable(args, rows, how);
  const bool meet = !args.out.open && needs_row_amax(args.out.mode, args.out.static_alpha);
  HB_ASSIGN(const Grid grid, row_grid(args.heads * args.head_dim, rows, kMostMergeThreads, meet ? kClusterBlocks : 0));
  return launch(args.out.open ? merge_kernel<RowForm::kOpen>
                : meet        ? merge_kernel<RowForm::kMeeting>
                              : merge_kernel<RowForm::kAlone>,
                grid, how, "merge_rows", args, padded_rows(rows));
}

}  // namespace halfbyte::cuda
