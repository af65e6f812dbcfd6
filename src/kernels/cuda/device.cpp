// Devices, memory and the words of CUDA's errors.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <mutex>
#include <utility>

#include "base/size_text.h"
#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {
namespace {

ForcedKernels forced_kernels = ForcedKernels::kNone;
KernelSet active;
std::mutex choosing;  // of `active`, which a second engine finds as it wants it: who works reads it without the lock

}  // namespace

void force_kernels(ForcedKernels forced) {
  forced_kernels = forced;
}

const KernelSet& active_kernels() {
  return active;
}

Status check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  const std::string text = std::string("CUDA device: ") + what + ": " + cudaGetErrorString(code);
  if (code == cudaErrorMemoryAllocation)
    return resource_exhausted(text + "; choose a shorter context, fewer requests at once or a smaller model");
  return internal_error(text);
}

bool driver_is_there() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0;
}

Result<std::vector<DeviceInfo>> devices() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorNoDevice) return std::vector<DeviceInfo>{};
  if (found != cudaSuccess) {
    cudaGetLastError();  // not for the next call
    std::string text = std::string("no CUDA device can be used: ") + cudaGetErrorString(found);
    int driver = 0, runtime = 0;
    if (found == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
        cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
      // The runtime calls an absent driver an old one.
      text = driver == 0 ? std::string(
                               "no CUDA device can be used: there is no CUDA driver; install NVIDIA's, or run on the "
                               "CPU (--device cpu)")
                         : text + "; the driver is for CUDA " + version_text(driver) + ", this program needs " +
                               version_text(runtime) + ": update the driver, or run on the CPU (--device cpu)";
    }
    return unsupported(text);
  }
  std::vector<DeviceInfo> out;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    HB_TRY(check(cudaGetDeviceProperties(&p, i), "properties"));
    DeviceInfo d;
    d.index = i;
    d.name = p.name;
    d.major = p.major;
    d.minor = p.minor;
    d.multiprocessors = p.multiProcessorCount;
    d.memory_bytes = p.totalGlobalMem;
    d.l2_bytes = static_cast<size_t>(p.l2CacheSize);
    HB_TRY(check(cudaDriverGetVersion(&d.driver), "driver version"));
    HB_TRY(check(cudaRuntimeGetVersion(&d.runtime), "runtime version"));
    d.shared_bytes = p.sharedMemPerBlockOptin;
    const DeviceFacts facts{p.major, p.minor, p.sharedMemPerBlockOptin};
    auto kernels = kernel_set(facts, forced_kernels);
    const Status runs = kernels.ok() ? check_built_for(facts, built_architectures()) : kernels.status();
    if (runs.ok()) {
      d.kernels = std::move(kernels).value();
      if (code_for(facts, built_architectures()) < 89) d.kernels.convert_fp8 = false;
    } else {
      d.unusable = runs.message();
    }
    out.push_back(std::move(d));
  }
  return out;
}

Result<DeviceInfo> usable_device(int index) {
  HB_ASSIGN(const std::vector<DeviceInfo> all, devices());
  if (all.empty()) return unsupported("no CUDA device is there; run on the CPU (--device cpu)");
  if (index < 0 || index >= static_cast<int>(all.size()))
    return unsupported("CUDA device " + std::to_string(index) + ", found 0 to " + std::to_string(all.size() - 1));
  DeviceInfo d = all[static_cast<size_t>(index)];
  if (!d.unusable.empty()) return unsupported("CUDA device " + d.name + ": " + d.unusable);
  HB_TRY(check(cudaSetDevice(index), "select"));
  size_t total = 0;
  HB_TRY(check(cudaMemGetInfo(&d.free_bytes, &total), "free memory"));
  const std::lock_guard lock(choosing);
  if (!(active == d.kernels)) active = d.kernels;
  return d;
}

Result<DeviceBuffer> DeviceBuffer::make(size_t bytes, bool zero) {
  DeviceBuffer out;
  if (bytes == 0) return Result<DeviceBuffer>(std::move(out));
  const cudaError_t code = cudaMalloc(&out.data_, bytes);
  if (code != cudaSuccess) {
    cudaGetLastError();
    out.data_ = nullptr;
    size_t free = 0, total = 0;
    std::string what = "allocating " + format_bytes(bytes);
    if (cudaMemGetInfo(&free, &total) == cudaSuccess)
      what += ", " + format_bytes(free) + " free of " + format_bytes(total);
    return check(code, what.c_str());
  }
  out.size_ = bytes;
  if (zero) HB_TRY(check(cudaMemset(out.data_, 0, bytes), "zeroing"));
  return Result<DeviceBuffer>(std::move(out));
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

Status DeviceBuffer::upload(const void* from, size_t bytes, size_t offset) {
  if (offset + bytes > size_) return internal_error("a write behind the end of device memory");
  return check(cudaMemcpy(static_cast<uint8_t*>(data_) + offset, from, bytes, cudaMemcpyHostToDevice), "upload");
}

Status DeviceBuffer::download(void* to, size_t bytes, size_t offset) const {
  if (offset + bytes > size_) return internal_error("a read behind the end of device memory");
  return check(cudaMemcpy(to, static_cast<const uint8_t*>(data_) + offset, bytes, cudaMemcpyDeviceToHost), "download");
}

// Through the driver's management library, which is loaded only for this.
Clocks current_clocks(int device) {
  Clocks out;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return out;
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto handle = reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  const auto clock = reinterpret_cast<int (*)(void*, int, unsigned*)>(dlsym(library, "nvmlDeviceGetClockInfo"));
  void* found = nullptr;
  if (init != nullptr && handle != nullptr && clock != nullptr && init() == 0 &&
      handle(static_cast<unsigned>(device), &found) == 0) {
    constexpr int kSm = 1, kMemory = 2;  // nvmlClockType_t
    unsigned mhz = 0;
    if (clock(found, kSm, &mhz) == 0) out.sm_mhz = static_cast<int>(mhz);
    if (clock(found, kMemory, &mhz) == 0) out.memory_mhz = static_cast<int>(mhz);
  }
  dlclose(library);
  return out;
}

}  // namespace halfbyte::cuda
