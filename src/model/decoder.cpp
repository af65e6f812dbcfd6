#include "model/decoder.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "model/model_impl.h"

namespace halfbyte {
namespace {

// Packed weight bytes that stay in a core's second-level cache while every group of rows passes over them.
constexpr int64_t kTileBytes = 128 << 10;
// Linears that share an input: q, k and v.
constexpr size_t kMostInputs = 3;

// FP32 work memory, on large pages where it is large: a prompt kernel writes a few values of each of hundreds of rows
// at a time, and with small pages every row costs a miss of the TLB.
class Floats {
 public:
  explicit Floats(size_t count) : buffer_(Buffer::allocate(count * sizeof(float))) {}
  float* data() { return buffer_.mutable_as<float>(); }

 private:
  Buffer buffer_;
};

// Buffers of a decoder, in elements.
struct WorkSizes {
  size_t hidden, heads, kv, mlp, angles;  // floats
  size_t rounded;                         // bytes
  size_t input;                           // floats, the widest row of a linear's input
  size_t scratch;                         // floats, of one thread
  size_t jobs, partials;                  // of attention: calls, and results of single cuts
};

WorkSizes work_sizes(const ModelFacts& model, const DecoderLimits& limits) {
  const ModelConfig& c = model.config;
  const auto rows = static_cast<size_t>(limits.max_rows);
  WorkSizes s{};
  s.hidden = rows * static_cast<size_t>(c.hidden);
  s.heads = rows * static_cast<size_t>(c.q_width());
  s.kv = rows * static_cast<size_t>(c.kv_width());
  s.mlp = rows * static_cast<size_t>(c.intermediate);
  s.angles = rows * static_cast<size_t>(c.head_dim / 2);
  s.rounded = rows * model.rounded_row_bytes;
  s.input = static_cast<size_t>(std::max({c.hidden, c.q_width(), c.intermediate}));
  const size_t rows_of_input = s.input + static_cast<size_t>(model.pre_scaled_width);
  const auto attention = static_cast<size_t>(attention_scratch_floats(c.group(), c.head_dim));
  s.scratch = (std::max(attention, rows_of_input) + 15) / 16 * 16;  // no cache line is of two threads
  // Every sequence may end in a cut that it only begins. A call takes a cut, or one row at least.
  const auto cuts = static_cast<size_t>(limits.cache_tokens / kAttentionCut + limits.max_sequences);
  s.partials = cuts * static_cast<size_t>(c.kv_heads);
  s.jobs = s.partials + rows * static_cast<size_t>(c.kv_heads);
  return s;
}

}  // namespace

struct Decoder::Workspace {
  struct Row {
    int64_t sequence;
    int64_t position;
    int32_t token;
    int32_t page;  // where its keys and values go
    int64_t slot;  // position within the page
  };

  // One call of an attention kernel: rows of one sequence and KV head, all their cuts or, for a single row, one.
  struct AttentionJob {
    int64_t first_row, count, head;
    int64_t cut;      // -1: all
    int64_t partial;  // where a single cut's result goes
    RowRole role;
  };
  // The cuts of a row that was split, to be merged.
  struct AttentionMerge {
    int64_t row, head, partial, cuts;
    RowRole role;
  };

  Workspace(const WorkSizes& s, int threads, const DecoderLimits& limits, int64_t cache_pages, int64_t partial_size)
      : x(s.hidden),
        h(s.hidden),
        q(s.heads),
        k(s.kv),
        v(s.kv),
        attended(s.heads),
        gate(s.mlp),
        up(s.mlp),
        cos(s.angles),
        sin(s.angles),
        rounded(Buffer::allocate(s.rounded)),
        input_floats(s.input),
        scratch(s.scratch * static_cast<size_t>(threads)),
        scratch_floats(s.scratch),
        partials(s.partials * static_cast<size_t>(partial_size)),
        partial_floats(partial_size),
        max_partials(static_cast<int64_t>(s.partials)) {
    inputs.reserve(kMostInputs);
    jobs.reserve(s.jobs);
    merges.reserve(s.jobs);
    rows.reserve(static_cast<size_t>(limits.max_rows));
    views.reserve(static_cast<size_t>(limits.max_sequences));
    pages.reserve(static_cast<size_t>(cache_pages));
    page_pointers.reserve(static_cast<size_t>(cache_pages));
  }

