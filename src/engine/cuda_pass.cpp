#include "engine/cuda_pass.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "engine/cuda_buffers.h"

namespace halfbyte {

using cuda::check;
using cuda::DeviceBuffer;
using cuda::kMaxRows;

namespace {

// Bytes of a row's policy on the device: its sums, then its ring.
constexpr size_t kRingOffset = (sizeof(TemperatureSums) + 15) / 16 * 16;
constexpr size_t kPolicyBytes = kRingOffset + kLongestWindow * sizeof(double);

}  // namespace

CudaPass::CudaPass(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv, const CudaPassLimits& limits)
    : weights_(std::move(weights)), kv_shape_(kv), limits_(limits) {}

Result<std::unique_ptr<CudaPass>> CudaPass::create(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv,
                                                   const CudaPassLimits& limits) {
  std::unique_ptr<CudaPass> out(new CudaPass(std::move(weights), kv, limits));
  HB_TRY(out->allocate());
  HB_TRY(out->allocate_prompt());
  HB_TRY(check(cudaDeviceSynchronize(), "first allocation"));  // the stream does not wait for the default one
  return Result<std::unique_ptr<CudaPass>>(std::move(out));
}

Status CudaPass::allocate() {
  const ModelConfig& c = weights_->config;
  HB_TRY(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"));
  for (Flight& flight : flights_)
    HB_TRY(check(cudaEventCreateWithFlags(&flight.done, cudaEventDisableTiming), "event"));
  void* pinned = nullptr;
  HB_TRY(check(cudaHostAlloc(&pinned, sizeof(Pinned), cudaHostAllocPortable), "pinned host memory"));
  pinned_ = new (pinned) Pinned{};
  table_stride_ = (weights_->context + kv_shape_.page_tokens - 1) / kv_shape_.page_tokens;
  constexpr auto kRows = static_cast<size_t>(kMaxPassRows);
  HB_ASSIGN(cache_, DeviceBuffer::make(static_cast<size_t>(limits_.pages) * kv_shape_.page_bytes(), /*zero=*/true));
  HB_ASSIGN(inputs_, DeviceBuffer::make(sizeof(CudaInputs), /*zero=*/true));
  HB_ASSIGN(tables_, DeviceBuffer::make(kRows * static_cast<size_t>(table_stride_) * sizeof(int32_t), true));
  HB_ASSIGN(residual_, DeviceBuffer::make(kRows * static_cast<size_t>(c.hidden) * sizeof(float), true));
  HB_ASSIGN(plain_, DeviceBuffer::make(kRows * static_cast<size_t>(c.vocab) * sizeof(float)));
  HB_ASSIGN(policies_, DeviceBuffer::make(kRows * kPolicyBytes));
  return {};
}

CudaPass::~CudaPass() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);  // a pass that was given up may still run
  for (const auto& [shape, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (const Flight& flight : flights_)
    if (flight.done != nullptr) cudaEventDestroy(flight.done);
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

// group: of a pass of several groups, which need memory of their own.
Result<CudaPass::Buffers*> CudaPass::buffers(int rows, int group) {
  std::unique_ptr<Buffers>& b = buffers_[{rows, group}];
  if (b != nullptr) return b.get();
  auto made = std::make_unique<Buffers>();
  made->rows = rows;
  const CudaLinearKinds kinds(*weights_);
  size_t slots = 0;
  for (const auto* kind : {&kinds.qkv, &kinds.o, &kinds.gate_up, &kinds.down})
    for (const CudaLinear* linear : *kind) slots = std::max(slots, cuda::slot_floats(linear->storage.view, rows));
  HB_TRY(made->attention.make(kinds.qkv, rows, /*prompt=*/false));
  HB_TRY(made->o.make(kinds.o, rows, false));
  HB_TRY(made->mlp.make(kinds.gate_up, rows, false));
  HB_TRY(made->down.make(kinds.down, rows, false));
  HB_TRY(made->head.make({&weights_->head}, rows, false));
  HB_ASSIGN(made->partial, DeviceBuffer::make(slots * sizeof(float)));
  HB_ASSIGN(made->logits_partial,
            DeviceBuffer::make(cuda::slot_floats(weights_->head.storage.view, rows) * sizeof(float)));
  const ModelConfig& c = weights_->config;
  const auto parts = static_cast<size_t>(rows * c.heads * cuda::kMaxSplits);
  HB_ASSIGN(made->parts, DeviceBuffer::make(parts * static_cast<size_t>(c.head_dim) * sizeof(float)));
  HB_ASSIGN(made->stats, DeviceBuffer::make(parts * 2 * sizeof(float)));
  ++stream_waits_;
  HB_TRY(check(cudaDeviceSynchronize(), "allocation"));
  b = std::move(made);
  return b.get();
}

CudaPass::Shape CudaPass::shape_of(size_t rows, size_t picks) {
  const auto padded = [](size_t count) {
    if (count == 0) return 0;
    const int full = static_cast<int>(count - 1) / kMaxRows * kMaxRows;
    return full + cuda::padded_rows(static_cast<int>(count) - full);
  };
  Shape shape;
  shape.rows = padded(rows);
  shape.picks = padded(picks);
  return shape;
}

Result<std::vector<CudaPass::Group>> CudaPass::groups_of(const Shape& shape) {
  std::vector<Group> out;
  for (int first = 0; first < shape.rows; first += kMaxRows) {
    Group group;
    group.first = first;
    group.rows = std::min(kMaxRows, shape.rows - first);
    group.picks = std::min(kMaxRows, shape.picks - first);
    HB_ASSIGN(group.layers, buffers(group.rows, first / kMaxRows));
    if (group.picks > 0) {
      HB_ASSIGN(group.head, buffers(group.picks, first / kMaxRows));
    }
    out.push_back(group);
  }
  return out;
}

Result<cudaGraphExec_t> CudaPass::graph(const Shape& shape) {
  if (const auto found = graphs_.find(shape); found != graphs_.end()) return found->second;
  HB_ASSIGN(const std::vector<Group> groups, groups_of(shape));
  HB_TRY(check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture"));
  const Status status = enqueue(shape, groups);
  cudaGraph_t graph = nullptr;
  const Status ended = check(cudaStreamEndCapture(stream_, &graph), "end of capture");
  if (!status.ok() || !ended.ok()) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    return status.ok() ? ended : status;
  }
  cudaGraphExec_t exec = nullptr;
  const Status made = check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaGraphDestroy(graph);
  HB_TRY(made);
  graphs_[shape] = exec;
  return exec;
}

// Uploads what the pass reads beside weights. Page tables travel only when they have changed.
Status CudaPass::place(std::span<const CudaRow> rows, std::span<const CudaPick> picks, bool advance) {
  CudaInputs& in = pinned_->inputs[next_flight_];
  in = CudaInputs{};
  std::fill(std::begin(in.positions), std::end(in.positions), -1);
  std::fill(std::begin(in.picks), std::end(in.picks), -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    in.tokens[i] = rows[i].token;
    in.positions[i] = rows[i].position;
    HB_TRY(place_table(static_cast<int>(i), rows[i].pages));
  }
  for (size_t i = 0; i < picks.size(); ++i) {
    in.picks[i] = rows.size() > kMaxRows ? picks[i].row % kMaxRows : picks[i].row;
    in.rules[i] = picks[i].rule;
    if (advance && picks[i].policy != nullptr) HB_TRY(place_policy(static_cast<int>(i), picks[i], in.rules[i]));
  }
  return check(cudaMemcpyAsync(inputs_.as<void>(), &in, sizeof(in), cudaMemcpyHostToDevice, stream_), "inputs");
}

Status CudaPass::place_table(int row, std::span<const int32_t> pages) {
  std::vector<int32_t>& placed = placed_tables_[static_cast<size_t>(row)];
  if (std::equal(pages.begin(), pages.end(), placed.begin(), placed.end())) return {};
  if (static_cast<int64_t>(pages.size()) > table_stride_)
    return internal_error("a sequence of " + std::to_string(pages.size()) + " pages, the device's table holds " +
                          std::to_string(table_stride_));
  placed.assign(pages.begin(), pages.end());
  // From pageable memory the call returns once the bytes are on their way: `placed` may change.
  return check(cudaMemcpyAsync(tables_.as<int32_t>() + row * table_stride_, placed.data(), pages.size_bytes(),
                               cudaMemcpyHostToDevice, stream_),
               "page table");
}

Status CudaPass::place_policy(int row, const CudaPick& pick, cuda::DrawRule& rule) {
  std::byte* const at = policies_.as<std::byte>() + static_cast<size_t>(row) * kPolicyBytes;
  HB_ASSIGN(rule.classes, place_classes(pick.classes));
  rule.class_count = pick.classes == nullptr ? 0 : static_cast<int32_t>(pick.classes->size());
  rule.state = reinterpret_cast<TemperatureSums*>(at);
  rule.ring = reinterpret_cast<double*>(at + kRingOffset);
  const TemperatureSums& sums = pick.policy->sums();
  const auto copy = [this](void* to, const void* from, size_t bytes) {
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "temperature policy");
  };
  HB_TRY(copy(rule.state, &sums, sizeof(sums)));
  if (sums.held == 0) return {};
  return copy(rule.ring, pick.policy->ring().data(), static_cast<size_t>(sums.held) * sizeof(double));
}

Result<const uint8_t*> CudaPass::place_classes(const std::shared_ptr<const StepClasses>& classes) {
  if (classes == nullptr || classes->empty()) return nullptr;
  for (const Classes& known : classes_)
    if (known.host == classes) return known.device.as<const uint8_t>();
  // What no request has any more may go; freeing it waits for passes on their way.
  std::erase_if(classes_, [](const Classes& known) { return known.host.use_count() == 1; });
  HB_ASSIGN(DeviceBuffer made, DeviceBuffer::make(classes->size()));
  HB_TRY(check(  // on the stream of the passes that read them, which does not wait for others
      cudaMemcpyAsync(made.as<void>(), classes->data(), classes->size(), cudaMemcpyHostToDevice, stream_),
      "step classes"));
  classes_.push_back({classes, std::move(made)});
  return classes_.back().device.as<const uint8_t>();
}

Result<int> CudaPass::launch(const Shape& shape, std::span<const int32_t> positions) {
  HB_ASSIGN(const cudaGraphExec_t exec, graph(shape));
  HB_TRY(check(cudaGraphLaunch(exec, stream_), "launch"));
  return depart(positions);
}

Result<int> CudaPass::depart(std::span<const int32_t> positions) {
  const int ticket = next_flight_;
  Flight& flight = flights_[static_cast<size_t>(ticket)];
  flight.picks = static_cast<int>(positions.size());
  std::copy(positions.begin(), positions.end(), flight.positions.begin());
  HB_TRY(check(cudaEventRecord(flight.done, stream_), "event"));
  next_flight_ = (next_flight_ + 1) % static_cast<int>(flights_.size());
  return ticket;
}

Result<int> CudaPass::begin(std::span<const CudaRow> rows, std::span<const CudaPick> picks, Logits logits,
                            bool advance) {
  if (rows.empty() || rows.size() > kMaxPassRows || picks.size() > rows.size() ||
      (rows.size() > kMaxRows && picks.size() != rows.size()))
    return internal_error("a pass of " + std::to_string(rows.size()) + " rows and " + std::to_string(picks.size()) +
                          " draws");
  Shape shape = shape_of(rows.size(), picks.size());
  shape.own_rows = true;
  shape.plain = logits == Logits::kKept;
  shape.advance = advance;
  shape.stamps = stamping_;
  HB_TRY(graph(shape).status());  // allocates: before anything is on its way
  HB_TRY(place(rows, picks, advance));
  placed_shape_ = shape;
  std::array<int32_t, kMaxPassRows> positions;
  for (size_t i = 0; i < picks.size(); ++i) positions[i] = rows[static_cast<size_t>(picks[i].row)].position;
  return launch(shape, std::span(positions).first(picks.size()));
}

Result<int> CudaPass::begin_next(std::span<const CudaRow> rows) {
  if (!placed_shape_.advance) return -1;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].pages.size() > placed_tables_[i].size() + 1) return -1;
  std::array<int32_t, kMaxPassRows> positions;
  for (size_t i = 0; i < rows.size(); ++i) {
    positions[i] = rows[i].position;
    std::vector<int32_t>& placed = placed_tables_[i];
    if (rows[i].pages.size() <= placed.size()) continue;
    int32_t* const page = &pinned_->new_pages[next_flight_][i];
    *page = rows[i].pages.back();
    int32_t* const to = tables_.as<int32_t>() + static_cast<int64_t>(i) * table_stride_ + placed.size();
    HB_TRY(check(cudaMemcpyAsync(to, page, sizeof(*page), cudaMemcpyHostToDevice, stream_), "page table"));
    placed.push_back(*page);
  }
  return launch(placed_shape_, std::span(positions).first(rows.size()));
}

