#include "engine/cuda_weights.h"

#include <algorithm>
#include <cstring>

#include "engine/cuda_devices.h"
#include "engine/cuda_supported.h"
#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "model/load_plan.h"

namespace halfbyte {
namespace {

using cuda::DeviceBuffer;
using cuda::RowMode;

Result<DeviceBuffer> upload_floats(const std::vector<float>& values) {
  HB_ASSIGN(DeviceBuffer out, DeviceBuffer::make(values.size() * sizeof(float)));
  if (!values.empty()) HB_TRY(out.upload(values.data(), values.size() * sizeof(float)));
  return out;
}

Result<RowMode> row_mode(WeightFormat weights, ActivationMode activations, const std::string& name) {
  const bool mx = weights == WeightFormat::kMXFP4;
  if (weights == WeightFormat::kBF16 && activations == ActivationMode::kA16) return RowMode::kBf16Rows;
  if (weights == WeightFormat::kNVFP4 || mx) {
    switch (activations) {
      case ActivationMode::kA16: return RowMode::kA16;
      case ActivationMode::kA8: return mx ? RowMode::kMxA8 : RowMode::kA8;
      case ActivationMode::kA4: return mx ? RowMode::kMxA4 : RowMode::kA4;
      case ActivationMode::kF32: break;
    }
  }
  return internal_error(name + ": formats that check_cuda_formats lets pass and no kernel has");
}

Result<CudaLinear> upload_linear(std::initializer_list<const PackedLinear*> parts, int multiprocessors) {
  const PackedLinear& first = **parts.begin();
  std::vector<cuda::LinearPart> list;
  for (const PackedLinear* part : parts) {
    const std::byte* packed = part->packed.as<std::byte>();
    list.push_back({part->kernel->weights, part->n, part->k, packed,
                    packed + normal_form_scales_offset(part->kernel->weights, part->n, part->k), part->tensor_scale,
                    part->bias.empty() ? nullptr : part->bias.data()});
  }
  CudaLinear out;
  out.static_alpha = first.activation_scale;
  HB_ASSIGN(out.mode, row_mode(first.kernel->weights, first.kernel->activations, first.name));
  auto storage = cuda::make_linear(list, multiprocessors);
  if (!storage.ok()) return storage.status().with_context(first.name);
  out.storage = std::move(storage).value();
  return out;
}

Result<CudaLayer> upload_layer(const LayerWeights& from, bool fp8_cache, int multiprocessors) {
  CudaLayer out;
  HB_ASSIGN(out.attention_norm, upload_floats(from.attention_norm));
  HB_ASSIGN(out.q_norm, upload_floats(from.q_norm));
  HB_ASSIGN(out.k_norm, upload_floats(from.k_norm));
  HB_ASSIGN(out.mlp_norm, upload_floats(from.mlp_norm));
  HB_ASSIGN(out.qkv, upload_linear({&from.q, &from.k, &from.v}, multiprocessors));
  HB_ASSIGN(out.o, upload_linear({&from.o}, multiprocessors));
  HB_ASSIGN(out.gate_up, upload_linear({&from.gate, &from.up}, multiprocessors));
  HB_ASSIGN(out.down, upload_linear({&from.down}, multiprocessors));
  if (fp8_cache) {
    out.key_scale = from.key_scale;
    out.value_scale = from.value_scale;
  }
  return out;
}

// As BF16 or FP32 rows, whatever form the host keeps.
Result<DeviceBuffer> upload_embedding(const EmbeddingWeights& from) {
  const bool bf16 = from.kind == WeightKind::kBF16;
  const auto width = static_cast<size_t>(from.hidden);
  const size_t row_bytes = width * (bf16 ? 2 : 4);
  HB_ASSIGN(DeviceBuffer out, DeviceBuffer::make(static_cast<size_t>(from.vocab) * row_bytes));
  constexpr int64_t kRows = 1024;  // decoded at once
  std::vector<float> row(width);
  std::vector<std::byte> rows(static_cast<size_t>(kRows) * row_bytes);
  for (int64_t first = 0; first < from.vocab; first += kRows) {
    const int64_t count = std::min(kRows, from.vocab - first);
    for (int64_t r = 0; r < count; ++r) {
      from.read(static_cast<int32_t>(first + r), row.data());
      std::byte* to = rows.data() + static_cast<size_t>(r) * row_bytes;
      if (!bf16) {
        std::memcpy(to, row.data(), row_bytes);
        continue;
      }
      auto* codes = reinterpret_cast<uint16_t*>(to);
      for (size_t i = 0; i < width; ++i) codes[i] = BF16::encode(row[i]);
    }
    HB_TRY(out.upload(rows.data(), static_cast<size_t>(count) * row_bytes, static_cast<size_t>(first) * row_bytes));
  }
  return Result<DeviceBuffer>(std::move(out));
}

Status make_angles(CudaWeights& out, const Rope& rope, int64_t context) {
  out.context = context;
  const auto half = static_cast<size_t>(out.config.head_dim / 2);
  std::vector<float> cos(static_cast<size_t>(context) * half), sin(cos.size());
  for (int64_t p = 0; p < context; ++p) {
    const size_t at = static_cast<size_t>(p) * half;
    rope.angles(p, {cos.data() + at, half}, {sin.data() + at, half});
  }
  HB_ASSIGN(out.cos, upload_floats(cos));
  HB_ASSIGN(out.sin, upload_floats(sin));
  return {};
}

class RandomWeights {
 public:
  RandomWeights(const ModelConfig& config, const PrecisionPlan& plan, int multiprocessors)
      : config_(config), plan_(plan), multiprocessors_(multiprocessors) {}