  std::vector<Row> rows;             // the batch, row by row
  Floats x;                          // [rows, hidden]: residual stream, without h
  Floats h;                          // [rows, hidden]: the last sublayer's result
  Floats q;                          // [rows, heads, head_dim]
  Floats k, v;                       // [rows, kv_heads, head_dim]
  Floats attended;                   // [rows, heads, head_dim]
  Floats gate, up;                   // [rows, intermediate]
  std::vector<float> cos, sin;       // [rows, head_dim / 2]
  Buffer rounded;                    // [rows] of an input as its linears' kernels read them
  std::vector<RoundedInput> inputs;  // where in `rounded`
  size_t input_floats;               // of a row of any input
  Floats scratch;                    // [threads, scratch_floats]: of attention, or two rows of an input
  size_t scratch_floats;
  std::vector<float> partials;  // [max_partials, partial_floats]
  int64_t partial_floats, max_partials;
  std::vector<AttentionJob> jobs;  // of the batch, the same for every layer
  std::vector<AttentionMerge> merges;
  std::vector<int32_t> pages;                   // of all sequences of the batch, one after the other
  std::vector<const std::byte*> page_pointers;  // the same for one layer
  std::vector<KvView> views;                    // [sequences], into page_pointers
};

Decoder::Decoder(const Model& model, ThreadPool& pool, KvCache& cache, const DecoderLimits& limits)
    : model_(model.impl()),
      kernels_(vector_kernels(model.impl().isa)),
      pool_(pool),
      cache_(cache),
      limits_(limits),
      work_(std::make_unique<Workspace>(work_sizes(model_, limits), pool.threads(), limits, cache.pages(),
                                        attention_partial_floats(model_.config.group(), model_.config.head_dim))) {}

Decoder::~Decoder() = default;

uint64_t Decoder::work_bytes(const ModelFacts& model, const DecoderLimits& limits, int threads) {
  const WorkSizes s = work_sizes(model, limits);
  const auto partial = static_cast<size_t>(attention_partial_floats(model.config.group(), model.config.head_dim));
  const size_t floats = 2 * (s.hidden + s.heads + s.kv + s.mlp + s.angles) + s.scratch * static_cast<size_t>(threads) +
                        s.partials * partial;
  return floats * sizeof(float) + s.rounded + static_cast<size_t>(limits.max_rows) * sizeof(Workspace::Row) +
         s.jobs * (sizeof(Workspace::AttentionJob) + sizeof(Workspace::AttentionMerge));
}

void Decoder::forward(std::span<const SequenceRows> batch, const LinearTap* tap) {
  tap_ = tap;
  place(batch);
  for (size_t layer = 0; layer < model_.weights.layers.size(); ++layer)
    run_layer(model_.weights.layers[layer], static_cast<int64_t>(layer));
}

// One decoder layer, in the order of the papers. Which arithmetic a linear uses is in its PackedLinear. What lies between
// the linears is done a row at a time, when the next linear rounds its input. x is without the last sublayer's result, h,
// until the next norm.
void Decoder::run_layer(const LayerWeights& w, int64_t layer) {
  Workspace& s = *work_;
  const ModelConfig& c = model_.config;
  const auto attention_input = [&](int64_t r, float* out) {
    if (layer > 0) add_to_residual(r);  // what the layer before gave
    return norm(s.x.data() + r * c.hidden, w.attention_norm, out);
  };
  const auto attended = [&](int64_t r, float*) { return s.attended.data() + r * c.q_width(); };
  const auto mlp_input = [&](int64_t r, float* out) {
    add_to_residual(r);
    return norm(s.x.data() + r * c.hidden, w.mlp_norm, out);
  };
  const auto activated = [&](int64_t r, float* out) {
    kernels_.silu_mul(s.gate.data() + r * c.intermediate, s.up.data() + r * c.intermediate, c.intermediate, out);
    return out;
  };

  linear(Stage::kNorm, batch_, attention_input, {{w.q, s.q.data()}, {w.k, s.k.data()}, {w.v, s.v.data()}});
  rotate_and_append(w, layer);
  attention(w, layer);
  linear(Stage::kRounding, batch_, attended, {{w.o, s.h.data()}});
  linear(Stage::kNorm, batch_, mlp_input, {{w.gate, s.gate.data()}, {w.up, s.up.data()}});
  linear(Stage::kActivation, batch_, activated, {{w.down, s.h.data()}});
}

void Decoder::logits(std::span<const int64_t> rows, std::span<float> out, const LinearTap* tap) {
  assert(static_cast<int64_t>(rows.size()) <= limits_.max_rows);
  const StageTimer timer(clock_, Stage::kHead);
  tap_ = tap;
  Workspace& s = *work_;
  const int64_t hidden = model_.config.hidden;
  // x stays as it is: a row may be asked for again.
  const auto input = [&](int64_t i, float* sum) {
    const float* x = s.x.data() + rows[static_cast<size_t>(i)] * hidden;
    const float* h = s.h.data() + rows[static_cast<size_t>(i)] * hidden;
    for (int64_t j = 0; j < hidden; ++j) sum[j] = x[j] + h[j];
    return norm(sum, model_.weights.final_norm, sum);
  };
  // The rows that give logits are few and the head is wide: decode rows, whatever they were in the layers.
  const RowCounts counts{.decode = static_cast<int64_t>(rows.size())};
  linear(Stage::kHead, counts, input, {{model_.weights.head, out.data()}});
}

// Lays out the batch row by row: embeddings, angles, and where keys and values go.
void Decoder::place(std::span<const SequenceRows> batch) {
  const StageTimer timer(clock_, Stage::kEmbedding);
  Workspace& s = *work_;
  s.rows.clear();
  s.pages.clear();
  s.views.clear();
  batch_ = {};
  const int64_t page_tokens = cache_.shape().layout.page_tokens;
  for (const SequenceRows& sequence : batch) {
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    if (sequence.role == RowRole::kDecode) {
      assert(batch_.prompt == 0 && "decode rows come first");
      batch_.decode += count;
    } else {
      batch_.prompt += count;
    }
    for (size_t i = 0; i < sequence.tokens.size(); ++i) {
      const int64_t position = sequence.position + static_cast<int64_t>(i);
      s.rows.push_back({static_cast<int64_t>(s.views.size()), position, sequence.tokens[i],
                        sequence.pages[static_cast<size_t>(position / page_tokens)], position % page_tokens});
    }
    s.pages.insert(s.pages.end(), sequence.pages.begin(), sequence.pages.end());
    s.views.push_back({nullptr, cache_.shape().layout, model_.config.kv_heads});
  }
  assert(static_cast<int64_t>(s.rows.size()) <= limits_.max_rows);
  // The pointers' places are fixed now; attention() fills them for each layer.
  s.page_pointers.resize(s.pages.size());
  size_t first = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    s.views[i].pages = s.page_pointers.data() + first;
    first += batch[i].pages.size();
  }

