#include "io/load_linear.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "base/checked.h"
#include "formats/e4m3.h"
#include "io/config_checks.h"
#include "io/message.h"

namespace halfbyte {
namespace {

constexpr std::array<std::string_view, 7> kKnownSuffixes = {"weight",      "bias",    "weight_scale", "weight_scale_2",
                                                            "input_scale", "k_scale", "v_scale"};

// Tensors of other schemes beside a linear's weight, by what they mean.
struct ForeignSuffix {
  std::string_view suffix;
  std::string_view scheme;
};
constexpr ForeignSuffix kForeign[] = {{"weight_packed", "compressed-tensors"},
                                      {"weight_global_scale", "compressed-tensors"},
                                      {"input_global_scale", "compressed-tensors"},
                                      {"pre_quant_scale", "AWQ (NVFP4_AWQ)"},
                                      {"svdquant_lora_a", "NVFP4_SVD"},
                                      {"svdquant_lora_b", "NVFP4_SVD"},
                                      {"k_bias", "NVFP4_AFFINE KV cache"},
                                      {"v_bias", "NVFP4_AFFINE KV cache"},
                                      {"qweight", "GPTQ, AWQ or FP-Quant"},
                                      {"qzeros", "GPTQ or AWQ"},
                                      {"scales", "GPTQ, AWQ or FP-Quant"},
                                      {"weight_scale_inv", "FP8 with blocks"}};

Status unsupported_tensor(const TensorSource& source, const TensorInfo& tensor, const std::string& text) {
  return unsupported(source.error(tensor, text).message());
}

std::string described(const TensorInfo& tensor) {
  return tensor.shape.text() + " " + std::string(dtype_info(tensor.dtype).name);
}

// Every tensor named MODULE.something is one that is understood.
Status check_suffixes(const TensorSource& source, std::string_view module) {
  const std::string prefix = std::string(module) + ".";
  const auto tensors = source.tensors();
  auto it = std::lower_bound(tensors.begin(), tensors.end(), prefix,
                             [](const TensorInfo& t, const std::string& name) { return t.name < name; });
  for (; it != tensors.end() && it->name.starts_with(prefix); ++it) {
    const std::string_view suffix = std::string_view(it->name).substr(prefix.size());
    if (std::find(kKnownSuffixes.begin(), kKnownSuffixes.end(), suffix) != kKnownSuffixes.end()) continue;
    for (const ForeignSuffix& foreign : kForeign) {
      if (foreign.suffix == suffix) {
        return unsupported_tensor(source, *it,
                                  "belongs to the scheme " + std::string(foreign.scheme) +
                                      ", which is not supported yet; supported: ModelOpt NVFP4 and W4A16_NVFP4");
      }
    }
    return source.error(
        *it,
        "is not a tensor of a linear layer that Halfbyte knows; expected one of weight, bias, weight_scale, "
        "weight_scale_2, input_scale; export the checkpoint again with a released ModelOpt");
  }
  return {};
}

Status missing(const TensorSource& source, const TensorInfo& present, const std::string& name, const char* why) {
  return source.error(present, std::string(why) + ", but there is no tensor " + quote(name) +
                                   "; the checkpoint is incomplete: download or export it again");
}

// U8 [n, k/2] with weight_scale F8_E4M3 [n, k/16] and weight_scale_2 of one element.
Status check_packed(const TensorSource& source, const std::string& module, LinearFacts& facts) {
  const TensorInfo& weight = *facts.weight;
  if (facts.block_scales == nullptr) return missing(source, weight, module + ".weight_scale", "is a packed U8 weight");
  if (facts.tensor_scale == nullptr) {
    // MXFP4 keeps its scales as U8 and has no tensor scale.
    if (facts.block_scales->dtype == DType::kU8) {
      return unsupported_tensor(
          source, weight,
          "has U8 block scales (MXFP4), which is not supported yet; supported: ModelOpt NVFP4 and W4A16_NVFP4");
    }
    return missing(source, weight, module + ".weight_scale_2", "is a packed U8 weight");
  }
  if (weight.shape.rank() != 2) {
    return unsupported_tensor(
        source, weight,
        "is " + described(weight) + "; packed weights of other than 2 dimensions are not supported yet");
  }
  facts.n = weight.shape[0];
  const auto k = checked_mul(static_cast<uint64_t>(weight.shape[1]), 2);
  facts.k = k ? checked_cast<int64_t>(*k).value_or(0) : 0;
  if (facts.n == 0 || facts.k == 0 || facts.k % 16 != 0) {
    return source.error(weight, "is " + described(weight) + ", expected [n, k/2] with k a multiple of 16");
  }
  const TensorInfo& scales = *facts.block_scales;
  const Shape expected{{facts.n, facts.k / 16}};
  if (scales.dtype != DType::kF8E4M3 || scales.shape != expected) {
    return source.error(scales, "is " + described(scales) + ", expected " + expected.text() +
                                    " F8_E4M3 for a weight of " + Shape{{facts.n, facts.k}}.text() +
                                    "; export the checkpoint again");
  }
  return {};
}

Status check_plain(const TensorSource& source, const std::string& module, LinearFacts& facts) {
  const TensorInfo& weight = *facts.weight;
  if (weight.dtype == DType::kF8E4M3 || weight.dtype == DType::kF8E5M2) {
    return unsupported_tensor(
        source, weight, "is an FP8 weight, which is not supported yet; supported: BF16, F16, F32 and ModelOpt NVFP4");
  }
  for (const TensorInfo* extra : {facts.block_scales, facts.tensor_scale, facts.input_scale}) {
    if (extra == nullptr) continue;
    return source.error(*extra, "is a scale, but " + quote(module + ".weight") + " is not packed (" +
                                    described(weight) + "); half a set: download or export the checkpoint again");
  }
  if (weight.shape.rank() != 2 || weight.shape[0] == 0 || weight.shape[1] == 0) {
    return source.error(weight, "is " + described(weight) + ", expected two dimensions [n, k]");
  }
  facts.n = weight.shape[0];
  facts.k = weight.shape[1];
  return {};
}

Status check_bias(const TensorSource& source, const LinearFacts& facts) {
  if (facts.bias == nullptr) return {};
  if (facts.bias->shape != Shape{{facts.n}}) {
    return source.error(*facts.bias, "is " + described(*facts.bias) + ", expected " + Shape{{facts.n}}.text());
  }
  return {};
}

// A scalar stored as [] or [1], in F32, BF16 or F16.
Result<float> read_scalar(const TensorSource& source, const TensorInfo& tensor) {
  const bool one = tensor.shape.rank() == 0 || (tensor.shape.rank() == 1 && tensor.shape[0] == 1);
  const bool type = tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
  if (!one || !type) return source.error(tensor, "is " + described(tensor) + ", expected one F32, BF16 or F16 number");
  float value = 0;
  HB_TRY(source.read_rows(tensor, 0, 1, std::span(&value, 1)));
  return value;
}

}  // namespace

Result<float> load_scale(const TensorSource& source, const TensorInfo& tensor) {
  HB_ASSIGN(const float value, read_scalar(source, tensor));
  if (!(value > 0.0f) || !std::isfinite(value) || !std::isfinite(1.0f / value)) {
    return source.error(
        tensor, "is " + number_text(value) +
                    ", expected a finite number above 0 whose reciprocal is finite; export the checkpoint again");
  }
  return value;
}

namespace {

// 8 bytes of codes that are all +0 or -0.
bool is_zero_block(const std::byte* codes) {
  uint64_t word;
  std::memcpy(&word, codes, sizeof word);
  return (word & 0x7777777777777777u) == 0;
}

struct ScaleScan {
  uint64_t mended = 0;     // zero blocks whose scale is NaN or negative: 0 in the copy
  bool any_codes = false;  // some block has a non-zero code
};

// Whether a scale may be NaN or negative: every byte from 0x7F on, eight at a time.
bool any_odd_scale(std::span<const std::byte> scales) {
  constexpr uint64_t kHigh = 0x8080808080808080u, kOnes = 0x0101010101010101u;
  uint64_t found = 0;
  size_t i = 0;
  for (; i + 8 <= scales.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, scales.data() + i, sizeof word);
    found |= word | (word + kOnes);  // a carry comes only from a byte that is found itself
  }
  for (; i < scales.size(); ++i) found |= static_cast<uint8_t>(scales[i]) >= E4M3::kNaN ? kHigh : 0;
  return (found & kHigh) != 0;
}

// Looks at every scale byte; NaN and negative ones are allowed only where all codes are zero.
Result<ScaleScan> scan_scales(const TensorSource& source, const LinearFacts& facts, std::span<const std::byte> codes,
                              std::span<const std::byte> scales) {
  ScaleScan scan;
  const bool look_at_each = any_odd_scale(scales);
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!look_at_each && scan.any_codes) break;
    const auto scale = static_cast<uint8_t>(scales[i]);
    const bool zero = is_zero_block(codes.data() + 8 * i);
    scan.any_codes = scan.any_codes || !zero;
    if (scale < E4M3::kNaN) continue;
    if (zero || scale == 0x80) {  // 0x80 is -0: the block is zero whatever its codes say
      ++scan.mended;
      continue;
    }
    const int64_t row = static_cast<int64_t>(i) / (facts.k / 16), block = static_cast<int64_t>(i) % (facts.k / 16);
    return source.error(*facts.block_scales, "has a " + std::string(E4M3::is_nan_code(scale) ? "NaN" : "negative") +
                                                 " scale (byte " + std::to_string(scale) + ") in row " +
                                                 std::to_string(row) + ", block " + std::to_string(block) +
                                                 ", whose codes are not zero; the checkpoint is damaged or was "
                                                 "exported with a faulty tool: export it again");
  }
  return scan;
}