bool CudaPass::table_covers(int row, std::span<const int32_t> pages, int64_t position) const {
  const std::vector<int32_t>& placed = placed_tables_[static_cast<size_t>(row)];
  const auto needed = static_cast<size_t>(position / kv_shape_.page_tokens) + 1;
  return needed <= pages.size() && needed <= placed.size() &&
         std::equal(placed.begin(), placed.begin() + static_cast<std::ptrdiff_t>(needed), pages.begin());
}

Status CudaPass::finish(int ticket, std::span<cuda::Drawn> drawn) {
  const Flight& flight = flights_[static_cast<size_t>(ticket)];
  HB_TRY(check(cudaEventSynchronize(flight.done), "forward pass"));
  const size_t count = std::min(drawn.size(), static_cast<size_t>(flight.picks));
  for (size_t i = 0; i < count; ++i) drawn[i] = pinned_->drawn[flight.positions[i] % kDrawnPlaces][i];
  return {};
}

Status CudaPass::run(std::span<const CudaRow> rows, std::span<const CudaPick> picks, Logits logits,
                     std::span<cuda::Drawn> drawn) {
  if (rows.empty() || rows.size() > kMaxRows || picks.size() > rows.size())
    return internal_error("a pass of " + std::to_string(rows.size()) + " rows of a sequence, expected 1 to 16");
  Shape shape = shape_of(rows.size(), picks.size());
  shape.plain = logits == Logits::kKept && !picks.empty();
  HB_TRY(place(rows, picks, /*advance=*/false));
  placed_shape_ = shape;
  std::array<int32_t, kMaxPassRows> positions;
  for (size_t i = 0; i < picks.size(); ++i) positions[i] = rows[static_cast<size_t>(picks[i].row)].position;
  HB_ASSIGN(const int ticket, launch(shape, std::span(positions).first(picks.size())));
  return finish(ticket, drawn);
}

