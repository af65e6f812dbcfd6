// The precision plan: which number format each part of a model uses. A model is weights plus a plan; no method is an
// `if` in the model code. Stored beside the weights as halfbyte_plan.json, chosen by preset name, overridden field by
// field and per layer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte {

// bf16 keeps a checkpoint's BF16 values; fp8: E4M3 with one scale a row; f32 is the reference precision (parity tests and
// study). int4 and int3 are for study: rounded to integers in groups of 128 at load, and kept as BF16.
enum class WeightKind { kF32, kBF16, kFP8, kNVFP4, kMXFP4, kInt4, kInt3 };
// What a linear's input is rounded to. kFP8: FP8 (NVFP4 weights) or MXFP8 (MXFP4 weights). kFP4: the weights'
// own format.
enum class ActivationKind { kF32, kBF16, kFP8, kFP4 };
// Where the tensor scale of FP4 and FP8 activations comes from; block scales are always made online.
enum class ActivationScale { kStatic, kPerToken };
// How keys and values are cached. kNVFP4: E2M1 in blocks of 16 channels; kE1M2: the same with uniform steps (ReQAT).
enum class KvKind { kF32, kBF16, kFP8, kNVFP4, kE1M2 };
// The FP32 scale of an FP8 or 4-bit cache, one for the keys and one for the values of a layer: 1, or the checkpoint's
// k_scale and v_scale (1 where it has none).
enum class KvScale { kOne, kCheckpoint };

struct LinearPlan {
  WeightKind weights = WeightKind::kBF16;
  ActivationKind activations = ActivationKind::kBF16;
  ActivationScale activation_scale = ActivationScale::kPerToken;
  bool operator==(const LinearPlan&) const = default;
};

// One override: the fields named in `fields` replace the plan's for every linear whose name matches `pattern`
// (glob: * and ?; matched against e.g. "layers.3.mlp.down_proj" and "lm_head"). Later overrides win.
struct LinearOverride {
  std::string pattern;
  std::vector<std::string> fields;  // of "weights", "activations", "activation_scale"
  LinearPlan values;
  bool matches(std::string_view name) const;
  bool operator==(const LinearOverride&) const = default;
};

// ReSET's calibrated values (halfbyte calibrate reset); they hold for this model in this plan.
struct ResetValues {
  double tau0 = 0;  // nats
  float t_low = 0;
  bool operator==(const ResetValues&) const = default;
};

struct PrecisionPlan {
  std::string preset = "bf16";  // the name it started from
  LinearPlan linear;            // every linear of the decoder layers
  LinearPlan head;              // lm_head
  WeightKind embedding = WeightKind::kBF16;
  KvKind kv = KvKind::kBF16;
  KvScale kv_scale = KvScale::kCheckpoint;
  std::vector<LinearOverride> overrides;
  std::optional<ResetValues> reset;  // nothing: not calibrated
  bool operator==(const PrecisionPlan&) const = default;

  // The linear plan of one module after the overrides; `name` without the "model." prefix.
  LinearPlan linear_for(std::string_view name) const;
};

// Names of the presets, for help and messages: f32, bf16, w4a16, w4a8, w4a4, -mxfp4 forms of the last three, w8a16, int4,
// int3.
std::vector<std::string> plan_preset_names();
// kInvalidArgument with the list of names.
Result<PrecisionPlan> plan_preset(std::string_view name);
// "w4a4", or "w4a16,kv=f32,layers.0.*:weights=bf16": a preset followed by field=value and pattern:field=value parts
// (docs/plans.md). kInvalidArgument that names the part and what was expected.
Result<PrecisionPlan> parse_plan(std::string_view text);

// halfbyte_plan.json. Unknown keys, types and values are kInvalidData with file and path, combinations without a
// meaning kInvalidArgument.
std::string plan_to_json(const PrecisionPlan& plan);
Result<PrecisionPlan> plan_from_json(std::string_view json, std::string_view file_name);

const char* name_of(WeightKind kind);       // "f32", "bf16", "nvfp4", "mxfp4", "int4", "int3"
const char* name_of(ActivationKind kind);   // "f32", "bf16", "fp8", "fp4"
const char* name_of(ActivationScale kind);  // "static", "per_token"
const char* name_of(KvKind kind);           // "f32", "bf16", "fp8", "nvfp4", "e1m2"
const char* name_of(KvScale kind);          // "1", "checkpoint"

// The format of that name; kInvalidArgument with the list.
Result<KvKind> parse_kv(std::string_view name);

}  // namespace halfbyte
