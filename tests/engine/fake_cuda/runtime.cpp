// The runtime's calls: device memory is host memory, and a stream does at once what it is told, or keeps it for a graph.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "fake_cuda/fake_cuda.h"
#include "fake_cuda/stream.h"

namespace halfbyte::fake_cuda {

State& state() {
  static State state;
  return state;
}

namespace {
bool capturing = false;
Operations captured;
}  // namespace

void put(std::function<void()> operation) {
  if (capturing) {
    captured.push_back(std::move(operation));
  } else {
    operation();
  }
}

}  // namespace halfbyte::fake_cuda

using namespace halfbyte::fake_cuda;

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) {
  *to = std::malloc(bytes);
  return *to == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* at) {
  std::free(at);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  touch(kind == cudaMemcpyHostToDevice ? to : from, bytes);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  captured.clear();
  capturing = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  capturing = false;
  ++state().captures;
  *graph = reinterpret_cast<cudaGraph_t>(new Operations(std::move(captured)));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = reinterpret_cast<cudaGraphExec_t>(new Operations(*reinterpret_cast<Operations*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& operation : *reinterpret_cast<Operations*>(exec)) operation();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Operations*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete reinterpret_cast<Operations*>(exec);
  return cudaSuccess;
}
}