Status CudaPass::draw_prompt(std::span<const CudaPick> picks, Logits logits, std::span<cuda::Drawn> drawn) {
  if (picks.empty() || picks.size() > kMaxRows)
    return internal_error("a draw of " + std::to_string(picks.size()) + " rows of a prompt, expected 1 to 16");
  Shape shape = shape_of(0, picks.size());
  shape.plain = logits == Logits::kKept;
  Group group;
  group.picks = shape.picks;
  HB_ASSIGN(group.head, buffers(shape.picks, 0));
  HB_TRY(place({}, picks, /*advance=*/false));
  placed_shape_ = shape;
  HB_TRY(enqueue_head(prompt_head(), shape, group, in_turn()));
  std::array<int32_t, kMaxPassRows> positions;
  for (size_t i = 0; i < picks.size(); ++i) positions[i] = prompt_->host_positions[static_cast<size_t>(picks[i].row)];
  HB_ASSIGN(const int ticket, depart(std::span(positions).first(picks.size())));
  return finish(ticket, drawn);
}

Status CudaPass::logits(int pick, std::span<float> out) {
  return plain_.download(out.data(), out.size_bytes(), static_cast<size_t>(pick) * out.size_bytes());
}

// Through the stream: passes on their way, also those that were given up, write to the cache before the host reads from it
// or writes to it.
Status CudaPass::read_page(int32_t page, std::span<std::byte> out) {
  const std::byte* from = cache_.as<std::byte>() + static_cast<size_t>(page) * page_bytes();
  HB_TRY(check(cudaMemcpyAsync(out.data(), from, out.size(), cudaMemcpyDeviceToHost, stream_), "saving a page"));
  ++stream_waits_;
  return check(cudaStreamSynchronize(stream_), "saving a page");
}

