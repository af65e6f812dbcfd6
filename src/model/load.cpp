#include "model/load.h"

#include <array>
#include <atomic>
#include <cstring>
#include <functional>

#include "base/memory_info.h"
#include "base/size_text.h"
#include "formats/bf16.h"
#include "formats/int_group.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte {
namespace {

class Loader {
 public:
  Loader(const ModelSource& source, const LoadPlan& plan, const LoadOptions& options, ThreadPool& pool)
      : tensors_(*source.tensors), plan_(plan), options_(options), pool_(pool) {}

  Result<ModelWeights> run() {
    ModelWeights out;
    HB_TRY(advance(0));
    allocate_packed();
    HB_TRY(load_embedding(out.embedding));
    out.layers.resize(plan_.layers.size());
    for (size_t i = 0; i < plan_.layers.size(); ++i) HB_TRY(load_layer(plan_.layers[i], out.layers[i]));
    HB_ASSIGN(out.final_norm, vector(plan_.final_norm));
    HB_TRY(load_linears(std::array{Job{&plan_.head, &out.head}}));
    out.head.name = "lm_head";
    return out;
  }

 private:
  struct Job {
    const LinearTask* task;
    PackedLinear* out;
  };

  // One piece of memory for all linears: a small model's, too, then lie on large pages, and nobody zeroes them alone.
  void allocate_packed() {
    size_t bytes = Buffer::part_bytes(plan_.head.packed_bytes);
    for (const LayerTask& layer : plan_.layers)
      for (const LinearTask* t : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
        bytes += Buffer::part_bytes(t->packed_bytes);
    packed_ = Buffer::allocate(bytes);
  }

  Status advance(uint64_t bytes) {
    done_ += bytes;
    if (options_.progress && !options_.progress(done_, plan_.source_bytes)) return cancelled("loading was stopped");
    return {};
  }

  Result<std::vector<float>> vector(const TensorInfo* tensor) {
    std::vector<float> out;
    if (tensor == nullptr) return out;
    out.resize(static_cast<size_t>(tensor->shape[0]));
    HB_TRY(read_vector(*tensor, out));
    HB_TRY(advance(tensor->bytes));
    return out;
  }

  Result<float> cache_scale(const TensorInfo* tensor) {
    if (tensor == nullptr) return 1.0f;
    return load_scale(tensors_, *tensor);
  }

  Status read_vector(const TensorInfo& tensor, std::span<float> out) {
    HB_TRY(tensors_.read_rows(tensor, 0, 1, out));
    return check_finite(tensor, out);
  }

  Status check_finite(const TensorInfo& tensor, std::span<const float> out) const {
    for (size_t i = 0; i < out.size(); ++i)
      if (!is_finite(out[i]))
        return tensors_.error(tensor, "element " + std::to_string(i) +
                                          " is NaN or infinite, expected finite numbers; the checkpoint is damaged");
    return {};
  }

  Status load_embedding(EmbeddingWeights& out) {
    out.kind = plan_.plan.embedding;
    out.vocab = plan_.config.vocab;
    out.hidden = plan_.config.hidden;
    const WeightSource rows = plain_source(*plan_.embedding, out.vocab, out.hidden);
    if (plan_.embedding_as_stored) {
      HB_TRY(weight_amax(rows, pool_).status());  // refuses what is not finite
      HB_ASSIGN(const auto bytes, tensors_.bytes(*plan_.embedding));
      out.stored = plan_.embedding->dtype;
      out.rows = Buffer::allocate(bytes.size());
      copy(bytes, out.rows.mutable_bytes());
    } else {
      QuantizeOptions options;
      options.format = out.kind == WeightKind::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
      out.stored = out.kind == WeightKind::kF32 ? DType::kF32 : DType::kBF16;
      HB_ASSIGN(QuantLinear values, quantize_weight(rows, options, pool_));
      out.rows = std::move(values.codes);
    }
    return advance(plan_.embedding->bytes);
  }

  void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    const auto body = [&](int64_t begin, int64_t end, int) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    };
    pool_.parallel_for(static_cast<int64_t>(from.size()), /*grain=*/4096, body);
  }

