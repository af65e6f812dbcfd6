// Which kernels a device gets: decided here, by compute capability and shared memory, and nowhere else. No CUDA needed.
//
//   fast       from 9.0 on with 227 KiB of shared memory a thread block: linears by bulk copies into rings, row operations
//              and draws by clusters; prompts on wgmma where that is (9.0 alone).
//   portable   from 8.0 on: linears by cp.async into a few stages, a thread block a row, prompts on mma.sync.
//
// Both read one packed form of the weights, and but for prompts they give the same bits (docs/numerics.md 8), so a choice
// changes times only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte::cuda {

// Kernels of a decode linear with FP4 weights.
enum class LinearKernel : uint8_t {
  kRing,    // linear_fp4: bulk copies into two rings, producer warps
  kStages,  // linear_stages: cp.async into stages, each warp its own copies
};
inline constexpr int kLinearKernels = 2;
// "ring", "stages".
std::string_view linear_kernel_name(LinearKernel kernel);
Result<LinearKernel> linear_kernel_named(std::string_view name);

// What a user may force: nothing, one of the linear's kernels, or the whole portable family.
enum class ForcedKernels : uint8_t { kNone, kRing, kStages, kPortable };
// "ring", "stages", "portable"; "" is kNone. Else invalid_argument that lists them.
Result<ForcedKernels> forced_kernels_named(std::string_view name);

// What a decision looks at.
struct DeviceFacts {
  int major = 0, minor = 0;
  size_t shared_bytes = 0;  // that a thread block may ask for
};

struct KernelSet {
  bool ring = false;                            // LinearKernel::kRing can run; the BF16 linear's ring, too
  bool clusters = false;                        // row operations and draws, which then have top-k and top-p
  bool wgmma = false;                           // prompt linears
  bool programmatic = false;                    // a kernel may begin before the one ahead has ended
  bool convert_fp8 = false;                     // E4M3 to FP16 in one instruction, in code for 8.9 or newer
  LinearKernel linear = LinearKernel::kStages;  // of decode, unless a table of measured times says otherwise
  bool forced = false;                          // `linear` is asked for, or alone can run: no table is looked at
  std::string why;                              // the portable kernels and not the fast ones; empty for the fast ones
  bool operator==(const KernelSet&) const = default;
};

// kUnsupported: the device cannot run what is forced, or is older than 8.0.
Result<KernelSet> kernel_set(const DeviceFacts& device, ForcedKernels forced);

// "ring" or "stages", the linear's kernel, where the others are the fast ones, else "portable": with the device's name all that
// the last bits of a prompt depend on.
std::string_view family_name(const KernelSet& set);
// A line for people: the kernel of each operation.
std::string describe(const KernelSet& set);

// The newest code that the device runs of a build for `architectures`, e.g. 80 of {"80", "90a"} on 8.9; 0 when none.
int code_for(const DeviceFacts& device, const std::vector<std::string>& architectures);
// Ok when a build for `architectures` (e.g. {"80", "90a"}) has machine code for the device; else what it has.
Status check_built_for(const DeviceFacts& device, const std::vector<std::string>& architectures);
// Of this build.
std::vector<std::string> built_architectures();

// "13.0" for 13000, as CUDA counts the versions of drivers and runtimes.
std::string version_text(int version);

}  // namespace halfbyte::cuda
