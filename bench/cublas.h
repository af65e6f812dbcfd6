// cuBLAS through its shared library, looked for when the program runs: nothing links it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/result.h"
#include "kernels/cuda/ops.h"

namespace halfbyte {

class Cublas {
 public:
  // library: a path, or "" for the names that CUDA's toolkit installs. The message says what was tried.
  static Result<Cublas> open(const std::string& library);

  // y [m][n] = x [m][k] w [n][k]^T, all BF16, FP32 sums.
  Status gemm(int n, int m, int k, const void* w, const void* x, void* y, cudaStream_t stream) const;
  const std::string& library() const { return library_; }
  int version() const { return version_; }  // e.g. 130100

 private:
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
  std::string library_;
  int version_ = 0;
  void* handle_ = nullptr;
  Gemm gemm_ = nullptr;
  int (*set_stream_)(void*, cudaStream_t) = nullptr;
  int (*set_workspace_)(void*, void*, size_t) = nullptr;
  cuda::DeviceBuffer workspace_;
};

}  // namespace halfbyte