Status CudaPass::write_page(int32_t page, std::span<const std::byte> from) {
  std::byte* to = cache_.as<std::byte>() + static_cast<size_t>(page) * page_bytes();
  HB_TRY(check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_), "restoring a page"));
  ++stream_waits_;
  return check(cudaStreamSynchronize(stream_), "restoring a page");
}

Status CudaPass::start_stamps(int steps, Stamps which) {
  HB_TRY(check(cudaStreamSynchronize(stream_), "stamps"));
  std::erase_if(graphs_, [](const auto& entry) {  // they hold the address of other stamps
    if (entry.first.stamps == Stamps::kNone) return false;
    cudaGraphExecDestroy(entry.second);
    return true;
  });
  const auto count = static_cast<size_t>(steps);
  HB_ASSIGN(stamps_, DeviceBuffer::make(sizeof(cuda::StepStamps) + 2 * count * sizeof(uint64_t), true));
  auto* times = reinterpret_cast<uint64_t*>(stamps_.as<cuda::StepStamps>() + 1);
  const cuda::StepStamps head{0, steps, times, times + count};
  HB_TRY(stamps_.upload(&head, sizeof(head)));
  stamping_ = which;
  return check(cudaDeviceSynchronize(), "stamps");
}

Result<std::vector<CudaPass::Stamp>> CudaPass::take_stamps() {
  stamping_ = Stamps::kNone;
  HB_TRY(check(cudaStreamSynchronize(stream_), "stamped steps"));
  cuda::StepStamps head;
  HB_TRY(stamps_.download(&head, sizeof(head)));
  std::vector<uint64_t> times(2 * static_cast<size_t>(head.capacity));
  HB_TRY(stamps_.download(times.data(), times.size() * sizeof(uint64_t), sizeof(head)));
  std::vector<Stamp> out;
  for (int i = 0; i < head.count; ++i)
    out.push_back({times[static_cast<size_t>(i)], times[static_cast<size_t>(head.capacity + i)]});
  return out;
}