  Result<CudaLinear> linear(const LinearPlan& plan, int64_t n, int64_t k) {
    CudaLinear out;
    HB_TRY(check_cuda_formats(plan, plan_.kv, "random weights"));
    const WeightFormat format = weight_format_of(plan.weights);
    HB_ASSIGN(out.mode, row_mode(format, activation_mode_of(plan.activations), "random weights"));
    HB_ASSIGN(out.storage, cuda::make_random_linear(format, n, k, multiprocessors_, ++seed_));
    if (plan.activation_scale == ActivationScale::kStatic) out.static_alpha = static_scale(out.mode);
    return out;
  }

  Result<DeviceBuffer> ones(int64_t n) { return upload_floats(std::vector<float>(static_cast<size_t>(n), 1.0f)); }

  Result<CudaLayer> layer() {
    const ModelConfig& c = config_;
    CudaLayer out;
    HB_ASSIGN(out.attention_norm, ones(c.hidden));
    HB_ASSIGN(out.mlp_norm, ones(c.hidden));
    if (c.qk_norm) {
      HB_ASSIGN(out.q_norm, ones(c.head_dim));
      HB_ASSIGN(out.k_norm, ones(c.head_dim));
    }
    HB_ASSIGN(out.qkv, linear(plan_.linear, c.q_width() + 2 * c.kv_width(), c.hidden));
    HB_ASSIGN(out.o, linear(plan_.linear, c.hidden, c.q_width()));
    HB_ASSIGN(out.gate_up, linear(plan_.linear, 2 * c.intermediate, c.hidden));
    HB_ASSIGN(out.down, linear(plan_.linear, c.hidden, c.intermediate));
    return out;
  }

 private:
  // What a checkpoint would give as input scale: a calibrated amax over the largest value of the format.
  static float static_scale(RowMode mode) {
    constexpr float kInputAmax = 16.0f;  // rows here have a root mean square of about 1
    if (mode == RowMode::kA4) return kInputAmax / NVFP4::kRange;
    return mode == RowMode::kA8 ? kInputAmax / E4M3::kMax : 0.0f;
  }

  const ModelConfig& config_;
  const PrecisionPlan& plan_;
  int multiprocessors_;
  uint64_t seed_ = 0;
};

}  // namespace

uint64_t CudaWeights::linear_bytes() const {
  uint64_t bytes = 0;
  for (const CudaLayer& l : layers)
    for (const CudaLinear* linear : {&l.qkv, &l.o, &l.gate_up, &l.down}) bytes += linear->storage.view.bytes;
  return bytes;
}

Result<CudaWeights> upload_weights(const Model::Impl& model, const cuda::DeviceInfo& device, int64_t context) {
  HB_TRY(check_cuda_model(model.weights, model.plan.kv));
  use_measured_linears(device);
  CudaWeights out;
  out.config = model.config;
  out.shape = cuda_model_shape(model.config, model.plan, model.weights, device.kernels.wgmma);
  out.device = device;
  out.embedding_bf16 = model.weights.embedding.kind == WeightKind::kBF16;
  HB_ASSIGN(out.embedding, upload_embedding(model.weights.embedding));
  for (const LayerWeights& layer : model.weights.layers) {
    HB_ASSIGN(CudaLayer uploaded, upload_layer(layer, model.plan.kv == KvKind::kFP8, device.multiprocessors));
    out.layers.push_back(std::move(uploaded));
  }
  HB_ASSIGN(out.final_norm, upload_floats(model.weights.final_norm));
  HB_ASSIGN(out.head, upload_linear({&model.weights.head}, device.multiprocessors));
  HB_TRY(make_angles(out, model.rope, context));
  return out;
}

Result<CudaWeights> random_cuda_weights(const ModelConfig& config, const PrecisionPlan& plan,
                                        const cuda::DeviceInfo& device, int64_t context) {
  use_measured_linears(device);
  CudaWeights out;
  out.config = config;
  out.shape = uniform_cuda_shape(config, plan, device.kernels.wgmma);
  out.device = device;
  const auto embedding = static_cast<size_t>(config.vocab * config.hidden);
  HB_ASSIGN(out.embedding, DeviceBuffer::make(embedding * 2));
  HB_TRY(cuda::fill_random_bf16(out.embedding.as<void>(), embedding, 1.0f, 1000003, {}));
  RandomWeights random(config, plan, device.multiprocessors);
  for (int64_t i = 0; i < config.layers; ++i) {
    HB_ASSIGN(CudaLayer layer, random.layer());
    out.layers.push_back(std::move(layer));
  }
  HB_ASSIGN(out.final_norm, random.ones(config.hidden));
  HB_ASSIGN(out.head, random.linear(plan.head, config.vocab, config.hidden));
  HB_TRY(make_angles(out, Rope(config.rope, config.head_dim, config.context), context));
  return out;
}

}  // namespace halfbyte
