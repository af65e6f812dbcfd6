#include "io/load_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "base/checked.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "io/config_checks.h"
#include "io/dequantize.h"
#include "io/message.h"

namespace halfbyte {
namespace {

std::string described(const TensorInfo& tensor) {
  return tensor.shape.text() + " " + std::string(dtype_info(tensor.dtype).name);
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

Result<Buffer> allocate(const TensorSource& source, const TensorInfo& tensor, uint64_t bytes) {
  try {
    return Buffer::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        source.error(tensor, "needs " + std::to_string(bytes) + " bytes of memory, more than there is").message());
  }
}

// 8 bytes of codes that are all +0 or -0.
bool is_zero_word(const std::byte* codes) {
  uint64_t word;
  std::memcpy(&word, codes, sizeof word);
  return (word & 0x7777777777777777u) == 0;
}

// The scales of one 4-bit format, as far as checking them goes.
struct ScaleRule {
  int64_t block;      // elements
  uint8_t first_odd;  // bytes from here on need a look: E4M3's NaN and all negative ones, or E8M0's NaN
  bool e4m3() const { return first_odd == E4M3::kNaN; }
  bool is_zero(uint8_t scale) const { return e4m3() && scale == 0x80; }  // -0
  const char* fault(uint8_t scale) const { return e4m3() && !E4M3::is_nan_code(scale) ? "negative" : "NaN"; }
};
constexpr ScaleRule kNvfp4Scales = {16, E4M3::kNaN};
constexpr ScaleRule kMxfp4Scales = {32, E8M0::kNaN};

struct ScaleScan {
  uint64_t mended = 0;     // zero blocks whose scale is NaN or negative: 0 in the copy
  bool any_codes = false;  // some block has a non-zero code
};

// Whether some byte is at least `first_odd`, 0x7F or 0xFF.
bool any_odd_scale(std::span<const std::byte> scales, uint8_t first_odd) {
  if (first_odd == E8M0::kNaN) return std::find(scales.begin(), scales.end(), std::byte{0xFF}) != scales.end();
  constexpr uint64_t kHigh = 0x8080808080808080u, kOnes = 0x0101010101010101u;
  uint64_t found = 0;
  size_t i = 0;
  for (; i + 8 <= scales.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, scales.data() + i, sizeof word);
    found |= word | (word + kOnes);  // a carry comes only from a byte that is found itself
  }
  for (; i < scales.size(); ++i) found |= static_cast<uint8_t>(scales[i]) >= first_odd ? kHigh : 0;
  return (found & kHigh) != 0;
}

// Looks at every scale byte; NaN and negative ones are allowed only where all codes are zero.
Result<ScaleScan> scan_scales(const TensorSource& source, const LinearFacts& facts, const ScaleRule& rule,
                              std::span<const std::byte> codes, std::span<const std::byte> scales) {
  ScaleScan scan;
  const bool look_at_each = any_odd_scale(scales, rule.first_odd);
  const size_t words = static_cast<size_t>(rule.block / 16);
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!look_at_each && scan.any_codes) break;
    const auto scale = static_cast<uint8_t>(scales[i]);
    bool zero = true;
    for (size_t w = 0; w < words; ++w) zero = zero && is_zero_word(codes.data() + 8 * (words * i + w));
    scan.any_codes = scan.any_codes || !zero;
    if (scale < rule.first_odd) continue;
    if (zero || rule.is_zero(scale)) {  // -0: the block is zero whatever its codes say
      ++scan.mended;
      continue;
    }
    const int64_t row = static_cast<int64_t>(i) / (facts.k / rule.block);
    const int64_t block = static_cast<int64_t>(i) % (facts.k / rule.block);
    const TensorInfo& tensor = facts.block_scales != nullptr ? *facts.block_scales : *facts.weight;
    return source.error(tensor, "has a " + std::string(rule.fault(scale)) + " scale (byte " + std::to_string(scale) +
                                    ") in row " + std::to_string(row) + ", block " + std::to_string(block) +
                                    ", whose codes are not zero; the checkpoint is damaged or was exported with a "
                                    "faulty tool: export it again");
  }
  return scan;
}