  Status load_layer(const LayerTask& task, LayerWeights& out) {
    HB_ASSIGN(out.attention_norm, vector(task.attention_norm));
    HB_ASSIGN(out.q_norm, vector(task.q_norm));
    HB_ASSIGN(out.k_norm, vector(task.k_norm));
    HB_ASSIGN(out.key_scale, cache_scale(task.key_scale));
    HB_ASSIGN(out.value_scale, cache_scale(task.value_scale));
    HB_TRY(load_linears(std::array{Job{&task.q, &out.q}, Job{&task.k, &out.k}, Job{&task.v, &out.v}}));
    HB_TRY(load_linears(std::array{Job{&task.o, &out.o}}));
    HB_ASSIGN(out.mlp_norm, vector(task.mlp_norm));
    HB_TRY(load_linears(std::array{Job{&task.gate, &out.gate}, Job{&task.up, &out.up}}));
    return load_linears(std::array{Job{&task.down, &out.down}});
  }

  // Linears that share their input: those rounded to NVFP4 share one tensor scale (docs/numerics.md 2).
  Status load_linears(std::span<const Job> jobs) {
    float amax = 0.0f;
    for (const Job& job : jobs) {
      if (job.task->stored_as_planned || job.task->kernel->weights != WeightFormat::kNVFP4) continue;
      HB_ASSIGN(const LinearRows stored, open_linear_rows(tensors_, job.task->facts, job.task->module, &pool_));
      HB_ASSIGN(const float own, weight_amax(stored.rows, pool_));
      amax = std::max(amax, own);
    }
    for (const Job& job : jobs) {
      HB_TRY(load_linear(*job.task, amax, *job.out));
      uint64_t bytes = 0;
      for (const TensorInfo* t : job.task->facts.stored) bytes += t->bytes;
      HB_TRY(advance(bytes));
    }
    return {};
  }

  WeightSource plain_source(const TensorInfo& tensor, int64_t n, int64_t k) const {
    return {tensors_.label(tensor), n, k,
            [this, &tensor](int64_t first, int64_t rows, std::span<float> out) {
              return tensors_.read_rows(tensor, first, rows, out);
            },
            [this, &tensor](int64_t first, int64_t rows) { return largest_of_rows(tensors_, tensor, first, rows); }};
  }

  // BF16 that is packed as stored passes no rounding that would notice.
  Status check_bf16_finite(const LinearTask& task, const QuantLinear& weight) {
    std::atomic<bool> damaged{false};
    const auto body = [&](int64_t begin, int64_t end, int) {
      const uint16_t* values = weight.codes.as<uint16_t>() + begin * weight.k;
      bool found = false;
      for (int64_t i = 0; i < (end - begin) * weight.k; ++i) found |= (values[i] & 0x7F80u) == 0x7F80u;
      if (found) damaged = true;
    };
    pool_.parallel_for(weight.n, 1, body);
    if (!damaged) return {};
    return weight_amax(plain_source(*task.facts.weight, weight.n, weight.k), pool_).status();  // says where
  }

  Status load_linear(const LinearTask& task, float amax, PackedLinear& out) {
    constexpr std::string_view kPrefix = "model.";
    out.name = task.module.starts_with(kPrefix) ? task.module.substr(kPrefix.size()) : task.module;
    out.plan = task.plan;
    out.kernel = task.kernel;
    out.prompt_kernel = task.prompt_kernel;
    out.n = task.facts.n;
    out.k = task.facts.k;
    out.packed = packed_.take_part(task.packed_bytes, packed_taken_);
    if (task.stored_as_planned) {
      HB_ASSIGN(const QuantLinear weight, load_quant_linear(tensors_, task.facts, task.module, &pool_));
      if (weight.format != task.kernel->weights)
        return internal_error(task.module + ": loaded in another format than its kernel reads");
      if (weight.format == WeightFormat::kBF16) HB_TRY(check_bf16_finite(task, weight));
      HB_TRY(take_small_parts(task, weight, out));
      out.tensor_scale = weight.tensor_scale;
      const auto pack = [&](int64_t begin, int64_t end, int) {
        out.kernel->pack(weight, begin, end, out.packed.mutable_as<std::byte>());
      };
      pool_.parallel_for(out.n, out.kernel->row_tile, pack);
    } else {
      HB_ASSIGN(LinearRows stored, open_linear_rows(tensors_, task.facts, task.module, &pool_));
      HB_TRY(take_small_parts(task, stored.beside, out));
      if (task.integer_bits > 0) {
        stored.rows.read = integer_reader(stored.rows, task.integer_bits);
        stored.rows.largest = nullptr;
      }
      HB_ASSIGN(out.tensor_scale, round_and_pack(stored.rows, amax, out));
    }
    return {};
  }

