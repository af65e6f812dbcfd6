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

// The positions that picks draw at: `position_of` those of their rows.
class PickPositions {
 public:
  template <class PositionOf>
  PickPositions(std::span<const CudaPick> picks, const PositionOf& position_of) : count_(picks.size()) {
    for (size_t i = 0; i < count_; ++i) values_[i] = position_of(static_cast<size_t>(picks[i].row));
  }
  operator std::span<const int32_t>() const { return std::span(values_).first(count_); }

 private:
  size_t count_;
  std::array<int32_t, kMaxPassRows> values_;
};
PickPositions positions_of(std::span<const CudaPick> picks, std::span<const CudaRow> rows) {
  return {picks, [&](size_t row) { return rows[row].position; }};
}

}  // namespace

CudaPass::CudaPass(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv, const CudaPassLimits& limits)
    : weights_(std::move(weights)), kv_shape_(kv), limits_(limits) {}

Result<std::unique_ptr<CudaPass>> CudaPass::create(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv,
                                                   const CudaPassLimits& limits) {
  std::unique_ptr<CudaPass> out(new CudaPass(std::move(weights), kv, limits));
  HB_TRY(out->allocate());
  HB_TRY(check(cudaDeviceSynchronize(), "first allocation"));  // the stream does not wait for the default one
  return Result<std::unique_ptr<CudaPass>>(std::move(out));
}