  plan_attention(batch);

  const int64_t hidden = model_.config.hidden, half = model_.config.head_dim / 2;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const Workspace::Row& row = s.rows[static_cast<size_t>(r)];
      model_.weights.embedding.read(row.token, s.x.data() + r * hidden);
      model_.rope.angles(row.position, {s.cos.data() + r * half, static_cast<size_t>(half)},
                         {s.sin.data() + r * half, static_cast<size_t>(half)});
    }
  };
  pool_.parallel_for(static_cast<int64_t>(s.rows.size()), 1, body);
}

// Of one row: x += h.
void Decoder::add_to_residual(int64_t row) {
  const int64_t hidden = model_.config.hidden;
  float* x = work_->x.data() + row * hidden;
  const float* h = work_->h.data() + row * hidden;
  for (int64_t i = 0; i < hidden; ++i) x[i] += h[i];
}

// Of one row; `out` may be x.
const float* Decoder::norm(const float* x, const std::vector<float>& weight, float* out) const {
  kernels_.rmsnorm(x, weight.data(), model_.config.rms_norm_eps, 1, static_cast<int64_t>(weight.size()), out);
  return out;
}

void Decoder::linear(Stage stage, const RowCounts& rows, const RowSource& input, std::initializer_list<Output> list) {
  const std::span<const Output> outputs(list.begin(), list.size());
  std::vector<float> shown;  // [rows, k], only for a tap
  const auto shown_row = [&](int64_t r, float*) { return shown.data() + r * outputs[0].linear.k; };
  if (tap_ != nullptr) shown = show_to_tap(rows.all(), input, outputs);
  {
    const StageTimer timer(clock_, stage);
    place_rounded(rows, outputs);
    round_input(rows, tap_ != nullptr ? RowSource(shown_row) : input);
  }
  const StageTimer timer(clock_, Stage::kLinear);
  for (const RoundedInput& in : work_->inputs) {
    const PackedLinear& w = in.outputs[0].linear;
    if (w.kernel == w.prompt_kernel) {  // the role makes no difference: one pass over the weights for all rows
      multiply({RowRole::kDecode, 0, rows.all()}, in.outputs, in.decode_rows);
    } else {
      if (rows.decode > 0) multiply({RowRole::kDecode, 0, rows.decode}, in.outputs, in.decode_rows);
      if (rows.prompt > 0) multiply({RowRole::kPrompt, rows.decode, rows.prompt}, in.outputs, in.prompt_rows);
    }
  }
}

