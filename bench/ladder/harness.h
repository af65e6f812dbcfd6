// What every step of the ladder shares: the shapes, a candidate's interface, the registry.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "step_layout.h"

namespace halfbyte::ladder {

struct Shape {
  const char* name;
  int n;
  int k;
  constexpr int panels() const { return (n + kPanelRows - 1) / kPanelRows; }
  constexpr int rows() const { return panels() * kPanelRows; }  // padded
  constexpr int k_steps() const { return (k + kStepK - 1) / kStepK; }
  constexpr int steps() const { return panels() * k_steps(); }  // of panels
  constexpr size_t bytes() const { return static_cast<size_t>(steps()) * kPanelStepBytes; }
  constexpr size_t padded_bytes(int runs) const {
    return static_cast<size_t>((steps() + runs - 1) / runs) * runs * kPanelStepBytes;
  }
};

// Where one k step of one row tile is summed: pieces are added in ascending order, inside a piece the lanes (warps) in
// ascending order.
struct SumPlace {
  int piece;
  int lane;
};

// [panel][k step][tile]; [row tile][k step]; or [index in the run][run][tile], padded to whole rounds of runs.
// kHalf2: as kInterleaved, with linear_half2's order inside a step.
enum class WeightOrder { kPanel, kTile, kInterleaved, kHalf2 };
enum class XOrder { kChunk, kFragment, kHalf2 };  // of step_layout.h; [k step][lane][group][4 values]; of linear_half2

struct Buffers {
  const uint8_t* weights;
  const uint8_t* x;
  float* partial;
  const float* x_scale = nullptr;  // XOrder::kHalf2 only
};

struct Candidate {
  std::string name;
  int m;
  WeightOrder weight_order;
  XOrder x_order;
  WordCode code;
  // Sets the shape; false: it cannot run there.
  std::function<bool(const Shape&)> prepare;
  // programmatic: with the programmatic-dependent-launch attribute.
  std::function<void(const Buffers&, cudaStream_t, bool programmatic)> launch;
  // Host's statement of the order of sums.
  std::function<SumPlace(int tile, int k_step)> place;
  // Value (row, column) of a piece in the copied partial buffer; the buffer starts poisoned.
  std::function<float(const float* partial, int piece, int row, int column)> read;
  std::function<int(int tile)> piece_count;
  std::function<Shape()> shape;    // the last prepared
  std::function<Split()> split;    // of the last prepared shape
  bool programmatic = false;       // waits for the kernel ahead before it reads x^ or writes
  std::function<void()> timeline;  // prints the cycle marks of the last launch
};

std::vector<Candidate>& registry();
// Of the device; LADDER_SMS in the environment overrides it, for long runs of k steps on small shapes.
int multiprocessors();

void check(cudaError_t status, const char* what, const char* file, int line);
#define LADDER_CHECK(call) ::halfbyte::ladder::check((call), #call, __FILE__, __LINE__)

// Launches with or without the attribute that lets a kernel start before the one ahead of it has ended.
template <class... Args, class... Given>
void launch_kernel(void (*kernel)(Args...), dim3 blocks, int threads, size_t shared_bytes, cudaStream_t stream,
                   bool programmatic, Given... given) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = programmatic ? 1 : 0;
  LADDER_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Args>(given)...));
}

}  // namespace halfbyte::ladder
