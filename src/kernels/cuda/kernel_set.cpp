#include "kernels/cuda/kernel_set.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/quote.h"

namespace halfbyte::cuda {
namespace {

constexpr size_t kRingShared = size_t{227} << 10;  // of the fast kernels' largest forms
constexpr std::array<std::string_view, kLinearKernels> kLinearNames = {"ring", "stages"};

std::string capability(const DeviceFacts& device) {
  return std::to_string(device.major) + "." + std::to_string(device.minor);
}

// The best of what CMake takes (cmake/HalfbyteCudaArchitectures.cmake) for the device; empty when nothing runs on it: code of an 'a'
// architecture runs on no other, so 10.3 and 12.1 have none.
std::string architecture_for(const DeviceFacts& device) {
  if (device.major == 8) return device.minor >= 9 ? "89" : device.minor >= 6 ? "86" : "80";
  const bool known = device.minor == 0 && (device.major == 9 || device.major == 10 || device.major == 12);
  return known ? std::to_string(device.major * 10) + "a" : "";
}

}  // namespace

std::string_view linear_kernel_name(LinearKernel kernel) {
  return kLinearNames[static_cast<size_t>(kernel)];
}

Result<LinearKernel> linear_kernel_named(std::string_view name) {
  for (size_t i = 0; i < kLinearNames.size(); ++i)
    if (name == kLinearNames[i]) return static_cast<LinearKernel>(i);
  return invalid_argument("a linear's kernel " + quote(name) + ", expected ring or stages");
}

Result<ForcedKernels> forced_kernels_named(std::string_view name) {
  if (name.empty()) return ForcedKernels::kNone;
  if (name == "ring") return ForcedKernels::kRing;
  if (name == "stages") return ForcedKernels::kStages;
  if (name == "portable") return ForcedKernels::kPortable;
  return invalid_argument("no kernels of a CUDA device are called " + quote(name) +
                          ", expected ring, stages (linears) or portable (all operations)");
}

Result<KernelSet> kernel_set(const DeviceFacts& device, ForcedKernels forced) {
  if (device.major < 8)
    return unsupported("compute capability " + capability(device) +
                       ", expected 8.0 or newer (BF16 on the tensor cores); run on the CPU (--device cpu)");
  KernelSet set;
  set.programmatic = device.major >= 9;
  set.convert_fp8 = device.major >= 9 || device.minor >= 9;
  if (device.major < 9) {
    set.why = "compute capability " + capability(device) + ", the fast ones need 9.0 (bulk copies, clusters)";
  } else if (device.shared_bytes < kRingShared) {
    set.why = std::to_string(device.shared_bytes >> 10) + " KiB of shared memory a thread block, the rings need " +
              std::to_string(kRingShared >> 10);
  }
  const bool fast = set.why.empty();
  if (forced == ForcedKernels::kRing && !fast)
    return unsupported("the kernels 'ring' were asked for and cannot run here: " + set.why +
                       "; leave --kernels out, or choose stages or portable");
  if (forced == ForcedKernels::kPortable && fast) set.why = "asked for";
  set.ring = set.clusters = fast && forced != ForcedKernels::kPortable;
  set.wgmma = set.ring && device.major == 9 && device.minor == 0;
  set.linear = set.ring && forced != ForcedKernels::kStages ? LinearKernel::kRing : LinearKernel::kStages;
  set.forced = forced != ForcedKernels::kNone || !set.ring;
  return set;
}

std::string_view family_name(const KernelSet& set) {
  return set.clusters ? linear_kernel_name(set.linear) : "portable";
}

std::string describe(const KernelSet& set) {
  std::string text = "linears of decode: " + std::string(linear_kernel_name(set.linear)) + " (NVFP4, MXFP4), " +
                     (set.ring ? "ring" : "registers") + " (BF16); prompts: " + (set.wgmma ? "wgmma" : "mma.sync") +
                     "; rows and draws: " + (set.clusters ? "clusters" : "a thread block a row") +
                     "; attention: mma.sync, " + (set.clusters ? "several rows in clusters, " : "") +
                     "KV in BF16 or FP8" + (set.convert_fp8 ? "" : " (converted by shifts)");
  if (!set.why.empty()) text += "; portable kernels: " + set.why;
  return text;
}

int code_for(const DeviceFacts& device, const std::vector<std::string>& architectures) {
  int best = 0;
  for (const std::string& a : architectures) {
    int number = 0;
    std::from_chars(a.data(), a.data() + a.size(), number);
    const int major = number / 10, minor = number % 10;
    // Code of "90a" runs on 9.0 alone, that of "80" on all of 8.x from 8.0 on.
    const bool exact = a.ends_with('a');
    if (device.major == major && (exact ? device.minor == minor : device.minor >= minor)) best = std::max(best, number);
  }
  return best;
}

Status check_built_for(const DeviceFacts& device, const std::vector<std::string>& architectures) {
  if (code_for(device, architectures) > 0) return {};
  std::string all;
  for (const std::string& a : architectures) all += (all.empty() ? "" : ", ") + a;
  const std::string own = architecture_for(device);
  return unsupported("compute capability " + capability(device) + ", and this build has code for " + all + " only" +
                     (own.empty() ? "; halfbyte has no kernels for it yet, run on the CPU (--device cpu)"
                                  : "; build it with -DHALFBYTE_CUDA_ARCHITECTURES=" + own));
}

std::vector<std::string> built_architectures() {
  std::vector<std::string> out;
  std::string_view all = HALFBYTE_CUDA_BUILT_FOR;  // "80,90a"
  while (!all.empty()) {
    const size_t end = std::min(all.find(','), all.size());
    out.emplace_back(all.substr(0, end));
    all.remove_prefix(std::min(end + 1, all.size()));
  }
  return out;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace halfbyte::cuda