  static RowReader integer_reader(const WeightSource& rows, int bits) {
    return [read = rows.read, k = rows.k, bits](int64_t first, int64_t count, std::span<float> out) -> Status {
      HB_TRY(read(first, count, out));
      for (int64_t r = 0; r < count; ++r)
        round_int_groups(out.subspan(static_cast<size_t>(r * k), static_cast<size_t>(k)), bits);
      return {};
    };
  }

  // Rounds a run of rows and packs it while it is in the caches; returns the tensor scale.
  Result<float> round_and_pack(const WeightSource& rows, float amax, PackedLinear& out) {
    QuantizeOptions options;
    options.format = out.kernel->weights;
    options.amax = amax;
    options.finite = options.format == WeightFormat::kNVFP4;  // load_linears took its amax
    const auto pack = [&](const QuantLinear& weight, int64_t begin, int64_t end) {
      out.kernel->pack(weight, begin, end, out.packed.mutable_as<std::byte>());
    };
    return quantize_weight_runs(rows, options, out.kernel->row_tile, pool_, std::ref(pack));
  }

  // What comes from the checkpoint beside the weight itself.
  Status take_small_parts(const LinearTask& task, const QuantLinear& stored, PackedLinear& out) {
    if (task.facts.bias != nullptr) HB_TRY(check_finite(*task.facts.bias, stored.bias));
    out.activation_scale = activation_scale(task, stored);
    out.bias = stored.bias;
    if (!stored.pre_scale.empty()) out.pre_scale = shared_pre_scale(stored.pre_scale);
    return {};
  }

  // Linears that share an input come one after the other, and their pre-scales are mostly equal.
  std::shared_ptr<const std::vector<float>> shared_pre_scale(const std::vector<float>& values) {
    if (!last_pre_scale_ || *last_pre_scale_ != values)
      last_pre_scale_ = std::make_shared<const std::vector<float>>(values);
    return last_pre_scale_;
  }

  static float activation_scale(const LinearTask& task, const QuantLinear& weight) {
    if (task.plan.activation_scale != ActivationScale::kStatic || !weight.input_scale) return 0.0f;
    // The checkpoint's scale is amax / 2688, for FP4. FP8 reaches 448, so the same amax needs 6 times as much.
    if (task.kernel->activations == ActivationMode::kA8) return *weight.input_scale * 6.0f;
    return *weight.input_scale;
  }

  const TensorSource& tensors_;
  const LoadPlan& plan_;
  const LoadOptions& options_;
  ThreadPool& pool_;
  uint64_t done_ = 0;
  Buffer packed_;  // of all linears, taken from the front
  size_t packed_taken_ = 0;
  std::shared_ptr<const std::vector<float>> last_pre_scale_;
};

}  // namespace

Status check_memory(uint64_t needed, const std::string& what, const std::string& advice) {
  const uint64_t available = available_memory_bytes();
  if (needed <= available) return {};
  return resource_exhausted(what + " needs " + format_bytes(needed) + " of memory, " + format_bytes(available) +
                            " are available; " + advice);
}

Result<ModelWeights> load_weights(const ModelSource& source, const LoadPlan& plan, const LoadOptions& options,
                                  ThreadPool& pool) {
  return Loader(source, plan, options, pool).run();
}

}  // namespace halfbyte