Result<Buffer> mended_copy(const TensorSource& source, const TensorInfo& tensor, std::span<const std::byte> scales,
                           uint8_t first_odd) {
  HB_ASSIGN(Buffer out, allocate(source, tensor, scales.size()));
  auto* mended = out.mutable_as<uint8_t>();
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto scale = static_cast<uint8_t>(scales[i]);
    mended[i] = scale < first_odd ? scale : uint8_t{0};
  }
  return out;
}

// One E4M3 scale for 32 elements, as two for 16 each.
Result<Buffer> doubled_copy(const TensorSource& source, const TensorInfo& tensor, std::span<const std::byte> scales) {
  HB_ASSIGN(Buffer out, allocate(source, tensor, 2 * scales.size()));
  auto* doubled = out.mutable_as<uint8_t>();
  for (size_t i = 0; i < scales.size(); ++i) doubled[2 * i] = doubled[2 * i + 1] = static_cast<uint8_t>(scales[i]);
  return out;
}

// GGUF keeps the halves of a run of codes in the low and the high nibbles; the normal form keeps neighbours together.
void interleave_nibbles(const std::byte* in, int64_t bytes, uint8_t* out) {
  const int64_t half = bytes / 2;  // element i lies low in byte i, element i + bytes high in it
  for (int64_t i = 0; i < half; ++i) {
    const auto a = static_cast<uint32_t>(in[2 * i]), b = static_cast<uint32_t>(in[2 * i + 1]);
    out[i] = static_cast<uint8_t>((a & 15u) | (b & 15u) << 4);
    out[half + i] = static_cast<uint8_t>(a >> 4 | (b & 0xF0u));
  }
}

// One stored row of FP4 blocks -> its codes and scales.
void unpack_gguf_row(const std::byte* in, bool nvfp4, int64_t k, uint8_t* codes, uint8_t* scale) {
  if (nvfp4) {
    for (int64_t b = 0; b < k / 64; ++b, in += 36, codes += 32, scale += 4) {
      std::memcpy(scale, in, 4);
      for (int64_t j = 0; j < 4; ++j) interleave_nibbles(in + 4 + 8 * j, 8, codes + 8 * j);
    }
  } else {
    for (int64_t b = 0; b < k / 32; ++b, in += 17, codes += 16, ++scale) {
      *scale = static_cast<uint8_t>(*in);
      interleave_nibbles(in + 1, 16, codes);
    }
  }
}

// Codes and scales of a GGUF tensor of FP4 blocks, rows in Hugging Face's order.
Status unpack_gguf(const TensorSource& source, const LinearFacts& facts, ThreadPool* pool, QuantLinear& out) {
  const TensorInfo& weight = *facts.weight;
  const bool nvfp4 = out.format == WeightFormat::kNVFP4;
  const int64_t code_bytes = code_bytes_per_row(out.format, facts.k), scales = scale_bytes_per_row(out.format, facts.k);
  HB_ASSIGN(out.codes, allocate(source, weight, static_cast<uint64_t>(facts.n * code_bytes)));
  HB_ASSIGN(out.block_scales, allocate(source, weight, static_cast<uint64_t>(facts.n * scales)));
  HB_TRY(source.row_bytes(weight, 0).status());  // what fails, fails for every row
  const auto rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      unpack_gguf_row(source.row_bytes(weight, row)->data(), nvfp4, facts.k,
                      out.codes.mutable_as<uint8_t>() + row * code_bytes,
                      out.block_scales.mutable_as<uint8_t>() + row * scales);
  };
  if (pool != nullptr) {
    pool->parallel_for(facts.n, 16, rows);
  } else {
    rows(0, facts.n, 0);
  }
  return {};
}

