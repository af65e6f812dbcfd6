// The CUDA backend of a build without CUDA: each function says how to get one.
#include "engine/cuda_api.h"
#include "engine/cuda_memory.h"
#include "engine/runner.h"
#include "kernels/cuda/kernel_set.h"
#include "model/config.h"

namespace halfbyte {
namespace {

Status absent() {
  return unsupported(
      "this halfbyte was built without CUDA; build it with cmake --preset cuda, or run on the CPU (--device cpu)");
}

}  // namespace

Status cuda_usable() {
  return absent();
}
Result<CudaPlace> cuda_place() {
  return absent();
}
std::string unusable_cuda_device() {
  return "";
}
Result<std::vector<CudaDeviceEntry>> cuda_device_entries() {
  return absent();
}
Result<std::string> cuda_devices_text(bool) {
  return absent();
}
Status force_cuda_kernels(const std::string& name) {
  return cuda::forced_kernels_named(name).status();  // a wrong name is wrong here, too
}
Result<std::string> measure_cuda_linears(const std::vector<ModelConfig>&) {
  return absent();
}
Result<CudaDecodeReport> measure_cuda_decode(const CudaDecodeOptions&) {
  return absent();
}
Result<CudaMemory> cuda_memory() {
  return absent();
}
Result<std::unique_ptr<Runner>> make_cuda_runner(std::shared_ptr<const Model>, const RunnerLimits&) {
  return absent();
}

}  // namespace halfbyte
