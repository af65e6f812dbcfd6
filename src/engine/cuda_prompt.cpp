// Prompt rows through the layers: matrix products over all rows of a pass, attention a sequence at a time.
#include <cuda_runtime.h>

#include <algorithm>

#include "engine/cuda_buffers.h"

namespace halfbyte {

using cuda::check;
using cuda::DeviceBuffer;

// Tokens, positions and page tables. The copies come from pageable memory: the host's vectors may change at once.
Status CudaPass::place_prompt(std::span<const CudaSegment> segments, int rows) {
  PromptBuffers& b = *prompt_;
  b.rows = rows;
  b.padded = cuda::padded_prompt_rows(rows);
  b.host_tokens.clear();
  b.host_positions.clear();
  b.host_tables.assign(segments.size() * static_cast<size_t>(table_stride_), 0);
  for (size_t i = 0; i < segments.size(); ++i) {
    const CudaSegment& s = segments[i];
    HB_TRY(check_pages(s.pages));
    b.host_tokens.insert(b.host_tokens.end(), s.tokens.begin(), s.tokens.end());
    for (size_t r = 0; r < s.tokens.size(); ++r)
      b.host_positions.push_back(static_cast<int32_t>(s.position + static_cast<int64_t>(r)));
    std::copy(s.pages.begin(), s.pages.end(),
              b.host_tables.begin() + static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(table_stride_));
  }
  const auto copy = [this](const DeviceSpan& to, const std::vector<int32_t>& from) {
    return check(
        cudaMemcpyAsync(to.as<void>(), from.data(), from.size() * sizeof(int32_t), cudaMemcpyHostToDevice, stream_),
        "rows of a prompt");
  };
  HB_TRY(copy(b.tokens, b.host_tokens));
  HB_TRY(copy(b.positions, b.host_positions));
  return copy(b.tables, b.host_tables);
}

cuda::NormRows CudaPass::prompt_norm(const cuda::SlotView& y, const DeviceBuffer& weight) const {
  const ModelConfig& c = weights_->config;
  cuda::NormRows norm;
  norm.y = y;
  norm.residual = prompt_->residual.as<float>();
  norm.weight = weight.as<float>();
  norm.eps = c.rms_norm_eps;
  norm.k = static_cast<int>(c.hidden);
  return norm;
}

// A sequence at a time: queries made and keys and values appended, then attention, rounded into the input of `o`.
Status CudaPass::enqueue_prompt_attention(size_t layer, std::span<const CudaSegment> segments, int rows) {
  PromptBuffers& b = *prompt_;
  const ModelConfig& c = weights_->config;
  const CudaLayer& l = weights_->layers[layer];
  const cuda::SlotView qkv = b.result(b.attention, l.qkv);
  const cuda::RowOutput rounded = b.o.out(l.o, b.padded);
  bool rounds = false;
  size_t first = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    cuda::AttentionRows a = attention_of(layer);
    a.qkv = qkv;
    a.qkv.partial += first * static_cast<size_t>(qkv.rows);
    if (qkv.x_scale != nullptr) a.qkv.x_scale += first;
    a.positions = b.positions.as<int32_t>() + first;
    a.kv.tables = b.tables.as<int32_t>() + i * static_cast<size_t>(table_stride_);
    a.kv.table_stride = 0;  // one sequence
    a.parts = b.queries.as<float>();
    rounds = cuda::fuses_prompt_rounding(a, l.o.mode);
    const int count = static_cast<int>(segments[i].tokens.size());
    HB_TRY(cuda::prompt_heads(a, count, /*append=*/true, how()));
    HB_TRY(cuda::attention_prompt(a, count, b.attended.as<float>() + first * static_cast<size_t>(c.q_width()),
                                  rounds ? &rounded : nullptr, static_cast<int>(first), how()));
    first += segments[i].tokens.size();
  }
  if (first != static_cast<size_t>(rows)) return internal_error("rows of a prompt pass were lost");
  if (rounds) return {};
  const auto q_width = static_cast<int>(c.q_width());
  cuda::SlotView attended;
  attended.partial = b.attended.as<float>();
  attended.rows = q_width;
  attended.columns = b.padded;
  return cuda::round_rows({attended, q_width, rounded}, rows, how());
}

// One decoder layer, as CudaPass::enqueue_layer, over all rows.
Status CudaPass::enqueue_prompt_layer(size_t layer, std::span<const CudaSegment> segments, int rows) {
  PromptBuffers& b = *prompt_;
  const CudaLayer& l = weights_->layers[layer];
  const ModelConfig& c = weights_->config;
  HB_TRY(b.run(b.attention, l.qkv, how()));
  HB_TRY(enqueue_prompt_attention(layer, segments, rows));
  HB_TRY(b.run(b.o, l.o, how()));

  cuda::NormRows norm = prompt_norm(b.result(b.o, l.o), l.mlp_norm);
  norm.out = b.mlp.out(l.gate_up, b.padded);
  HB_TRY(cuda::norm_prompt(norm, rows, how()));
  const auto intermediate = static_cast<int>(c.intermediate);
  const cuda::RowOutput out = b.down.out(l.down, b.padded);
  const cuda::Linear& gate_up = l.gate_up.storage.view;
  if (cuda::fuses_prompt_silu(gate_up, intermediate, l.down.mode)) {
    const float* scales = l.gate_up.mode == cuda::RowMode::kA16 ? nullptr : b.mlp.scales.as<float>();  // ones
    HB_TRY(cuda::run_prompt_silu(gate_up, rows, b.mlp.of(l.gate_up), scales, out, how()));
  } else {
    HB_TRY(b.run(b.mlp, l.gate_up, how()));
    HB_TRY(cuda::silu_rows({b.result(b.mlp, l.gate_up), nullptr, intermediate, out}, rows, how()));
  }
  return b.run(b.down, l.down, how());
}

Status CudaPass::run_prompt(std::span<const CudaSegment> segments) {
  size_t rows = 0;
  for (const CudaSegment& s : segments) rows += s.tokens.size();
  if (prompt_ == nullptr || static_cast<int64_t>(rows) > limits_.prompt_rows || rows == 0 ||
      static_cast<int64_t>(segments.size()) > limits_.sequences)
    return internal_error("a prompt pass of " + std::to_string(rows) + " rows and " + std::to_string(segments.size()) +
                          " sequences, expected up to " + std::to_string(limits_.prompt_rows) + " and " +
                          std::to_string(limits_.sequences));
  const int count = static_cast<int>(rows);
  HB_TRY(place_prompt(segments, count));
  PromptBuffers& b = *prompt_;
  const CudaWeights& w = *weights_;
  for (size_t i = 0; i < w.layers.size(); ++i) {
    cuda::NormRows norm =
        prompt_norm(i == 0 ? cuda::SlotView{} : b.result(b.down, w.layers[i - 1].down), w.layers[i].attention_norm);
    if (i == 0) {
      norm.embedding = w.embedding.as<void>();
      norm.embedding_bf16 = w.embedding_bf16;
      norm.tokens = b.tokens.as<int32_t>();
    }
    norm.out = b.attention.out(w.layers[i].qkv, b.padded);
    HB_TRY(cuda::norm_prompt(norm, count, how()));
    HB_TRY(enqueue_prompt_layer(i, segments, count));
  }
  return {};
}

CudaPass::HeadInput CudaPass::prompt_head() const {
  const PromptBuffers& b = *prompt_;
  return {b.result(b.down, weights_->layers.back().down), b.residual.as<float>(), b.positions.as<int32_t>(),
          b.tokens.as<int32_t>()};
}

}  // namespace halfbyte