// A tap sees all rows of an input at once, and then they are read from there.
std::vector<float> Decoder::show_to_tap(int64_t rows, const RowSource& input, std::span<const Output> outputs) {
  const int64_t k = outputs[0].linear.k;
  std::vector<float> x(static_cast<size_t>(rows * k));
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = input(r, x.data() + r * k);
      if (row != x.data() + r * k) std::copy_n(row, k, x.data() + r * k);
    }
  };
  pool_.parallel_for(rows, 1, body);
  for (const Output& o : outputs) (*tap_)(o.linear.name, x, rows, k);
  return x;
}

// Divides the memory of rounded rows. Neighbours that round alike share them, and later one parallel loop.
void Decoder::place_rounded(const RowCounts& rows, std::span<const Output> outputs) {
  Workspace& s = *work_;
  s.inputs.clear();
  std::byte* at = s.rounded.mutable_as<std::byte>();
  for (size_t first = 0, last; first < outputs.size(); first = last) {
    const PackedLinear& w = outputs[first].linear;
    last = first + 1;
    while (last < outputs.size() && outputs[last].linear.same_input_as(w)) ++last;
    std::byte* prompt_rows = at + static_cast<size_t>(rows.decode) * w.kernel->activation_bytes(w.k);
    s.inputs.push_back({outputs.subspan(first, last - first), at, prompt_rows});
    at = prompt_rows + static_cast<size_t>(rows.prompt) * w.prompt_kernel->activation_bytes(w.k);
  }
  assert(at <= s.rounded.as<std::byte>() + s.rounded.size());
}

// Each row is made once and rounded for all its linears.
void Decoder::round_input(const RowCounts& rows, const RowSource& input) {
  Workspace& s = *work_;
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    float* scratch = s.scratch.data() + static_cast<size_t>(thread) * s.scratch_floats;
    for (int64_t r = begin; r < end; ++r) {
      const float* row = input(r, scratch);
      for (const RoundedInput& in : s.inputs) {
        if (r < rows.decode) {
          round_row(in.outputs[0].linear, RowRole::kDecode, row, scratch + s.input_floats, in.decode_rows, r);
        } else {
          round_row(in.outputs[0].linear, RowRole::kPrompt, row, scratch + s.input_floats, in.prompt_rows,
                    r - rows.decode);
        }
      }
    }
  };
  pool_.parallel_for(rows.all(), 1, body);
}

