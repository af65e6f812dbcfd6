#include "engine/cuda_pass.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/cuda_buffers.h"

namespace halfbyte {

using cuda::check;
using cuda::DeviceBuffer;
using cuda::kMaxRows;

// Of one padded number of rows: x^ layouts depend on it.
struct CudaPass::Buffers {
  int rows = 0;
  CudaInputBuffers attention, o, mlp, down, head;
  DeviceBuffer partial;         // slots of whichever linear ran last
  DeviceBuffer logits_partial;  // slots of the head
  DeviceBuffer parts, stats;    // attention

  // The result of a linear whose input was in `input`.
  cuda::SlotView result(const CudaInputBuffers& input, const CudaLinear& l) const {
    return cuda::slots_of(l.storage.view, rows, partial.as<float>(), input.scales.as<float>());
  }
};

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
  table_stride_ = (weights_->context + kv_shape_.page_tokens - 1) / kv_shape_.page_tokens;
  HB_ASSIGN(cache_, DeviceBuffer::make(static_cast<size_t>(limits_.pages) * kv_shape_.page_bytes(), /*zero=*/true));
  HB_ASSIGN(inputs_, DeviceBuffer::make(sizeof(CudaInputs), /*zero=*/true));
  HB_ASSIGN(tables_, DeviceBuffer::make(static_cast<size_t>(kMaxRows * table_stride_) * sizeof(int32_t), true));
  HB_ASSIGN(residual_, DeviceBuffer::make(static_cast<size_t>(kMaxRows * c.hidden) * sizeof(float), true));
  HB_ASSIGN(drawn_, DeviceBuffer::make(kMaxRows * sizeof(cuda::Drawn), true));
  HB_ASSIGN(plain_, DeviceBuffer::make(static_cast<size_t>(kMaxRows * c.vocab) * sizeof(float)));
  HB_ASSIGN(step_, DeviceBuffer::make(sizeof(int32_t), true));
  return {};
}

