// What the CUDA backend offers beside its runner, without CUDA's types. In a build without CUDA every function says so
// with kUnsupported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/cuda_limits.h"
#include "halfbyte/plan.h"
#include "kernels/cuda/linear_table.h"

namespace halfbyte {

struct ModelConfig;

// Ok when device 0 can run the kernels; else why not.
Status cuda_usable();

// Device 0 where it can run the kernels, with what it runs; else as cuda_usable().
struct CudaPlace {
  std::string device;   // "NVIDIA H200"
  std::string kernels;  // "ring", "stages" or "portable" (kernels/cuda/kernel_set.h, family_name)
  std::string detail;   // the kernel of each operation, a line for people
};
Result<CudaPlace> cuda_place();

// Why the device or driver that is there cannot be used; "" where it can, and where there is none.
std::string unusable_cuda_device();

// A device that the driver shows.
struct CudaDeviceEntry {
  int index = 0;
  bool used = false;    // device 0 where it can run the kernels; CUDA_VISIBLE_DEVICES says which one that is
  std::string name;     // "NVIDIA H200"
  std::string compute;  // its capability, "9.0"
  int multiprocessors = 0;
  uint64_t memory_bytes = 0, l2_bytes = 0, shared_bytes = 0;  // shared: that a thread block may ask for
  std::string driver;                                         // "13.0"
  std::string runs;                                           // the kernel of each operation, and why; empty:
  std::string unusable;                                       // why none can
  std::string linears;                                        // what is known of measured times, a line
  std::vector<cuda::LinearTimes> times;                       // that choose the kernels of linears
  std::string times_text;                                     // the same for people
};
Result<std::vector<CudaDeviceEntry>> cuda_device_entries();
// For people. table: with the measured times.
Result<std::string> cuda_devices_text(bool table = false);

// Kernels of CUDA devices from now on: "ring", "stages" or "portable" (kernels/cuda/kernel_set.h); "" gives the choice back.
// invalid_argument lists the names; a device that cannot run them says so when it is used.
Status force_cuda_kernels(const std::string& name);

// Measures the kernels for the linears of these models on device 0 and keeps the times in the user's cache
// (kernels/cuda/linear_table.h), from which linears choose afterwards; gives them as text.
Result<std::string> measure_cuda_linears(const std::vector<ModelConfig>& models);

// A decode loop on the device alone: random weights of a known shape, tokens fed back on the device.
struct CudaDecodeOptions {
  std::string shape;  // a synthetic shape (model/synthetic.h)
  PrecisionPlan plan;
  int batch = 1;                            // sequences that decode together, up to 64
  int64_t context = 0;                      // positions in the cache at the first step that counts
  int steps = 500;                          // that count
  int warmup = 50;                          // steps before them
  int64_t prompt = 0;                       // tokens of a prompt that is read for itself; 0: none
  int64_t prefill_chunk = kMostPromptRows;  // prompt rows of a pass, up to that
  int prompt_rounds = 5;
  bool policy = false;  // the loop twice more: draws at temperature 1, and by ReSET's rule, its state on the device
  bool gap = false;     // the engine's own loop, too: what the device waits for between two steps
};
// A loop of steps by the device's clock, which a kernel reads at the beginning of each step and another one at its end.
struct CudaGapReport {
  std::vector<double> step_ms;                      // end of a step to the end of the next
  std::vector<double> idle_us;                      // end of a step to the beginning of the next
  uint64_t ahead = 0, ahead_unused = 0, waits = 0;  // EngineMetrics of the whole loop, prompts among it
};
struct CudaDecodeReport {
  CudaPlace place;
  int driver = 0, runtime = 0;     // e.g. 13000
  int sm_mhz = 0, memory_mhz = 0;  // right after the loop; 0: not known
  std::vector<double> step_ms;     // by the device's clock, end of a step to end of the next
  std::vector<double> drawn_ms;    // with `policy`: draws at temperature 1, and
  std::vector<double> policy_ms;   // at the temperature that ReSET chooses
  // With `gap`: graphs one behind the other with no host between, and the scheduler's and runner's loop, running ahead and not.
  CudaGapReport alone, engine, engine_waiting;
  std::vector<double> prompt_ms;  // first kernel asked for to first token on the host, by the host's clock
  double read_gbps = 0;           // plain read of 3 GiB, before and after, the better
  uint64_t layer_bytes = 0;       // weights of the layers' linears, read once a step
  uint64_t head_bytes = 0;
  uint64_t kv_bytes = 0;  // keys and values read by the step in the middle
};
Result<CudaDecodeReport> measure_cuda_decode(const CudaDecodeOptions& options);

}  // namespace halfbyte