// `row` as row `index` of `rounded`; `scaled` [k]: scratch.
void Decoder::round_row(const PackedLinear& w, RowRole role, const float* row, float* scaled, std::byte* rounded,
                        int64_t index) {
  const LinearKernel& kernel = w.kernel_for(role);
  if (w.pre_scale) {
    const float* pre_scale = w.pre_scale->data();
    for (int64_t i = 0; i < w.k; ++i) scaled[i] = row[i] * pre_scale[i];
    row = scaled;
  }
  kernel.quantize(row, 1, w.k, w.activation_scale, rounded + static_cast<size_t>(index) * kernel.activation_bytes(w.k));
}

// The rounded input times each weight, split by output features over all of them at once.
void Decoder::multiply(const Rows& rows, std::span<const Output> outputs, const std::byte* input) {
  const int64_t tile = outputs[0].linear.kernel_for(rows.role).row_tile;
  const auto tiles = [tile](const Output& o) { return (o.linear.n + tile - 1) / tile; };
  int64_t total = 0;
  for (const Output& o : outputs) total += tiles(o);
  const auto body = [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // tile at which an output begins
    for (const Output& o : outputs) {
      const int64_t from = std::max(begin, first), to = std::min(end, first + tiles(o));
      if (from < to) multiply_range(o, input, rows, (from - first) * tile, std::min(o.linear.n, (to - first) * tile));
      first += tiles(o);
    }
  };
  pool_.parallel_for(total, 1, body);
}

// Output features [begin, end) of the rows. More rows than a kernel takes at once go over the weights a cache-sized
// part at a time.
void Decoder::multiply_range(const Output& output, const std::byte* input, const Rows& rows, int64_t begin,
                             int64_t end) {
  const PackedLinear& w = output.linear;
  const LinearKernel& kernel = w.kernel_for(rows.role);
  const auto row_bytes = static_cast<int64_t>(kernel.activation_bytes(w.k));
  const int64_t feature_bytes = std::max<int64_t>(1, static_cast<int64_t>(w.packed.size()) / w.n);
  const int64_t part = rows.count <= kernel.max_rows
                           ? end - begin
                           : std::max<int64_t>(1, kTileBytes / feature_bytes / kernel.row_tile) * kernel.row_tile;
  float* y = output.y + rows.first * w.n;
  LinearCall call{.packed = w.packed.as<std::byte>(),
                  .tensor_scale = w.tensor_scale,
                  .bias = w.bias.empty() ? nullptr : w.bias.data(),
                  .n = w.n,
                  .k = w.k,
                  .ldy = w.n};
  for (call.n_begin = begin; call.n_begin < end; call.n_begin = call.n_end) {
    call.n_end = std::min(end, call.n_begin + part);
    for (int64_t m = 0; m < rows.count; m += kernel.max_rows) {
      call.activations = input + m * row_bytes;
      call.rows = std::min(kernel.max_rows, rows.count - m);
      call.y = y + m * w.n;
      kernel.run(call);
    }
  }
}

void Decoder::rotate_and_append(const LayerWeights& w, int64_t layer) {
  const StageTimer timer(clock_, Stage::kRotation);
  Workspace& s = *work_;
  const ModelConfig& c = model_.config;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const Workspace::Row& row = s.rows[static_cast<size_t>(r)];
      float* q = s.q.data() + r * c.q_width();
      float* k = s.k.data() + r * c.kv_width();
      const float* v = s.v.data() + r * c.kv_width();
      const float* cos = s.cos.data() + r * (c.head_dim / 2);
      const float* sin = s.sin.data() + r * (c.head_dim / 2);
      if (c.qk_norm) {
        kernels_.rmsnorm(q, w.q_norm.data(), c.rms_norm_eps, c.heads, c.head_dim, q);
        kernels_.rmsnorm(k, w.k_norm.data(), c.rms_norm_eps, c.kv_heads, c.head_dim, k);
      }
      kernels_.rope(q, cos, sin, c.heads, c.head_dim);
      kernels_.rope(k, cos, sin, c.kv_heads, c.head_dim);
      for (int64_t head = 0; head < c.kv_heads; ++head) {
        const KvCache::Parts parts = cache_.parts(row.page, layer, head);
        kernels_.store_kv(cache_.shape().layout, row.slot, k + head * c.head_dim, w.key_scale, v + head * c.head_dim,
                          w.value_scale, parts.keys, parts.values);
      }
    }
  };
  pool_.parallel_for(static_cast<int64_t>(s.rows.size()), 1, body);
}

