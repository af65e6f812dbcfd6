#include "engine/cuda_memory.h"

#include <algorithm>

#include "base/size_text.h"
#include "model/load_plan.h"

namespace halfbyte {
namespace {

using cuda::kMaxRows;
using cuda::LinearSize;

// What no shape says: the kernels' code, graphs, which are captured when a shape of a pass first runs (a few MB each with many
// layers), and what the driver keeps for itself.
constexpr uint64_t kOtherBytes = uint64_t{384} << 20;

bool is_fp4(WeightKind kind) {
  const WeightFormat format = weight_format_of(kind);
  return format == WeightFormat::kNVFP4 || format == WeightFormat::kMXFP4;
}

// down: how its input is rounded decides whether SiLU runs inside gate and up.
CudaModelShape::Layer layer_shape(const ModelConfig& c, bool qkv_fp4, bool o_fp4, bool gate_up_fp4,
                                  const LinearPlan& down, bool wgmma) {
  CudaModelShape::Layer out;
  out.qkv = {qkv_fp4, c.q_width() + 2 * c.kv_width(), c.hidden};
  out.o = {o_fp4, c.hidden, c.q_width()};
  out.gate_up = {gate_up_fp4, 2 * c.intermediate, c.hidden};
  out.down = {is_fp4(down.weights), c.hidden, c.intermediate};
  out.fuses_silu = cuda::fuses_prompt_silu(out.gate_up, c.intermediate, out.down.fp4,
                                           down.activations == ActivationKind::kBF16, wgmma);
  return out;
}

// Pieces one behind the other.
class Pieces {
 public:
  WorkPiece take(size_t bytes) {
    const WorkPiece out{bytes_, bytes};
    bytes_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return out;
  }
  WorkPiece floats(size_t count) { return take(count * sizeof(float)); }

  // The input of linears of one kind; prompt: of a prompt's pass.
  CudaInputPieces input(const std::vector<LinearSize>& linears, int rows, bool prompt) {
    size_t fp4 = 0, bf16 = 0;
    for (const LinearSize& l : linears) {
      size_t& most = l.fp4 ? fp4 : bf16;
      most = std::max(most, prompt ? cuda::prompt_x_bytes(l, rows) : cuda::x_bytes(l, rows));
    }
    CudaInputPieces out;
    out.fp4 = take(fp4);
    out.bf16 = take(bf16);
    out.scales = floats(static_cast<size_t>(std::max(rows, kMaxRows)));
    return out;
  }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlign = 256;
  size_t bytes_ = 0;
};

// The layers' linears by the input that they read, each size once.
struct LinearKinds {
  std::vector<LinearSize> qkv, o, gate_up, down;
  explicit LinearKinds(const CudaModelShape& shape) {
    for (const CudaModelShape::Layer& l : shape.layers) {
      add(qkv, l.qkv);
      add(o, l.o);
      add(gate_up, l.gate_up);
      add(down, l.down);
    }
  }