Result<std::vector<CudaPass::Stamp>> CudaPass::decode_alone(std::span<const CudaRow> rows,
                                                            std::span<const CudaPick> picks, int steps, Stamps which) {
  HB_TRY(start_stamps(steps, which));
  HB_TRY(begin(rows, picks, Logits::kNone, /*advance=*/true).status());
  HB_ASSIGN(const cudaGraphExec_t exec, graph(placed_shape_));
  for (int i = 1; i < steps; ++i) HB_TRY(check(cudaGraphLaunch(exec, stream_), "launch"));
  HB_ASSIGN(std::vector<Stamp> out, take_stamps());
  if (out.size() != static_cast<size_t>(steps))
    return internal_error("a decode loop ended after " + std::to_string(out.size()) + " of " + std::to_string(steps) +
                          " steps: a logit was not finite");
  return Result<std::vector<Stamp>>(std::move(out));
}

Status CudaPass::fill_cache_randomly() {
  HB_TRY(kv_shape_.fp8 ? cuda::fill_random_fp8(cache_.as<void>(), cache_.size(), 77, {})
                       : cuda::fill_random_bf16(cache_.as<void>(), cache_.size() / 2, 1.0f, 77, {}));
  return check(cudaDeviceSynchronize(), "random cache");
}

}  // namespace halfbyte
