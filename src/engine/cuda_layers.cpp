// The kernels of a decode pass in their order: what its graph holds.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/cuda_buffers.h"

namespace halfbyte {
namespace {

// An operation for each group, one behind the other.
template <class Groups, class Operation>
Status for_groups(const Groups& groups, const Operation& operation) {
  for (const auto& group : groups) HB_TRY(operation(group));
  return {};
}

}  // namespace

Status CudaPass::enqueue(const Shape& shape, std::span<const Group> groups) {
  const CudaWeights& w = *weights_;
  if (shape.stamps == Stamps::kBoth) HB_TRY(cuda::stamp_begin(stamps_.as<cuda::StepStamps>(), in_turn()));
  for (size_t i = 0; i < w.layers.size(); ++i) {
    HB_TRY(for_groups(groups, [&](const Group& group) {
      cuda::NormRows norm = norm_of(group);
      if (i == 0) {
        norm.embedding = w.embedding.as<void>();
        norm.embedding_bf16 = w.embedding_bf16;
        norm.tokens = input_field<int32_t>(inputs_, offsetof(CudaInputs, tokens)) + group.first;
      } else {
        norm.y = group.layers->result(group.layers->down, w.layers[i - 1].down);
      }
      norm.weight = w.layers[i].attention_norm.as<float>();
      norm.out = group.layers->attention.out(w.layers[i].qkv);
      return cuda::run_norm_linear(norm, w.layers[i].qkv.storage.view, group.rows, group.layers->partial.as<float>(),
                                   how());
    }));
    HB_TRY(enqueue_layer(i, shape, groups));
  }
  return for_groups(groups, [&](const Group& group) -> Status {
    if (group.head == nullptr) return {};
    return enqueue_head(
        {group.layers->result(group.layers->down, w.layers.back().down), norm_of(group).residual, row_positions(group),
         input_field<int32_t>(inputs_, offsetof(CudaInputs, tokens)) + group.first},
        shape, group, how());
  });
}

// One decoder layer, from the slots of q, k and v to those of `down`, in the order of the papers.
Status CudaPass::enqueue_layer(size_t layer, const Shape& shape, std::span<const Group> groups) {
  const CudaLayer& l = weights_->layers[layer];
  HB_TRY(for_groups(groups, [&](const Group& g) { return enqueue_attention(layer, shape, g); }));
  const ModelConfig& c = weights_->config;
  HB_TRY(for_groups(groups, [&](const Group& g) {
    const Buffers& b = *g.layers;
    const cuda::RowOutput out = b.o.out(l.o);
    if (cuda::attention_merges(g.rows))
      return cuda::run_linear(l.o.storage.view, g.rows, out.x, b.partial.as<float>(), how());
    return cuda::run_merge_linear({b.parts.as<float>(), b.stats.as<float>(), row_positions(g),
                                   static_cast<int>(c.heads), static_cast<int>(c.head_dim), out},
                                  l.o.storage.view, g.rows, b.partial.as<float>(), how());
  }));
  HB_TRY(for_groups(groups, [&](const Group& g) {
    cuda::NormRows norm = norm_of(g);
    norm.y = g.layers->result(g.layers->o, l.o);
    norm.weight = l.mlp_norm.as<float>();
    norm.out = g.layers->mlp.out(l.gate_up);
    return cuda::run_norm_linear(norm, l.gate_up.storage.view, g.rows, g.layers->partial.as<float>(), how());
  }));
  return for_groups(groups, [&](const Group& g) {
    const Buffers& b = *g.layers;
    return cuda::run_silu_linear(
        {b.result(b.mlp, l.gate_up), row_positions(g), static_cast<int>(c.intermediate), b.down.out(l.down)},
        l.down.storage.view, g.rows, b.partial.as<float>(), how());
  });
}

Status CudaPass::enqueue_attention(size_t layer, const Shape& shape, const Group& group) {
  const Buffers& b = *group.layers;
  cuda::AttentionRows attention = attention_of(layer);
  attention.qkv = b.result(b.attention, weights_->layers[layer].qkv);
  attention.positions = row_positions(group);
  attention.kv.tables += group.first * table_stride_;
  attention.parts = b.parts.as<float>();
  attention.stats = b.stats.as<float>();
  if (!shape.own_rows) HB_TRY(cuda::append_rows(attention, group.rows, how()));
  const auto state = shape.own_rows ? cuda::KvState::kOwnRow : cuda::KvState::kAppended;
  if (cuda::attention_merges(group.rows))
    return cuda::attention_merged(attention, state, b.o.out(weights_->layers[layer].o), group.rows, how());
  return cuda::attention_rows(attention, state, group.rows, how());
}

// Final norm of the picked rows, logits and draw. Of a group: the host's and the device's arrays of picks begin at its first.
Status CudaPass::enqueue_head(const HeadInput& in, const Shape& shape, const Group& group, cuda::Launch launch) {
  const CudaWeights& w = *weights_;
  const CudaLinear& linear = w.head;
  Buffers& head = *group.head;
  const auto* picks = input_field<int32_t>(inputs_, offsetof(CudaInputs, picks)) + group.first;
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
  HB_TRY(cuda::run_norm_linear(norm, linear.storage.view, group.picks, logits, launch));
  cuda::DrawRows draw;
  draw.logits = cuda::slots_of(linear.storage.view, group.picks, logits, head.head.scales.as<float>());
  draw.vocab = static_cast<int>(w.config.vocab);
  draw.rules = input_field<cuda::DrawRule>(inputs_, offsetof(CudaInputs, rules)) + group.first;
  draw.rows = picks;
  draw.tokens = in.tokens;
  draw.positions = in.positions;
  draw.advance = shape.advance;
  draw.drawn = pinned_->drawn[0] + group.first;
  draw.drawn_places = kDrawnPlaces;
  draw.drawn_stride = kMaxPassRows;
  draw.plain = shape.plain ? plain_.as<float>() + group.first * w.config.vocab : nullptr;
  const bool last = group.first + group.picks >= shape.picks;
  draw.stamps = shape.stamps != Stamps::kNone && last ? stamps_.as<cuda::StepStamps>() : nullptr;
  return cuda::draw_rows(draw, group.picks, launch);
}

// What all norms within the layers share.
cuda::NormRows CudaPass::norm_of(const Group& group) const {
  const ModelConfig& c = weights_->config;
  cuda::NormRows norm;
  norm.positions = row_positions(group);
  norm.residual = residual_.as<float>() + group.first * c.hidden;
  norm.eps = c.rms_norm_eps;
  norm.k = static_cast<int>(c.hidden);
  return norm;
}

int32_t* CudaPass::row_positions(const Group& group) const {
  return input_field<int32_t>(inputs_, offsetof(CudaInputs, positions)) + group.first;
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

}  // namespace halfbyte