Result<Buffer> allocate(const TensorSource& source, const TensorInfo& tensor, uint64_t bytes) {
  try {
    return Buffer::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        source.error(tensor, "needs " + std::to_string(bytes) + " bytes of memory, more than there is").message());
  }
}

Result<QuantLinear> load_packed(const TensorSource& source, const LinearFacts& facts, QuantLinear out) {
  out.format = WeightFormat::kNVFP4;
  HB_ASSIGN(const auto codes, source.bytes(*facts.weight));
  HB_ASSIGN(const auto scales, source.bytes(*facts.block_scales));
  out.codes = Buffer::borrow(codes, source.owner(*facts.weight));
  HB_ASSIGN(const ScaleScan scan, scan_scales(source, facts, codes, scales));
  if (scan.mended == 0) {
    out.block_scales = Buffer::borrow(scales, source.owner(*facts.block_scales));
  } else {
    HB_ASSIGN(out.block_scales, allocate(source, *facts.block_scales, scales.size()));
    auto* mended = out.block_scales.mutable_as<uint8_t>();
    for (size_t i = 0; i < scales.size(); ++i) {
      const auto scale = static_cast<uint8_t>(scales[i]);
      mended[i] = scale < E4M3::kNaN ? scale : uint8_t{0};
    }
  }
  if (scan.any_codes) {
    HB_ASSIGN(out.tensor_scale, load_scale(source, *facts.tensor_scale));
  } else {
    // ModelOpt writes scale 0 (and NaN block scales) for a tensor of zeros; any multiplier gives the same zeros.
    HB_TRY(read_scalar(source, *facts.tensor_scale).status());
    out.tensor_scale = 1.0f;
  }
  if (facts.input_scale != nullptr) {
    HB_ASSIGN(out.input_scale, load_scale(source, *facts.input_scale));
  }
  return out;
}