// Which calls attention is made of. A single row (a generated token) is split by cuts, so that few KV heads keep all
// threads busy; rows of a prompt go together, so that they share reads. What is computed does not depend on it.
void Decoder::plan_attention(std::span<const SequenceRows> batch) {
  Workspace& s = *work_;
  const int64_t heads = model_.config.kv_heads;
  s.jobs.clear();
  s.merges.clear();
  int64_t row = 0, partials = 0;
  for (const SequenceRows& sequence : batch) {
    const auto rows = static_cast<int64_t>(sequence.tokens.size());
    const int64_t most = attention_of(sequence.role).max_rows(model_.config.group());
    const int64_t cuts = sequence.position / kAttentionCut + 1;
    const bool split = rows == 1 && cuts > 1 && partials + cuts * heads <= s.max_partials;
    // Heads outermost: later rows see more positions, and so every thread gets early and late ones.
    for (int64_t head = 0; head < heads; ++head) {
      if (split) {
        s.merges.push_back({row, head, partials, cuts, sequence.role});
        for (int64_t cut = 0; cut < cuts; ++cut) s.jobs.push_back({row, 1, head, cut, partials++, sequence.role});
        continue;
      }
      for (int64_t i = 0; i < rows; i += most)
        s.jobs.push_back({row + i, std::min(most, rows - i), head, -1, 0, sequence.role});
    }
    row += rows;
  }
}

void Decoder::attention(const LayerWeights& w, int64_t layer) {
  const StageTimer timer(clock_, Stage::kAttention);
  Workspace& s = *work_;
  const ModelConfig& c = model_.config;
  for (size_t i = 0; i < s.pages.size(); ++i) s.page_pointers[i] = cache_.layer_page(s.pages[i], layer);
  for (KvView& view : s.views) {
    view.key_scale = w.key_scale;
    view.value_scale = w.value_scale;
  }
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  const auto partial = [&](int64_t index) { return s.partials.data() + index * s.partial_floats; };
  const auto attend = [&](int64_t begin, int64_t end, int thread) {
    float* scratch = s.scratch.data() + static_cast<size_t>(thread) * s.scratch_floats;
    for (int64_t j = begin; j < end; ++j) {
      const Workspace::AttentionJob& job = s.jobs[static_cast<size_t>(j)];
      const Workspace::Row& row = s.rows[static_cast<size_t>(job.first_row)];
      const int64_t at = job.first_row * c.q_width() + job.head * c.group() * c.head_dim;
      const KvView& view = s.views[static_cast<size_t>(row.sequence)];
      const AttentionRows rows{
          s.q.data() + at, s.attended.data() + at, c.q_width(), row.position, job.count, job.head, c.group(), scale};
      if (job.cut < 0) {
        attention_of(job.role).rows(view, rows, scratch);
      } else {
        attention_of(job.role).cut(view, rows, job.cut, scratch, partial(job.partial));
      }
    }
  };
  pool_.parallel_for(static_cast<int64_t>(s.jobs.size()), 1, attend);

  const auto merge = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Workspace::AttentionMerge& m = s.merges[static_cast<size_t>(i)];
      attention_of(m.role).merge(partial(m.partial), m.cuts, c.group(), c.head_dim,
                                 s.attended.data() + m.row * c.q_width() + m.head * c.group() * c.head_dim);
    }
  };
  pool_.parallel_for(static_cast<int64_t>(s.merges.size()), 1, merge);
}

}  // namespace halfbyte
