#include "kernels/cuda/cold_linear.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

namespace halfbyte::cuda {
namespace {

size_t index_of(int rows) {
  return static_cast<size_t>(std::countr_zero(static_cast<unsigned>(padded_rows(rows))));
}

// Normal rows, rounded as BF16 as a row operation does it.
Result<DeviceBuffer> make_x(const Linear& linear, int rows) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(linear.k));
  for (float& v : y) v = normal(rng);
  HB_ASSIGN(DeviceBuffer from, DeviceBuffer::make(y.size() * sizeof(float)));
  HB_TRY(from.upload(y.data(), y.size() * sizeof(float)));
  HB_ASSIGN(DeviceBuffer scales, DeviceBuffer::make(kMaxRows * sizeof(float)));
  HB_ASSIGN(DeviceBuffer x, DeviceBuffer::make(x_bytes(linear, rows), /*zero=*/true));
  SlotView in;
  in.partial = from.as<float>();
  in.rows = linear.k;
  in.columns = rows;
  const RowMode mode = linear.fp4 ? RowMode::kA16 : RowMode::kBf16Rows;
  HB_TRY(round_rows({in, linear.k, {mode, 0.0f, x.as<void>(), scales.as<float>()}}, rows, {}));
  HB_TRY(check(cudaDeviceSynchronize(), "rows of a measurement"));
  return Result<DeviceBuffer>(std::move(x));
}

}  // namespace

Result<ColdLinear> ColdLinear::make(WeightFormat format, int64_t n, int64_t k, int multiprocessors, size_t pool_bytes) {
  ColdLinear out;
  HB_ASSIGN(out.storage_, make_random_linear(format, n, k, multiprocessors, 7));
  const size_t bytes = out.copy_bytes();
  out.copies_ = static_cast<int>(std::max<size_t>(2, (pool_bytes + bytes - 1) / bytes));
  HB_ASSIGN(out.pool_, DeviceBuffer::make(bytes * static_cast<size_t>(out.copies_)));
  for (int i = 0; i < out.copies_; ++i)
    HB_TRY(check(cudaMemcpy(out.pool_.as<uint8_t>() + static_cast<size_t>(i) * bytes, out.view().weights, bytes,
                            cudaMemcpyDeviceToDevice),
                 "copies of weights"));
  for (int rows = 1; rows <= kMaxRows; rows *= 2) {
    HB_ASSIGN(out.x_[index_of(rows)], make_x(out.view(), rows));
  }
  HB_ASSIGN(out.partial_, DeviceBuffer::make(slot_floats(out.view(), kMaxRows) * sizeof(float)));
  return Result<ColdLinear>(std::move(out));
}

Status ColdLinear::run(int call, int rows, LinearKernel kernel, Launch launch) const {
  Linear linear = view();
  linear.weights = copy(call);
  linear.kernels.fill(kernel);
  return run_linear(linear, rows, x_[index_of(rows)].as<void>(), partial_.as<float>(), launch);
}

Result<TimedCalls> TimedCalls::make(int calls, bool programmatic, const std::function<Status(int, Launch)>& call) {
  TimedCalls out;
  out.calls_ = calls;
  HB_TRY(check(cudaStreamCreateWithFlags(&out.stream_, cudaStreamNonBlocking), "stream"));
  HB_TRY(check(cudaEventCreate(&out.begin_), "event"));
  HB_TRY(check(cudaEventCreate(&out.end_), "event"));
  HB_TRY(check(cudaStreamBeginCapture(out.stream_, cudaStreamCaptureModeThreadLocal), "capture"));
  Status status;
  for (int i = 0; i < calls && status.ok(); ++i) status = call(i, {out.stream_, programmatic});
  cudaGraph_t graph = nullptr;
  const Status ended = check(cudaStreamEndCapture(out.stream_, &graph), "end of capture");
  if (status.ok() && ended.ok()) status = check(cudaGraphInstantiate(&out.graph_, graph, 0), "graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  HB_TRY(status);
  HB_TRY(ended);
  return Result<TimedCalls>(std::move(out));
}

TimedCalls::TimedCalls(TimedCalls&& other) noexcept {
  *this = std::move(other);
}

TimedCalls& TimedCalls::operator=(TimedCalls&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(stream_, other.stream_);
  std::swap(begin_, other.begin_);
  std::swap(end_, other.end_);
  std::swap(graph_, other.graph_);
  return *this;
}

TimedCalls::~TimedCalls() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<double> TimedCalls::microseconds() {
  HB_TRY(check(cudaEventRecord(begin_, stream_), "event"));
  HB_TRY(check(cudaGraphLaunch(graph_, stream_), "launch"));
  HB_TRY(check(cudaEventRecord(end_, stream_), "event"));
  HB_TRY(check(cudaStreamSynchronize(stream_), "calls of a measurement"));
  float ms = 0.0f;
  HB_TRY(check(cudaEventElapsedTime(&ms, begin_, end_), "event"));
  return static_cast<double>(ms) * 1e3 / calls_;
}

Result<std::vector<LinearTimes>> measure_linear(int64_t n, int64_t k, int multiprocessors) {
  constexpr int kRounds = 4;  // the first warms up
  HB_ASSIGN(const ColdLinear linear, ColdLinear::make(WeightFormat::kNVFP4, n, k, multiprocessors));
  const int calls = std::max(linear.copies(), 8);  // all copies: fewer would stay in the L2 from graph to graph
  std::vector<LinearTimes> out;
  for (int rows = 1; rows <= kMaxRows; rows *= 2) {
    LinearTimes times{static_cast<int>(n), static_cast<int>(k), rows, {}};
    std::vector<TimedCalls> graphs;
    std::vector<LinearKernel> kernels = {LinearKernel::kStages};
    if (active_kernels().ring) kernels.push_back(LinearKernel::kRing);
    for (const LinearKernel kernel : kernels) {
      HB_ASSIGN(TimedCalls graph, TimedCalls::make(calls, /*programmatic=*/true, [&](int call, Launch launch) {
                  return linear.run(call, rows, kernel, launch);
                }));
      graphs.push_back(std::move(graph));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < graphs.size(); ++i) {
        HB_ASSIGN(const double us, graphs[i].microseconds());
        double& best = times.us[static_cast<size_t>(kernels[i])];
        if (round == 1 || (round > 1 && us < best)) best = us;
      }
    }
    out.push_back(times);
  }
  return out;
}

}  // namespace halfbyte::cuda