// A tensor or input scale as a multiplier.
Result<float> load_multiplier(const TensorSource& source, const LinearFacts& facts, const TensorInfo& tensor) {
  HB_ASSIGN(const float value, load_scale(source, tensor));
  return facts.divisors ? 1.0f / value : value;
}

Status load_packed(const TensorSource& source, const LinearFacts& facts, ThreadPool* pool, QuantLinear& out) {
  out.format = *facts.packed_format();
  const bool gguf = facts.block_scales == nullptr;
  const TensorInfo& scale_tensor = gguf ? *facts.weight : *facts.block_scales;
  if (gguf) {
    HB_TRY(unpack_gguf(source, facts, pool, out));
  } else {
    HB_ASSIGN(const auto codes, source.bytes(*facts.weight));
    HB_ASSIGN(const auto scales, source.bytes(scale_tensor));
    out.codes = Buffer::borrow(codes, source.owner(*facts.weight));
    if (facts.quant == ModuleQuant::kNVFP4Wide) {
      HB_ASSIGN(out.block_scales, doubled_copy(source, scale_tensor, scales));
    } else {
      out.block_scales = Buffer::borrow(scales, source.owner(scale_tensor));
    }
  }
  const ScaleRule& rule = out.format == WeightFormat::kNVFP4 ? kNvfp4Scales : kMxfp4Scales;
  HB_ASSIGN(const ScaleScan scan, scan_scales(source, facts, rule, out.codes.bytes(), out.block_scales.bytes()));
  if (scan.mended > 0) {
    HB_ASSIGN(out.block_scales, mended_copy(source, scale_tensor, out.block_scales.bytes(), rule.first_odd));
  }
  if (gguf) {
    out.tensor_scale = source.multiplier(*facts.weight);
  } else if (facts.tensor_scale != nullptr && scan.any_codes) {
    HB_ASSIGN(out.tensor_scale, load_multiplier(source, facts, *facts.tensor_scale));
  } else if (facts.tensor_scale != nullptr) {
    // ModelOpt writes scale 0 (and NaN block scales) for a tensor of zeros; any multiplier gives the same zeros.
    HB_TRY(read_scalar(source, *facts.tensor_scale).status());
  }
  return {};
}

// The scales of an FP8 or MXFP8 weight, FP32, [ceil(n / scale_rows), ceil(k / scale_columns)].
Result<std::vector<float>> load_fp8_scales(const TensorSource& source, const LinearFacts& facts) {
  const TensorInfo& tensor = *facts.block_scales;
  HB_ASSIGN(const auto bytes, source.bytes(tensor));
  std::vector<float> out(*tensor.shape.elements());
  if (facts.quant == ModuleQuant::kMXFP8) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = E8M0::decode(static_cast<uint8_t>(bytes[i]));
  } else {
    dequantize_row(tensor.dtype, bytes, out);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] >= 0.0f && std::isfinite(out[i])) continue;
    return source.error(tensor,
                        "element " + std::to_string(i) + " is " + number_text(out[i]) +
                            ", expected a finite number, not below 0; the checkpoint is damaged: export it again");
  }
  return out;
}

// code * scale, in FP32.
Result<RowReader> fp8_reader(const TensorSource& source, const LinearFacts& facts) {
  HB_ASSIGN(auto scales, load_fp8_scales(source, facts));
  const int64_t columns = (facts.k + facts.scale_columns - 1) / facts.scale_columns;
  return RowReader([&source, weight = facts.weight, k = facts.k, height = facts.scale_rows, width = facts.scale_columns,
                    columns, scales = std::move(scales)](int64_t first, int64_t rows, std::span<float> out) {
    HB_TRY(source.read_rows(*weight, first, rows, out));
    for (int64_t r = 0; r < rows; ++r) {
      const float* scale = scales.data() + (first + r) / height * columns;
      float* row = out.data() + r * k;
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t i = c * width; i < std::min(k, (c + 1) * width); ++i) row[i] *= scale[c];
    }
    return Status();
  });
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
  const std::span values(out.codes.mutable_as<float>(), *elements);
  if (facts.quant == ModuleQuant::kNone) {
    HB_TRY(source.read_rows(weight, 0, facts.n, values));
  } else {
    HB_ASSIGN(const RowReader read, fp8_reader(source, facts));
    HB_TRY(read(0, facts.n, values));
  }
  return out;
}