Result<QuantLinear> load_plain(const TensorSource& source, const LinearFacts& facts, QuantLinear out) {
  const TensorInfo& weight = *facts.weight;
  if (weight.dtype == DType::kBF16) {
    // Rows in another order (GGUF) have no bytes to borrow; BF16 to FP32 below is exact.
    if (const auto bytes = source.bytes(weight); bytes.ok()) {
      out.format = WeightFormat::kBF16;
      if (reinterpret_cast<uintptr_t>(bytes->data()) % 2 == 0) {
        out.codes = Buffer::borrow(*bytes, source.owner(weight));
        return out;
      }
      HB_ASSIGN(out.codes, allocate(source, weight, bytes->size()));
      std::memcpy(out.codes.mutable_bytes().data(), bytes->data(), bytes->size());
      return out;
    }
  }
  out.format = WeightFormat::kF32;
  const auto elements = weight.shape.elements();
  const auto bytes = elements ? checked_mul(*elements, 4) : std::nullopt;
  HB_ASSIGN(out.codes, allocate(source, weight, bytes.value_or(UINT64_MAX / 2)));
  HB_TRY(source.read_rows(weight, 0, facts.n, std::span(out.codes.mutable_as<float>(), *elements)));
  return out;
}

}  // namespace

Result<LinearFacts> linear_facts(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                 std::vector<std::string>* warnings) {
  const std::string name(module);
  LinearFacts facts;
  facts.weight = source.find(name + ".weight");
  HB_TRY(check_suffixes(source, module));
  if (facts.weight == nullptr) {
    return not_found(shown(base_name(source.path())) + ": has no tensor " + quote(name + ".weight") +
                     "; the model is incomplete or of another architecture");
  }
  facts.bias = source.find(name + ".bias");
  facts.block_scales = source.find(name + ".weight_scale");
  facts.tensor_scale = source.find(name + ".weight_scale_2");
  facts.input_scale = source.find(name + ".input_scale");
  const ModuleQuant listed = quant.for_module(module);
  if (facts.weight->dtype == DType::kU8) {
    HB_TRY(check_packed(source, name, facts));
    facts.quant = facts.input_scale == nullptr ? ModuleQuant::kNVFP4W4A16 : ModuleQuant::kNVFP4;
    // Some W4A16 exports still carry input scales; the list says that they mean nothing.
    if (listed == ModuleQuant::kNVFP4W4A16) {
      facts.quant = listed;
      facts.input_scale = nullptr;
    }
  } else {
    HB_TRY(check_plain(source, name, facts));
  }
  HB_TRY(check_bias(source, facts));
  if (warnings != nullptr && facts.quant != listed) {
    const std::string file = quant.file.empty() ? "the configuration" : quant.file;
    warnings->push_back(name + ": " + file + " says " + name_of(listed) + ", the tensors are " + name_of(facts.quant) +
                        "; using the tensors");
  }
  return facts;
}

Result<QuantLinear> load_quant_linear(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                      std::vector<std::string>* warnings) {
  HB_ASSIGN(const LinearFacts facts, linear_facts(source, quant, module, warnings));
  QuantLinear out;
  out.name = std::string(module);
  out.n = facts.n;
  out.k = facts.k;
  if (facts.bias != nullptr) {
    HB_ASSIGN(out.bias, read_all(source, *facts.bias));
  }
  if (facts.quant == ModuleQuant::kNone) return load_plain(source, facts, std::move(out));
  return load_packed(source, facts, std::move(out));
}

}  // namespace halfbyte
