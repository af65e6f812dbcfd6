// What measurements need: a plain read, and random weights.
#include "kernels/cuda/cold_linear.h"
#include "kernels/cuda/launch.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kReadThreads = 512;  // of read_all
constexpr int kReadUnroll = 8;

// Every load is kept alive by a sum that never matches.
__global__ void read_kernel(const uint4* data, size_t count, uint32_t* never) {
  uint32_t sum = 0;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + (kReadUnroll - 1) * stride < count; i += kReadUnroll * stride) {
    uint4 v[kReadUnroll];
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) v[u] = ptx::ld_stream_v4(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) sum += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = ptx::ld_stream_v4(data + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x5EEDBEEFu && never != nullptr) *never = sum;
}

__device__ __forceinline__ uint64_t random_bits(uint64_t seed, uint64_t i) {
  uint64_t v = seed * 0x9E3779B97F4A7C15ull + i;
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ull;
  return (v ^ (v >> 27)) * 0x94D049BB133111EBull;
}

// Without bit 6 of each byte: exponents up to that of 1.
__global__ void random_fp8_kernel(uint32_t* out, size_t words, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words; i += size_t{gridDim.x} * blockDim.x)
    out[i] = static_cast<uint32_t>(random_bits(seed, i) >> 32) & 0xBFBFBFBFu;
}

// Uniform in +-width, BF16; neighbours in one thread.
__global__ void random_bf16_kernel(uint16_t* out, size_t count, float width, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const uint64_t v = random_bits(seed, i);
    const float x = (static_cast<float>(static_cast<int32_t>(v >> 32)) * 0x1p-31f) * width;
    out[i] = static_cast<uint16_t>(__float_as_uint(x) >> 16);
  }
}

}  // namespace

Status read_all(const void* data, size_t bytes, int multiprocessors, Launch how) {
  return read_by(data, bytes, 4 * multiprocessors, kReadThreads, how);
}

Status read_by(const void* data, size_t bytes, int blocks, int threads, Launch how) {
  return launch(read_kernel, {dim3(static_cast<unsigned>(blocks)), threads}, how, "read_all",
                static_cast<const uint4*>(data), bytes / 16, nullptr);
}

Status fill_random_bf16(void* data, size_t count, float width, uint64_t seed, Launch how) {
  return launch(random_bf16_kernel, {dim3(1024), 256}, how, "fill_random_bf16", static_cast<uint16_t*>(data), count,
                width, seed);
}

Status fill_random_fp8(void* data, size_t count, uint64_t seed, Launch how) {
  return launch(random_fp8_kernel, {dim3(1024), 256}, how, "fill_random_fp8", static_cast<uint32_t*>(data), count / 4,
                seed);
}

Result<double> measure_read_gbps(size_t bytes, int multiprocessors) {
  HB_ASSIGN(const DeviceBuffer data, DeviceBuffer::make(bytes));
  cudaEvent_t begin = nullptr, end = nullptr;
  HB_TRY(check(cudaEventCreate(&begin), "event"));
  HB_TRY(check(cudaEventCreate(&end), "event"));
  float best_ms = 0.0f;
  for (int i = 0; i < 8; ++i) {
    HB_TRY(check(cudaEventRecord(begin), "event"));
    HB_TRY(read_all(data.as<void>(), bytes, multiprocessors, {}));
    HB_TRY(check(cudaEventRecord(end), "event"));
    HB_TRY(check(cudaEventSynchronize(end), "plain read"));
    float ms = 0.0f;
    HB_TRY(check(cudaEventElapsedTime(&ms, begin, end), "event"));
    if (i == 1 || (i > 1 && ms < best_ms)) best_ms = ms;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(bytes) / (static_cast<double>(best_ms) * 1e6);
}

}  // namespace halfbyte::cuda
