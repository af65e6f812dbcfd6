// Which tensors a linear has, what they say together, and whether they fit.
#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "io/load_linear.h"
#include "io/message.h"

namespace halfbyte {
namespace {

// A linear's tensors by name. Of a pair that means the same only one may be there.
struct Parts {
  const TensorInfo *weight = nullptr, *weight_packed = nullptr, *bias = nullptr;
  const TensorInfo *weight_scale = nullptr, *weight_scale_inv = nullptr;
  const TensorInfo *weight_scale_2 = nullptr, *weight_global_scale = nullptr;
  const TensorInfo *input_scale = nullptr, *input_global_scale = nullptr;
  const TensorInfo* input_scale_2 = nullptr;  // Quark's NVFP4: the block scales' own scale, which is all that is static
  const TensorInfo* pre_quant_scale = nullptr;
};
constexpr std::pair<std::string_view, const TensorInfo * Parts::*> kParts[] = {
    {"weight", &Parts::weight},
    {"weight_packed", &Parts::weight_packed},
    {"bias", &Parts::bias},
    {"weight_scale", &Parts::weight_scale},
    {"weight_scale_inv", &Parts::weight_scale_inv},
    {"weight_scale_2", &Parts::weight_scale_2},
    {"weight_global_scale", &Parts::weight_global_scale},
    {"input_scale", &Parts::input_scale},
    {"input_global_scale", &Parts::input_global_scale},
    {"input_scale_2", &Parts::input_scale_2},
    {"pre_quant_scale", &Parts::pre_quant_scale}};

// Of the KV cache; the loader takes them from here.
constexpr std::array<std::string_view, 2> kCacheSuffixes = {"k_scale", "v_scale"};

// Tensors of schemes that are not read.
constexpr std::pair<std::string_view, std::string_view> kForeign[] = {
    {"svdquant_lora_a", "NVFP4_SVD"},
    {"svdquant_lora_b", "NVFP4_SVD"},
    {"k_bias", "NVFP4_AFFINE KV cache"},
    {"v_bias", "NVFP4_AFFINE KV cache"},
    {"qweight", "GPTQ, AWQ or FP-Quant"},
    {"dqweight", "FP-Quant"},
    {"qzeros", "GPTQ or AWQ"},
    {"scales", "GPTQ, AWQ or FP-Quant"},
    {"act_global_scale", "FP-Quant"},
    {"forward_hadamard_matrix", "FP-Quant (rotated weights)"},
    {"backward_hadamard_matrix", "FP-Quant (rotated weights)"},
    {"weight_zero_point", "asymmetric integer weights"},
    {"input_zero_point", "asymmetric integer activations"},
    {"weight_shape", "integer weights of compressed-tensors"},
    {"weight_g_idx", "integer weights of compressed-tensors"}};

Status unsupported_tensor(const TensorSource& source, const TensorInfo& tensor, const std::string& text) {
  return unsupported(source.error(tensor, text).message());
}

std::string described(const TensorInfo& tensor) {
  return tensor.shape.text() + " " + std::string(dtype_info(tensor.dtype).name);
}

Status unknown_suffix(const TensorSource& source, const TensorInfo& tensor, std::string_view suffix) {
  for (const auto& [foreign, scheme] : kForeign) {
    if (foreign != suffix) continue;
    return unsupported_tensor(source, tensor,
                              "belongs to the scheme " + std::string(scheme) +
                                  ", which is not supported; supported: NVFP4, MXFP4, FP8 and MXFP8 of ModelOpt, "
                                  "compressed-tensors and Quark");
  }
  return source.error(tensor,
                      "is not a tensor of a linear layer that Halfbyte knows; expected one of weight, bias, "
                      "weight_scale, weight_scale_2, input_scale, pre_quant_scale, weight_packed, weight_global_scale, "
                      "input_global_scale; export the checkpoint again with a released tool");
}

// Every tensor named MODULE.something is one that is understood.
Status collect(const TensorSource& source, std::string_view module, Parts& parts, LinearFacts& facts) {
  const std::string prefix = std::string(module) + ".";
  const auto tensors = source.tensors();
  auto it = std::lower_bound(tensors.begin(), tensors.end(), prefix,
                             [](const TensorInfo& t, const std::string& name) { return t.name < name; });
  for (; it != tensors.end() && it->name.starts_with(prefix); ++it) {
    const std::string_view suffix = std::string_view(it->name).substr(prefix.size());
    if (std::find(kCacheSuffixes.begin(), kCacheSuffixes.end(), suffix) != kCacheSuffixes.end()) continue;
    const auto known =
        std::find_if(std::begin(kParts), std::end(kParts), [&](const auto& p) { return p.first == suffix; });
    if (known == std::end(kParts)) return unknown_suffix(source, *it, suffix);
    parts.*known->second = &*it;
    facts.stored.push_back(&*it);
  }
  for (const auto& [one, other] : {std::pair{parts.weight, parts.weight_packed},
                                   {parts.weight_scale, parts.weight_scale_inv},
                                   {parts.weight_scale_2, parts.weight_global_scale},
                                   {parts.input_scale, parts.input_global_scale},
                                   {parts.input_scale, parts.input_scale_2},
                                   {parts.input_global_scale, parts.input_scale_2}}) {
    if (one != nullptr && other != nullptr)
      return source.error(*one, "lies beside " + quote(other->name) +
                                    ", which means the same in another scheme; expected one of them: export again");
  }
  return {};
}

Status missing(const TensorSource& source, const TensorInfo& present, const std::string& name, const char* why) {
  return source.error(present, std::string(why) + ", but there is no tensor " + quote(name) +
                                   "; the checkpoint is incomplete: download or export it again");
}

// [n, k] of a weight that stores `per_byte` elements in a byte.
Status read_shape(const TensorSource& source, int64_t per_byte, int64_t multiple, LinearFacts& facts) {
  const TensorInfo& weight = *facts.weight;
  if (weight.shape.rank() != 2) {
    return unsupported_tensor(
        source, weight,
        "is " + described(weight) + "; quantised weights of other than 2 dimensions (fused experts) are not supported");
  }
  facts.n = weight.shape[0];
  const auto k = checked_mul(static_cast<uint64_t>(weight.shape[1]), static_cast<uint64_t>(per_byte));
  facts.k = k ? checked_cast<int64_t>(*k).value_or(0) : 0;
  if (facts.n == 0 || facts.k == 0 || facts.k % multiple != 0) {
    return source.error(weight, "is " + described(weight) + ", expected [n, k" + (per_byte == 2 ? "/2" : "") +
                                    "] with k a multiple of " + std::to_string(multiple));
  }
  return {};
}

Status check_block_scales(const TensorSource& source, const LinearFacts& facts, DType type, int64_t block) {
  const TensorInfo& scales = *facts.block_scales;
  const Shape expected{{facts.n, facts.k / block}};
  if (scales.dtype == type && scales.shape == expected) return {};
  return source.error(scales, "is " + described(scales) + ", expected " + expected.text() + " " +
                                  std::string(dtype_info(type).name) + " for a weight of " +
                                  Shape{{facts.n, facts.k}}.text() + "; export the checkpoint again");
}

// U8 [n, k/2] with weight_scale F8_E4M3 [n, k/16] and a tensor scale of one element, or U8 [n, k/32] without.
Status check_packed(const TensorSource& source, const std::string& module, const Parts& parts, ModuleQuant listed,
                    LinearFacts& facts) {
  const TensorInfo& weight = *facts.weight;
  facts.divisors = &weight == parts.weight_packed;
  const auto in_scheme = [&](const TensorInfo* found, bool divisor) -> Status {
    if (found == nullptr || divisor == facts.divisors) return {};
    return source.error(*found, "is of " + std::string(divisor ? "compressed-tensors" : "ModelOpt or Quark") +
                                    ", but the weight " + quote(weight.name) +
                                    " is not: a multiplier would be taken for a divisor; export the "
                                    "checkpoint again");
  };
  HB_TRY(in_scheme(parts.weight_global_scale, true));
  HB_TRY(in_scheme(parts.weight_scale_2, false));
  HB_TRY(in_scheme(parts.input_global_scale, true));
  HB_TRY(in_scheme(parts.input_scale_2, false));
  if (facts.block_scales == nullptr || parts.weight_scale_inv != nullptr)
    return missing(source, weight, module + ".weight_scale", "is a packed U8 weight");
  if (facts.block_scales->dtype == DType::kU8) {
    facts.quant = ModuleQuant::kMXFP4;
    HB_TRY(read_shape(source, 2, 32, facts));
    HB_TRY(check_block_scales(source, facts, DType::kU8, 32));
    if (facts.tensor_scale != nullptr)
      return source.error(*facts.tensor_scale,
                          "is a tensor scale, but the block scales are U8 (MXFP4), which has none; "
                          "export the checkpoint again");
    facts.input_scale = nullptr;  // of W4A8_MXFP4_FP8, a static FP8 scale: MXFP8 inputs have scales of their own
    return {};
  }
  if (facts.tensor_scale == nullptr)
    return missing(source, weight, module + (facts.divisors ? ".weight_global_scale" : ".weight_scale_2"),
                   "is a packed U8 weight");
  const bool wide = listed == ModuleQuant::kNVFP4Wide;
  HB_TRY(read_shape(source, 2, wide ? 32 : 16, facts));
  HB_TRY(check_block_scales(source, facts, DType::kF8E4M3, wide ? 32 : 16));
  facts.quant = wide                           ? ModuleQuant::kNVFP4Wide
                : facts.input_scale == nullptr ? ModuleQuant::kNVFP4W4A16
                                               : ModuleQuant::kNVFP4;
  // Some W4A16 exports still carry input scales; the list says that they mean nothing.
  if (listed == ModuleQuant::kNVFP4W4A16) {
    facts.quant = listed;
    facts.input_scale = nullptr;
  }
  return {};
}

Status check_fp8_scales(const TensorSource& source, const QuantConfig& quant, LinearFacts& facts) {
  const TensorInfo& scales = *facts.block_scales;
  std::vector<int64_t> dims;  // ModelOpt writes blocks as [n/128, 1, k/128, 1]
  for (const int64_t d : scales.shape.dims)
    if (d != 1) dims.push_back(d);
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t rows = quant.fp8_block_rows, columns = quant.fp8_block_columns;
  const bool number = scales.dtype == DType::kF32 || scales.dtype == DType::kBF16 || scales.dtype == DType::kF16;
  const bool grid =
      scales.shape.rank() >= 2 &&
      scales.shape.elements() == static_cast<uint64_t>(up(facts.n, rows)) * static_cast<uint64_t>(up(facts.k, columns));
  const auto has_dims = [&](std::vector<int64_t> expected) {
    std::erase(expected, 1);
    return dims == expected;
  };
  if (number && scales.shape.elements() == 1) {
    facts.scale_rows = facts.n;
    facts.scale_columns = facts.k;
  } else if (number && scales.shape[0] == facts.n && scales.shape.elements() == static_cast<uint64_t>(facts.n)) {
    facts.scale_rows = 1;
    facts.scale_columns = facts.k;
  } else if (number && grid && has_dims({up(facts.n, rows), up(facts.k, columns)})) {
    facts.scale_rows = rows;
    facts.scale_columns = columns;
  } else {
    return source.error(scales, "is " + described(scales) + ", expected one number, " + Shape{{facts.n}}.text() +
                                    " or blocks " + Shape{{up(facts.n, rows), up(facts.k, columns)}}.text() +
                                    " of F32, BF16 or F16 for an FP8 weight of " + Shape{{facts.n, facts.k}}.text());
  }
  return {};
}

// F8_E4M3 [n, k] with FP32 scales (FP8) or U8 [n, k/32] (MXFP8).
Status check_fp8(const TensorSource& source, const QuantConfig& quant, const std::string& module, LinearFacts& facts) {
  if (facts.weight->dtype == DType::kF8E5M2)
    return unsupported_tensor(source, *facts.weight,
                              "is an F8_E5M2 weight, which is not supported; supported: F8_E4M3");
  if (facts.block_scales == nullptr)
    return missing(source, *facts.weight, module + ".weight_scale", "is an FP8 weight");
  if (facts.tensor_scale != nullptr)
    return source.error(*facts.tensor_scale, "is a second scale of an FP8 weight, which has one; export again");
  HB_TRY(read_shape(source, 1, 1, facts));
  if (facts.block_scales->dtype == DType::kU8) {
    facts.quant = ModuleQuant::kMXFP8;
    HB_TRY(read_shape(source, 1, 32, facts));
    facts.scale_columns = 32;
    return check_block_scales(source, facts, DType::kU8, 32);
  }
  facts.quant = ModuleQuant::kFP8;
  return check_fp8_scales(source, quant, facts);
}

Status check_plain(const TensorSource& source, const std::string& module, LinearFacts& facts) {
  const TensorInfo& weight = *facts.weight;
  const bool gguf_nvfp4 = weight.dtype == DType::kGgufNVFP4, gguf_mxfp4 = weight.dtype == DType::kGgufMXFP4;
  for (const TensorInfo* extra : {facts.block_scales, facts.tensor_scale, facts.input_scale, facts.pre_scale}) {
    if (extra == nullptr || (gguf_nvfp4 && extra == facts.input_scale)) continue;
    return source.error(*extra, "is a scale, but " + quote(module + ".weight") + " is not packed (" +
                                    described(weight) + "); half a set: download or export the checkpoint again");
  }
  if (weight.shape.rank() != 2 || weight.shape[0] == 0 || weight.shape[1] == 0) {
    return source.error(weight, "is " + described(weight) + ", expected two dimensions [n, k]");
  }
  HB_TRY(source.check_readable(weight));
  facts.n = weight.shape[0];
  facts.k = weight.shape[1];
  if (gguf_nvfp4) facts.quant = facts.input_scale != nullptr ? ModuleQuant::kNVFP4 : ModuleQuant::kNVFP4W4A16;
  if (gguf_mxfp4) facts.quant = ModuleQuant::kMXFP4;
  return {};
}

Status check_vectors(const TensorSource& source, const LinearFacts& facts) {
  for (const auto& [tensor, length] : {std::pair{facts.bias, facts.n}, {facts.pre_scale, facts.k}}) {
    if (tensor == nullptr) continue;
    HB_TRY(source.check_readable(*tensor));
    if (tensor->shape == Shape{{length}}) continue;
    return source.error(*tensor, "is " + described(*tensor) + ", expected " + Shape{{length}}.text());
  }
  return {};
}

// Several linears in one tensor, as some exporters for one engine write them.
Status refuse_fused(const TensorSource& source, const std::string& module) {
  const std::string parent = module.substr(0, module.rfind('.') + 1);
  for (const char* fused : {"qkv_proj", "gate_up_proj"}) {
    for (const char* suffix : {".weight", ".weight_packed"}) {
      const TensorInfo* tensor = source.find(parent + fused + suffix);
      if (tensor == nullptr) continue;
      return unsupported_tensor(source, *tensor,
                                "is several linears fused into one, which is not supported; expected " +
                                    quote(module + ".weight") +
                                    " and its neighbours apart: export the checkpoint in Hugging Face's layout");
    }
  }
  return {};
}

bool of_gguf(const LinearFacts& facts) {
  return facts.weight->dtype == DType::kGgufNVFP4 || facts.weight->dtype == DType::kGgufMXFP4;
}

}  // namespace

std::optional<WeightFormat> LinearFacts::packed_format() const {
  switch (quant) {
    case ModuleQuant::kNVFP4:
    case ModuleQuant::kNVFP4W4A16:
    case ModuleQuant::kNVFP4Wide: return WeightFormat::kNVFP4;
    case ModuleQuant::kMXFP4: return WeightFormat::kMXFP4;
    case ModuleQuant::kNone:
    case ModuleQuant::kFP8:
    case ModuleQuant::kMXFP8: break;
  }
  return std::nullopt;
}

std::string describe(const LinearFacts& facts) {
  std::string out;
  const auto part = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  const auto suffix = [](const TensorInfo& t) { return t.name.substr(t.name.rfind('.') + 1); };
  const bool fp4 = facts.packed_format().has_value();
  part(facts.quant == ModuleQuant::kNone ? std::string(dtype_info(facts.weight->dtype).name)
       : fp4                             ? (facts.packed_format() == WeightFormat::kNVFP4 ? "NVFP4" : "MXFP4")
                                         : name_of(facts.quant));
  if (of_gguf(facts)) part("GGUF blocks");
  switch (facts.quant) {
    case ModuleQuant::kNone: break;
    case ModuleQuant::kNVFP4:
    case ModuleQuant::kNVFP4W4A16: part("E4M3 a 16-block"); break;
    case ModuleQuant::kNVFP4Wide: part("E4M3 a 32-block"); break;
    case ModuleQuant::kMXFP4:
    case ModuleQuant::kMXFP8: part("E8M0 a 32-block"); break;
    case ModuleQuant::kFP8:
      part(facts.scale_rows == facts.n && facts.scale_columns == facts.k ? "one scale"
           : facts.scale_columns == facts.k
               ? "one scale a row"
               : "one scale a block of " + Shape{{facts.scale_rows, facts.scale_columns}}.text());
      break;
  }
  const char* verb = facts.divisors ? " divides" : " multiplies";
  if (facts.tensor_scale != nullptr) part(suffix(*facts.tensor_scale) + verb);
  if (facts.input_scale != nullptr) part(suffix(*facts.input_scale) + verb);
  if (facts.pre_scale != nullptr) part("pre_quant_scale multiplies the input");
  if (facts.bias != nullptr) part("bias");
  return out;
}

bool has_linear(const TensorSource& source, std::string_view module) {
  return source.find(std::string(module) + ".weight") != nullptr ||
         source.find(std::string(module) + ".weight_packed") != nullptr;
}

Result<LinearFacts> linear_facts(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                 std::vector<std::string>* warnings) {
  const std::string name(module);
  LinearFacts facts;
  Parts parts;
  HB_TRY(collect(source, module, parts, facts));
  const auto either = [](const TensorInfo* a, const TensorInfo* b) { return a != nullptr ? a : b; };
  facts.weight = either(parts.weight, parts.weight_packed);
  if (facts.weight == nullptr) {
    HB_TRY(refuse_fused(source, name));
    return not_found(shown(source.path()) + ": has no tensor " + quote(name + ".weight") +
                     "; the model is incomplete or of another architecture");
  }
  facts.bias = parts.bias;
  facts.block_scales = either(parts.weight_scale, parts.weight_scale_inv);
  facts.tensor_scale = either(parts.weight_scale_2, parts.weight_global_scale);
  facts.input_scale = either(either(parts.input_scale, parts.input_global_scale), parts.input_scale_2);
  facts.pre_scale = parts.pre_quant_scale;
  const ModuleQuant listed = quant.for_module(module);
  switch (facts.weight->dtype) {
    case DType::kU8: HB_TRY(check_packed(source, name, parts, listed, facts)); break;
    case DType::kF8E4M3:
    case DType::kF8E5M2: HB_TRY(check_fp8(source, quant, name, facts)); break;
    default: HB_TRY(check_plain(source, name, facts)); break;
  }
  HB_TRY(check_vectors(source, facts));
  if (facts.quant != listed && !of_gguf(facts)) {
    const std::string file = quant.file.empty() ? "the configuration" : quant.file;
    facts.contradiction =
        file + " says " + name_of(listed) + ", the tensors are " + name_of(facts.quant) + "; using the tensors";
    if (warnings != nullptr) warnings->push_back(name + ": " + facts.contradiction);
  }
  return facts;
}

}  // namespace halfbyte