Status CudaPass::allocate() {
  HB_TRY(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"));
  for (Flight& flight : flights_)
    HB_TRY(check(cudaEventCreateWithFlags(&flight.done, cudaEventDisableTiming), "event"));
  void* pinned = nullptr;
  HB_TRY(check(cudaHostAlloc(&pinned, sizeof(Pinned), cudaHostAllocPortable), "pinned host memory"));
  pinned_ = new (pinned) Pinned{};
  table_stride_ = limits_.table_stride;
  HB_ASSIGN(inputs_, DeviceBuffer::make(sizeof(CudaInputs), /*zero=*/true));
  HB_ASSIGN(policies_, DeviceBuffer::make(static_cast<size_t>(kMaxPassRows) * kPolicyBytes));
  const CudaWorkLayout layout = lay_out_cuda_work(weights_->shape, limits_);
  auto work = DeviceBuffer::make(layout.bytes, /*zero=*/true);
  if (!work.ok()) return work.status().with_context("the work space of passes");
  work_ = std::move(work).value();
  tables_ = {work_, layout.tables};
  residual_ = {work_, layout.residual};
  plain_ = {work_, layout.plain};
  classes_memory_ = {work_, layout.classes};
  classes_.resize(static_cast<size_t>(limits_.rows));
  for (const auto& [key, pieces] : layout.groups) {
    auto made = std::make_unique<Buffers>();
    made->rows = key.first;
    made->attention = {work_, pieces.attention};
    made->o = {work_, pieces.o};
    made->mlp = {work_, pieces.mlp};
    made->down = {work_, pieces.down};
    made->head = {work_, pieces.head};
    made->partial = {work_, pieces.partial};
    made->logits_partial = {work_, pieces.logits_partial};
    made->parts = {work_, pieces.parts};
    made->stats = {work_, pieces.stats};
    buffers_[key] = std::move(made);
  }
  if (limits_.prompt_rows > 0) prompt_ = std::make_unique<PromptBuffers>(work_, layout.prompt);
  HB_TRY(check_sizes());
  auto cache = DeviceBuffer::make(static_cast<size_t>(limits_.pages) * kv_shape_.page_bytes(), /*zero=*/true);
  if (!cache.ok()) return cache.status().with_context("the KV cache");
  cache_ = std::move(cache).value();
  return {};
}

// What was laid out from shapes against what the kernels of this device say of the linears that are there: a piece that is too
// small would be written over its end.
Status CudaPass::check_sizes() const {
  return decode_fits() && prompts_fit()
             ? Status()
             : internal_error("the work space of passes was laid out too small for the device's kernels");
}

bool CudaPass::decode_fits() const {
  const ModelConfig& c = weights_->config;
  const cuda::HeadSize heads{c.heads, c.kv_heads, c.head_dim};
  // Scores and the draws of prompts have up to 16 rows, whatever decode has.
  const int most = std::max(kMaxRows, shape_of(static_cast<size_t>(limits_.rows), 0).rows);
  bool ok = tables_.holds<int32_t>(most * table_stride_) && residual_.holds<float>(most * c.hidden) &&
            plain_.holds<float>(most * c.vocab) && classes_memory_.holds<uint8_t>(limits_.rows * c.vocab);
  for (const auto& [key, b] : buffers_) {
    const int rows = key.first;
    const auto decode = [&](const CudaLinear& l, const CudaInputBuffers& in, const DeviceSpan& slots) {
      ok = ok && in.hold(l, cuda::x_bytes(l.storage.view, rows), rows) &&
           slots.holds<float>(cuda::slot_floats(l.storage.view, rows));
    };
    for (const CudaLayer& l : weights_->layers) {
      decode(l.qkv, b->attention, b->partial);
      decode(l.o, b->o, b->partial);
      decode(l.gate_up, b->mlp, b->partial);
      decode(l.down, b->down, b->partial);
    }
    decode(weights_->head, b->head, b->logits_partial);
    ok = ok && b->parts.holds<float>(cuda::part_floats(heads, rows)) &&
         b->stats.holds<float>(cuda::stat_floats(heads, rows));
  }
  return ok;
}

bool CudaPass::prompts_fit() const {
  if (prompt_ == nullptr) return true;
  const ModelConfig& c = weights_->config;
  const PromptBuffers& b = *prompt_;
  const int rows = static_cast<int>(limits_.prompt_rows);
  bool ok = b.tokens.holds<int32_t>(rows) && b.positions.holds<int32_t>(rows) &&
            b.tables.holds<int32_t>(limits_.sequences * table_stride_) && b.residual.holds<float>(rows * c.hidden) &&
            b.queries.holds<float>(cuda::prompt_query_floats({c.heads, c.kv_heads, c.head_dim}, rows)) &&
            b.attended.holds<float>(rows * c.q_width());
  const auto prompt = [&](const CudaLinear& l, const CudaInputBuffers& in, bool writes) {
    ok = ok && in.hold(l, cuda::prompt_x_bytes(l.storage.view, rows), cuda::padded_prompt_rows(rows)) &&
         (!writes || b.y.holds<float>(cuda::prompt_y_floats(l.storage.view, rows)));
  };
  for (const CudaLayer& l : weights_->layers) {
    prompt(l.qkv, b.attention, true);
    prompt(l.o, b.o, true);
    prompt(l.gate_up, b.mlp,
           !cuda::fuses_prompt_silu(l.gate_up.storage.view, static_cast<int>(c.intermediate), l.down.mode));
    prompt(l.down, b.down, true);
  }
  return ok;
}

CudaPass::~CudaPass() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);  // a pass that was given up may still run
  for (const auto& [shape, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (const Flight& flight : flights_)
    if (flight.done != nullptr) cudaEventDestroy(flight.done);
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

// group: of a pass of several groups, which have memory of their own.
Result<CudaPass::Buffers*> CudaPass::buffers(int rows, int group) {
  const auto found = buffers_.find({rows, group});
  if (found == buffers_.end())
    return internal_error("a pass with " + std::to_string(rows) + " rows in group " + std::to_string(group) +
                          ", more than the " + std::to_string(limits_.rows) + " that have memory");
  return found->second.get();
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
  HB_TRY(check_pages(pages));
  placed.clear();  // until the copy is known to be on its way
  // From pageable memory the call returns once the bytes are on their way: `pages` may change.
  HB_TRY(check(cudaMemcpyAsync(tables_.as<int32_t>() + row * table_stride_, pages.data(), pages.size_bytes(),
                               cudaMemcpyHostToDevice, stream_),
               "page table"));
  placed.assign(pages.begin(), pages.end());
  return {};
}

Status CudaPass::check_pages(std::span<const int32_t> pages) const {
  if (static_cast<int64_t>(pages.size()) <= table_stride_) return {};
  return internal_error("a sequence of " + std::to_string(pages.size()) + " pages, the device's table holds " +
                        std::to_string(table_stride_));
}

Status CudaPass::place_policy(int row, const CudaPick& pick, cuda::DrawRule& rule) {
  std::byte* const at = policies_.as<std::byte>() + static_cast<size_t>(row) * kPolicyBytes;
  HB_ASSIGN(rule.classes, place_classes(pick.classes));
  const auto vocab = static_cast<size_t>(weights_->config.vocab);
  rule.class_count = pick.classes == nullptr ? 0 : static_cast<int32_t>(std::min(pick.classes->size(), vocab));
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
  // There are as many places as rows: one that this pass has is never the oldest.
  auto place = std::ranges::find(classes_, classes, &Classes::host);
  const bool known = place != classes_.end();
  if (!known) place = std::ranges::min_element(classes_, {}, &Classes::used);
  const auto vocab = static_cast<size_t>(weights_->config.vocab);
  uint8_t* const at = classes_memory_.as<uint8_t>() + static_cast<size_t>(place - classes_.begin()) * vocab;
  place->used = ++placings_;
  if (known) return at;
  place->host = nullptr;  // until the copy is known to be on its way
  // On the stream of the passes that read them: one on its way has read what stood there.
  HB_TRY(check(cudaMemcpyAsync(at, classes->data(), std::min(classes->size(), vocab), cudaMemcpyHostToDevice, stream_),
               "step classes"));
  place->host = classes;
  return at;
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
  if (rows.empty() || rows.size() > static_cast<size_t>(limits_.rows) || picks.size() > rows.size() ||
      (rows.size() > kMaxRows && picks.size() != rows.size()))
    return internal_error("a pass of " + std::to_string(rows.size()) + " rows and " + std::to_string(picks.size()) +
                          " draws");
  Shape shape = shape_of(rows.size(), picks.size());
  shape.own_rows = true;
  shape.plain = logits == Logits::kKept;
  shape.advance = advance;
  shape.stamps = stamping_;
  HB_TRY(graph(shape).status());  // may capture it: before anything is on its way
  HB_TRY(place(rows, picks, advance));
  placed_shape_ = shape;
  return launch(shape, positions_of(picks, rows));
}

Result<int> CudaPass::begin_next(std::span<const CudaRow> rows) {
  if (!placed_shape_.advance) return -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].pages.size() > placed_tables_[i].size() + 1) return -1;
    HB_TRY(check_pages(rows[i].pages));
  }
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
  HB_ASSIGN(const int ticket, launch(shape, positions_of(picks, rows)));
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
  const PickPositions positions(picks, [this](size_t row) { return prompt_->host_positions[row]; });
  HB_ASSIGN(const int ticket, depart(positions));
  return finish(ticket, drawn);
}

Status CudaPass::logits(int pick, std::span<float> out) {
  const auto at = static_cast<size_t>(plain_.as<std::byte>() - work_.as<std::byte>());
  return work_.download(out.data(), out.size_bytes(), at + static_cast<size_t>(pick) * out.size_bytes());
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