// Bias, input scale and pre-scale.
Result<QuantLinear> load_beside(const TensorSource& source, const LinearFacts& facts, std::string_view module) {
  QuantLinear out;
  out.name = std::string(module);
  out.n = facts.n;
  out.k = facts.k;
  if (facts.bias != nullptr) {
    HB_ASSIGN(out.bias, read_all(source, *facts.bias));
  }
  if (facts.input_scale != nullptr) {
    HB_ASSIGN(const float scale, load_multiplier(source, facts, *facts.input_scale));
    // The normal form's is amax / 2688, for FP4 inputs; FP8 inputs reach 448, and their files say amax / 448.
    const bool fp8 = facts.quant == ModuleQuant::kFP8 || facts.quant == ModuleQuant::kNVFP4Wide;
    out.input_scale = fp8 ? scale / 6.0f : scale;
  }
  if (facts.pre_scale != nullptr) {
    HB_ASSIGN(out.pre_scale, read_all(source, *facts.pre_scale));
    for (size_t i = 0; i < out.pre_scale.size(); ++i) {
      if (std::isfinite(out.pre_scale[i])) continue;
      return source.error(*facts.pre_scale, "element " + std::to_string(i) +
                                                " is NaN or infinite, expected finite "
                                                "numbers; the checkpoint is damaged: export it again");
    }
  }
  return out;
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

Result<QuantLinear> load_quant_linear(const TensorSource& source, const LinearFacts& facts, std::string_view module,
                                      ThreadPool* pool) {
  HB_ASSIGN(QuantLinear out, load_beside(source, facts, module));
  if (!facts.packed_format()) return load_plain(source, facts, std::move(out));
  HB_TRY(load_packed(source, facts, pool, out));
  return out;
}

Result<QuantLinear> load_quant_linear(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                      std::vector<std::string>* warnings) {
  HB_ASSIGN(const LinearFacts facts, linear_facts(source, quant, module, warnings));
  return load_quant_linear(source, facts, module);
}

Result<LinearRows> open_linear_rows(const TensorSource& source, const LinearFacts& facts, std::string_view module,
                                    ThreadPool* pool) {
  LinearRows out;
  HB_ASSIGN(out.beside, load_beside(source, facts, module));
  const bool packed = facts.packed_format().has_value();
  out.rows = {packed ? std::string(module) : source.label(*facts.weight), facts.n, facts.k, nullptr};
  if (packed) {
    HB_TRY(load_packed(source, facts, pool, out.beside));
    out.rows.read = [w = out.beside](int64_t first, int64_t rows, std::span<float> values) {
      const auto k = static_cast<size_t>(w.k);
      for (int64_t r = 0; r < rows; ++r) dequantize_row(w, first + r, values.subspan(static_cast<size_t>(r) * k, k));
      return Status();
    };
  } else if (facts.quant != ModuleQuant::kNone) {
    HB_ASSIGN(out.rows.read, fp8_reader(source, facts));
  } else {
    out.rows.read = [&source, weight = facts.weight](int64_t first, int64_t rows, std::span<float> values) {
      return source.read_rows(*weight, first, rows, values);
    };
    out.rows.largest = [&source, weight = facts.weight](int64_t first, int64_t rows) {
      return largest_of_rows(source, *weight, first, rows);
    };
  }
  return out;
}

}  // namespace halfbyte
