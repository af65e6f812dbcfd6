#include "cublas.h"

#include <dlfcn.h>

#include <vector>

namespace halfbyte {

Result<Cublas> Cublas::open(const std::string& library) {
  const std::vector<std::string> names =
      library.empty()
          ? std::vector<std::string>{"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"}
          : std::vector<std::string>{library};
  Cublas out;
  void* found = nullptr;
  std::string tried;
  for (const std::string& name : names) {
    // cuBLAS's own second half lies beside it.
    if (name.find('/') != std::string::npos) {
      const size_t at = name.rfind("libcublas.so");
      if (at != std::string::npos) {
        std::string second = name;
        second.replace(at, 12, "libcublasLt.so");
        dlopen(second.c_str(), RTLD_NOW | RTLD_GLOBAL);
      }
    }
    found = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (found != nullptr) {
      out.library_ = name;
      break;
    }
    const char* why = dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(why != nullptr ? why : name.c_str());
  }
  if (found == nullptr) return not_found("no cuBLAS: " + tried + " (--cublas PATH names one)");
  const auto create = reinterpret_cast<int (*)(void**)>(dlsym(found, "cublasCreate_v2"));
  const auto version = reinterpret_cast<int (*)(void*, int*)>(dlsym(found, "cublasGetVersion_v2"));
  out.set_stream_ = reinterpret_cast<int (*)(void*, cudaStream_t)>(dlsym(found, "cublasSetStream_v2"));
  out.set_workspace_ = reinterpret_cast<int (*)(void*, void*, size_t)>(dlsym(found, "cublasSetWorkspace_v2"));
  out.gemm_ = reinterpret_cast<Gemm>(dlsym(found, "cublasGemmEx"));
  if (create == nullptr || out.set_stream_ == nullptr || out.set_workspace_ == nullptr || out.gemm_ == nullptr)
    return not_found(out.library_ + " is no cuBLAS: a function is missing");
  if (create(&out.handle_) != 0) return internal_error(out.library_ + ": cublasCreate failed");
  if (version != nullptr) version(out.handle_, &out.version_);
  HB_ASSIGN(out.workspace_, cuda::DeviceBuffer::make(size_t{32} << 20));
  return Result<Cublas>(std::move(out));
}

Status Cublas::gemm(int n, int m, int k, const void* w, const void* x, void* y, cudaStream_t stream) const {
  constexpr int kBf16 = 14, kTranspose = 1, kPlain = 0, kCompute32F = 68, kDefault = -1;
  const float one = 1, zero = 0;
  set_stream_(handle_, stream);
  set_workspace_(handle_, workspace_.as<void>(), workspace_.size());
  const int code = gemm_(handle_, kTranspose, kPlain, n, m, k, &one, w, kBf16, k, x, kBf16, k, &zero, y, kBf16, n,
                         kCompute32F, kDefault);
  return code == 0 ? Status() : internal_error("cublasGemmEx failed with " + std::to_string(code));
}

}  // namespace halfbyte