 private:
  static void add(std::vector<LinearSize>& kind, const LinearSize& size) {
    if (std::ranges::find(kind, size) == kind.end()) kind.push_back(size);
  }
};

cuda::HeadSize heads_of(const ModelConfig& c) {
  return {c.heads, c.kv_heads, c.head_dim};
}

// Groups of up to 16 rows; `most` of the last group, padded.
void lay_out_group(const CudaModelShape& shape, const LinearKinds& kinds, int group, int most,
                   const WorkPiece& logits_partial, Pieces& pieces, CudaWorkLayout& out) {
  size_t slots = 0;
  for (const auto* kind : {&kinds.qkv, &kinds.o, &kinds.gate_up, &kinds.down})
    for (const LinearSize& l : *kind) slots = std::max(slots, cuda::slot_floats(l, most));
  CudaGroupPieces shared;
  shared.partial = pieces.floats(slots);
  shared.logits_partial = logits_partial;
  shared.parts = pieces.floats(cuda::part_floats(heads_of(shape.config), most));
  shared.stats = pieces.floats(cuda::stat_floats(heads_of(shape.config), most));
  for (int rows = 1; rows <= most; rows *= 2) {
    CudaGroupPieces own = shared;
    own.attention = pieces.input(kinds.qkv, rows, /*prompt=*/false);
    own.o = pieces.input(kinds.o, rows, false);
    own.mlp = pieces.input(kinds.gate_up, rows, false);
    own.down = pieces.input(kinds.down, rows, false);
    own.head = pieces.input({shape.head}, rows, false);
    out.groups.emplace(std::pair(rows, group), own);
  }
}

CudaPromptPieces lay_out_prompt(const CudaModelShape& shape, const LinearKinds& kinds, const CudaPassLimits& limits,
                                Pieces& pieces) {
  CudaPromptPieces out;
  if (limits.prompt_rows == 0) return out;
  const ModelConfig& c = shape.config;
  const int rows = cuda::padded_prompt_rows(static_cast<int>(limits.prompt_rows));
  const auto count = static_cast<size_t>(rows);
  size_t y = 0;
  for (const CudaModelShape::Layer& l : shape.layers) {
    for (const LinearSize& size : {l.qkv, l.o, l.down}) y = std::max(y, cuda::prompt_y_floats(size, rows));
    if (!l.fuses_silu) y = std::max(y, cuda::prompt_y_floats(l.gate_up, rows));
  }
  out.attention = pieces.input(kinds.qkv, rows, /*prompt=*/true);
  out.o = pieces.input(kinds.o, rows, true);
  out.mlp = pieces.input(kinds.gate_up, rows, true);
  out.down = pieces.input(kinds.down, rows, true);
  out.tokens = pieces.take(count * sizeof(int32_t));
  out.positions = pieces.take(count * sizeof(int32_t));
  out.tables = pieces.take(static_cast<size_t>(limits.sequences * limits.table_stride) * sizeof(int32_t));
  out.residual = pieces.floats(count * static_cast<size_t>(c.hidden));
  // A pass of several sequences runs them one after another.
  out.queries = pieces.floats(cuda::prompt_query_floats(heads_of(c), rows));
  out.attended = pieces.floats(count * static_cast<size_t>(c.q_width()));
  out.y = pieces.floats(y);
  return out;
}

// Device memory of a buffer of its own: large ones are whole 2 MiB.
uint64_t allocated(size_t bytes) {
  const uint64_t unit = bytes >= (size_t{1} << 20) ? uint64_t{2} << 20 : 512;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

CudaPassLimits cuda_pass_limits(const ModelConfig& config, const RunnerLimits& limits) {
  CudaPassLimits out;
  out.pages = limits.pages;
  out.prompt_rows = std::min(limits.prefill_chunk, kMostPromptRows);
  out.sequences = std::min(limits.max_batch, out.prompt_rows) + 1;
  out.rows = static_cast<int>(std::min<int64_t>(limits.max_batch, kMaxPassRows));
  const int64_t context = std::min(config.context, limits.pages * limits.page_tokens);
  out.table_stride = (context + limits.page_tokens - 1) / limits.page_tokens;
  return out;
}

CudaModelShape cuda_model_shape(const ModelConfig& config, const PrecisionPlan& plan, const ModelWeights& weights,
                                bool wgmma) {
  CudaModelShape out;
  out.config = config;
  out.embedding_bf16 = weights.embedding.kind == WeightKind::kBF16;
  out.fp8_cache = plan.kv == KvKind::kFP8;
  for (const LayerWeights& l : weights.layers)
    out.layers.push_back(layer_shape(config, is_fp4(l.q.plan.weights), is_fp4(l.o.plan.weights),
                                     is_fp4(l.gate.plan.weights), l.down.plan, wgmma));
  out.head = {is_fp4(weights.head.plan.weights), config.vocab, config.hidden};
  return out;
}

CudaModelShape uniform_cuda_shape(const ModelConfig& config, const PrecisionPlan& plan, bool wgmma) {
  CudaModelShape out;
  out.config = config;
  out.fp8_cache = plan.kv == KvKind::kFP8;
  const bool fp4 = is_fp4(plan.linear.weights);
  out.layers.assign(static_cast<size_t>(config.layers), layer_shape(config, fp4, fp4, fp4, plan.linear, wgmma));
  out.head = {is_fp4(plan.head.weights), config.vocab, config.hidden};
  return out;
}

CudaWorkLayout lay_out_cuda_work(const CudaModelShape& shape, const CudaPassLimits& limits) {
  CudaWorkLayout out;
  Pieces pieces;
  const LinearKinds kinds(shape);
  const int groups = (limits.rows + kMaxRows - 1) / kMaxRows;
  const auto rows = static_cast<size_t>(groups * kMaxRows);
  out.tables = pieces.take(rows * static_cast<size_t>(limits.table_stride) * sizeof(int32_t));
  out.residual = pieces.floats(rows * static_cast<size_t>(shape.config.hidden));
  out.plain = pieces.floats(rows * static_cast<size_t>(shape.config.vocab));
  out.classes = pieces.take(static_cast<size_t>(limits.rows) * static_cast<size_t>(shape.config.vocab));
  const WorkPiece logits = pieces.floats(cuda::slot_floats(shape.head, kMaxRows));
  for (int group = 0; group < groups; ++group) {
    // The first takes scores and the draws of prompts, too, 16 rows at a time.
    const int here = group == 0 ? kMaxRows : std::min(kMaxRows, limits.rows - group * kMaxRows);
    lay_out_group(shape, kinds, group, cuda::padded_rows(here), logits, pieces, out);
  }
  out.prompt = lay_out_prompt(shape, kinds, limits, pieces);
  out.bytes = pieces.bytes();
  return out;
}

RunnerFootprint cuda_runner_footprint(const CudaModelShape& shape, const RunnerLimits& limits) {
  const ModelConfig& c = shape.config;
  const CudaKvShape kv{c.layers, c.kv_heads, c.head_dim, limits.page_tokens, shape.fp8_cache};
  const CudaPassLimits pass = cuda_pass_limits(c, limits);
  RunnerFootprint out;
  out.kv = allocated(static_cast<size_t>(limits.pages) * kv.page_bytes());
  // Beside the passes' own: cosines and sines of every position.
  const auto angles = static_cast<size_t>(pass.table_stride * limits.page_tokens * (c.head_dim / 2)) * sizeof(float);
  out.work = allocated(lay_out_cuda_work(shape, pass).bytes) + 2 * allocated(angles);
  return out;
}

uint64_t cuda_weight_bytes(const CudaModelShape& shape, int multiprocessors) {
  const ModelConfig& c = shape.config;
  const auto hidden = static_cast<size_t>(c.hidden);
  const auto linear = [&](const LinearSize& size) { return allocated(cuda::linear_bytes(size, multiprocessors)); };
  uint64_t bytes =
      allocated(static_cast<size_t>(c.vocab) * hidden * (shape.embedding_bf16 ? 2 : 4)) + linear(shape.head);
  for (const CudaModelShape::Layer& l : shape.layers)
    bytes += linear(l.qkv) + linear(l.o) + linear(l.gate_up) + linear(l.down) +
             2 * (hidden + static_cast<size_t>(c.head_dim)) * sizeof(float);
  return bytes + hidden * sizeof(float);
}

Result<uint64_t> cuda_memory_beside_weights(const CudaMemory& memory, const CudaModelShape& shape) {
  uint64_t staging = cuda::linear_staging_bytes(shape.head);
  for (const CudaModelShape::Layer& l : shape.layers)
    for (const LinearSize& size : {l.qkv, l.o, l.gate_up, l.down})
      staging = std::max<uint64_t>(staging, cuda::linear_staging_bytes(size));
  const uint64_t weights = cuda_weight_bytes(shape, memory.multiprocessors);
  // The largest linear as it comes is gone before cache and work space are there.
  if (memory.free_bytes <= weights + kOtherBytes || memory.free_bytes < weights + staging)
    return resource_exhausted("the model's weights take " + format_bytes(weights) + ", and " +
                              format_bytes(std::max(kOtherBytes, staging)) +
                              " beside them is needed; the CUDA device " + memory.device + " has " +
                              format_bytes(memory.free_bytes) + " free of " + format_bytes(memory.memory_bytes) +
                              "; choose a smaller model or a plan of fewer bits, or run on the CPU (--device cpu)");
  return memory.free_bytes - weights - kOtherBytes;
}

}  // namespace halfbyte