CudaPass::~CudaPass() {
  for (const auto& [shape, graph] : graphs_) cudaGraphExecDestroy(graph);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<CudaPass::Buffers*> CudaPass::buffers(int rows) {
  std::unique_ptr<Buffers>& b = buffers_[rows];
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
  HB_TRY(check(cudaDeviceSynchronize(), "allocation"));
  b = std::move(made);
  return b.get();
}

// What layer, model and cache say; the rows are the caller's.
cuda::AttentionRows CudaPass::attention_of(size_t layer) const {
  const CudaWeights& w = *weights_;
  const CudaLayer& l = w.layers[layer];
  const ModelConfig& c = w.config;
  cuda::AttentionRows a;
  a.q_norm = l.q_norm.as<float>();
  a.k_norm = l.k_norm.as<float>();
  a.eps = c.rms_norm_eps;
  a.cos = w.cos.as<float>();
  a.sin = w.sin.as<float>();
  a.kv = {cache_.as<uint8_t>(),
          kv_shape_.page_bytes(),
          layer * kv_shape_.layer_bytes(),
          static_cast<int>(kv_shape_.page_tokens),
          tables_.as<int32_t>(),
          static_cast<int>(table_stride_),
          kv_shape_.fp8,
          l.key_scale,
          l.value_scale};
  a.heads = static_cast<int>(c.heads);
  a.kv_heads = static_cast<int>(c.kv_heads);
  a.head_dim = static_cast<int>(c.head_dim);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  return a;
}

// One decoder layer, from its normed input to the slots of `down`, in the order of the papers.
Status CudaPass::enqueue_layer(size_t layer, const Shape& shape, Buffers& b) {
  const CudaLayer& l = weights_->layers[layer];
  const ModelConfig& c = weights_->config;
  const int rows = shape.rows;
  float* partial = b.partial.as<float>();
  const auto* positions = input_field<int32_t>(inputs_, offsetof(CudaInputs, positions));

  HB_TRY(cuda::run_linear(l.qkv.storage.view, rows, b.attention.of(l.qkv), partial, how()));
  cuda::AttentionRows attention = attention_of(layer);
  attention.qkv = b.result(b.attention, l.qkv);
  attention.positions = positions;
  attention.parts = b.parts.as<float>();
  attention.stats = b.stats.as<float>();
  if (!shape.own_rows) HB_TRY(cuda::append_rows(attention, rows, how()));
  const auto state = shape.own_rows ? cuda::KvState::kOwnRow : cuda::KvState::kAppended;
  HB_TRY(cuda::attention_rows(attention, state, rows, how()));
  HB_TRY(cuda::run_merge_linear(
      {attention.parts, attention.stats, positions, attention.heads, attention.head_dim, b.o.out(l.o)},
      l.o.storage.view, rows, partial, how()));

  cuda::NormRows norm;
  norm.y = b.result(b.o, l.o);
  norm.positions = positions;
  norm.residual = residual_.as<float>();
  norm.weight = l.mlp_norm.as<float>();
  norm.eps = c.rms_norm_eps;
  norm.k = static_cast<int>(c.hidden);
  norm.out = b.mlp.out(l.gate_up);
  HB_TRY(cuda::norm_rows(norm, rows, how()));

  HB_TRY(cuda::run_linear(l.gate_up.storage.view, rows, b.mlp.of(l.gate_up), partial, how()));
  HB_TRY(cuda::silu_rows({b.result(b.mlp, l.gate_up), positions, static_cast<int>(c.intermediate), b.down.out(l.down)},
                         rows, how()));
  return cuda::run_linear(l.down.storage.view, rows, b.down.of(l.down), partial, how());
}

// Final norm of the picked rows, logits and draw.
Status CudaPass::enqueue_head(const HeadInput& in, const Shape& shape, Buffers& head, cuda::Launch launch) {
  const CudaWeights& w = *weights_;
  const CudaLinear& linear = w.head;
  const auto* picks = input_field<int32_t>(inputs_, offsetof(CudaInputs, picks));
  float* logits = head.logits_partial.as<float>();
  cuda::NormRows norm;
  norm.y = in.y;
  norm.positions = in.positions;
  norm.pick = picks;
  norm.residual = in.residual;
  norm.keep = false;
  norm.weight = w.final_norm.as<float>();
  norm.eps = w.config.rms_norm_eps;
  norm.k = static_cast<int>(w.config.hidden);
  norm.out = head.head.out(linear);
  HB_TRY(cuda::norm_rows(norm, shape.picks, launch));
  HB_TRY(cuda::run_linear(linear.storage.view, shape.picks, head.head.of(linear), logits, launch));
  cuda::DrawRows draw;
  draw.logits = cuda::slots_of(linear.storage.view, shape.picks, logits, head.head.scales.as<float>());
  draw.vocab = static_cast<int>(w.config.vocab);
  draw.rules = input_field<cuda::DrawRule>(inputs_, offsetof(CudaInputs, rules));
  draw.rows = picks;
  draw.tokens = in.tokens;
  draw.positions = in.positions;
  draw.advance = shape.advance;
  draw.drawn = drawn_.as<cuda::Drawn>();
  draw.plain = shape.plain ? plain_.as<float>() : nullptr;
  draw.stamps = shape.advance ? stamps_.as<uint64_t>() : nullptr;
  draw.step = step_.as<int32_t>();
  return cuda::draw_rows(draw, shape.picks, launch);
}

Status CudaPass::enqueue(const Shape& shape, Buffers& b, Buffers* head) {
  const CudaWeights& w = *weights_;
  for (size_t i = 0; i < w.layers.size(); ++i) {
    cuda::NormRows norm;
    if (i == 0) {
      norm.embedding = w.embedding.as<void>();
      norm.embedding_bf16 = w.embedding_bf16;
      norm.tokens = input_field<int32_t>(inputs_, offsetof(CudaInputs, tokens));
    } else {
      norm.y = b.result(b.down, w.layers[i - 1].down);
    }
    norm.positions = input_field<int32_t>(inputs_, offsetof(CudaInputs, positions));
    norm.residual = residual_.as<float>();
    norm.weight = w.layers[i].attention_norm.as<float>();
    norm.eps = w.config.rms_norm_eps;
    norm.k = static_cast<int>(w.config.hidden);
    norm.out = b.attention.out(w.layers[i].qkv);
    HB_TRY(cuda::norm_rows(norm, shape.rows, how()));
    HB_TRY(enqueue_layer(i, shape, b));
  }
  if (head == nullptr) return {};
  return enqueue_head({b.result(b.down, w.layers.back().down), residual_.as<float>(),
                       input_field<int32_t>(inputs_, offsetof(CudaInputs, positions)),
                       input_field<int32_t>(inputs_, offsetof(CudaInputs, tokens))},
                      shape, *head, how());
}

Result<cudaGraphExec_t> CudaPass::graph(const Shape& shape) {
  if (const auto found = graphs_.find(shape); found != graphs_.end()) return found->second;
  HB_ASSIGN(Buffers* const b, buffers(shape.rows));
  Buffers* head = nullptr;
  if (shape.picks > 0) {
    HB_ASSIGN(head, buffers(shape.picks));
  }
  HB_TRY(check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture"));
  const Status status = enqueue(shape, *b, head);
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
Status CudaPass::place(std::span<const CudaRow> rows, std::span<const CudaPick> picks) {
  CudaInputs in{};
  for (int i = 0; i < kMaxRows; ++i) {
    const bool there = i < static_cast<int>(rows.size());
    in.tokens[i] = there ? rows[static_cast<size_t>(i)].token : 0;
    in.positions[i] = there ? rows[static_cast<size_t>(i)].position : -1;
    const bool picked = i < static_cast<int>(picks.size());
    in.picks[i] = picked ? picks[static_cast<size_t>(i)].row : -1;
    if (picked) in.rules[i] = picks[static_cast<size_t>(i)].rule;
    if (!there) continue;
    const std::span<const int32_t> pages = rows[static_cast<size_t>(i)].pages;
    std::vector<int32_t>& placed = placed_tables_[static_cast<size_t>(i)];
    if (std::equal(pages.begin(), pages.end(), placed.begin(), placed.end())) continue;
    if (static_cast<int64_t>(pages.size()) > table_stride_)
      return internal_error("a sequence of " + std::to_string(pages.size()) + " pages, the device's table holds " +
                            std::to_string(table_stride_));
    placed.assign(pages.begin(), pages.end());
    HB_TRY(check(cudaMemcpyAsync(tables_.as<int32_t>() + i * table_stride_, placed.data(), pages.size_bytes(),
                                 cudaMemcpyHostToDevice, stream_),
                 "page table"));
  }
  // From pageable memory the call returns once the bytes are on their way: `in` may go.
  return check(cudaMemcpyAsync(inputs_.as<void>(), &in, sizeof(in), cudaMemcpyHostToDevice, stream_), "inputs");
}

Status CudaPass::run(std::span<const CudaRow> rows, std::span<const CudaPick> picks, bool own_rows, bool plain,
                     std::span<cuda::Drawn> drawn) {
  const Shape shape{cuda::padded_rows(static_cast<int>(rows.size())),
                    picks.empty() ? 0 : cuda::padded_rows(static_cast<int>(picks.size())), own_rows,
                    plain && !picks.empty(), /*advance=*/false};
  HB_ASSIGN(const cudaGraphExec_t exec, graph(shape));
  HB_TRY(place(rows, picks));
  HB_TRY(check(cudaGraphLaunch(exec, stream_), "launch"));
  return take_drawn(drawn.first(picks.size()));
}

// Waits for the stream; a fault of any kernel shows here.
Status CudaPass::take_drawn(std::span<cuda::Drawn> drawn) {
  if (!drawn.empty())
    HB_TRY(check(cudaMemcpyAsync(drawn.data(), drawn_.as<void>(), drawn.size_bytes(), cudaMemcpyDeviceToHost, stream_),
                 "drawn tokens"));
  return check(cudaStreamSynchronize(stream_), "forward pass");
}

Status CudaPass::draw_prompt(std::span<const CudaPick> picks, bool plain, std::span<cuda::Drawn> drawn) {
  const Shape shape{0, cuda::padded_rows(static_cast<int>(picks.size())), false, plain, false};
  HB_ASSIGN(Buffers* const head, buffers(shape.picks));
  HB_TRY(place({}, picks));
  HB_TRY(enqueue_head(prompt_head(), shape, *head, in_turn()));
  return take_drawn(drawn.first(picks.size()));
}

Status CudaPass::logits(int pick, std::span<float> out) {
  return plain_.download(out.data(), out.size_bytes(), static_cast<size_t>(pick) * out.size_bytes());
}

Status CudaPass::read_page(int32_t page, std::span<std::byte> out) {
  return cache_.download(out.data(), out.size(), static_cast<size_t>(page) * page_bytes());
}

Status CudaPass::write_page(int32_t page, std::span<const std::byte> from) {
  return cache_.upload(from.data(), from.size(), static_cast<size_t>(page) * page_bytes());
}

Status CudaPass::decode_alone(std::span<const CudaRow> rows, const cuda::DrawRule& rule, int steps,
                              std::vector<uint64_t>& stamps) {
  std::vector<CudaPick> picks;
  for (size_t i = 0; i < rows.size(); ++i) picks.push_back({static_cast<int32_t>(i), rule});
  const int padded = cuda::padded_rows(static_cast<int>(rows.size()));
  const Shape shape{padded, padded, /*own_rows=*/true, /*plain=*/false, /*advance=*/true};
  HB_ASSIGN(stamps_, DeviceBuffer::make(static_cast<size_t>(steps) * sizeof(uint64_t), true));
  if (const auto old = graphs_.find(shape); old != graphs_.end()) {  // it holds the address of other stamps
    cudaGraphExecDestroy(old->second);
    graphs_.erase(old);
  }
  HB_ASSIGN(const cudaGraphExec_t exec, graph(shape));
  HB_TRY(check(cudaMemset(step_.as<void>(), 0, sizeof(int32_t)), "counter"));
  HB_TRY(check(cudaDeviceSynchronize(), "counter"));
  HB_TRY(place(rows, picks));
  for (int i = 0; i < steps; ++i) HB_TRY(check(cudaGraphLaunch(exec, stream_), "launch"));
  HB_TRY(check(cudaStreamSynchronize(stream_), "decode"));
  stamps.resize(static_cast<size_t>(steps));
  return stamps_.download(stamps.data(), stamps.size() * sizeof(uint64_t));
}

Status CudaPass::fill_cache_randomly() {
  HB_TRY(kv_shape_.fp8 ? cuda::fill_random_fp8(cache_.as<void>(), cache_.size(), 77, {})
                       : cuda::fill_random_bf16(cache_.as<void>(), cache_.size() / 2, 1.0f, 77, {}));
  return check(cudaDeviceSynchronize(), "random cache");
}

}  // namespace halfbyte
