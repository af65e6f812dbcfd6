#include "engine/cuda_supported.h"

#include <initializer_list>

#include "kernels/registry.h"
#include "model/load_plan.h"

namespace halfbyte {
namespace {

bool runs(const LinearPlan& plan) {
  const WeightFormat weights = weight_format_of(plan.weights);
  if (weights == WeightFormat::kBF16) return plan.activations == ActivationKind::kBF16;
  return (weights == WeightFormat::kNVFP4 || weights == WeightFormat::kMXFP4) &&
         plan.activations != ActivationKind::kF32;
}

bool runs(KvKind kv) {
  return kv == KvKind::kBF16 || kv == KvKind::kFP8;
}

std::string scale_text(const PackedLinear& linear) {
  return linear.activation_scale > 0 ? "an input scale of " + std::to_string(linear.activation_scale)
                                     : "a scale for each row";
}

// Linears that read one input, which is rounded once.
Status check_group(std::initializer_list<const PackedLinear*> parts, KvKind kv) {
  const PackedLinear& first = **parts.begin();
  for (const PackedLinear* part : parts) {
    if (part->kernel->isa != Isa::kRef)
      return invalid_argument(part->name + ": packed for the kernels " + std::string(part->kernel->name) +
                              ", a CUDA device needs the normal form: load the model with kernels 'ref'");
    HB_TRY(check_cuda_formats(part->plan, kv, part->name));
    if (part->pre_scale != nullptr)
      return unsupported(part->name +
                         ": has a pre_quant_scale (AWQ), which the CUDA kernels do not apply; run on the CPU "
                         "(--device cpu)");
    const std::string both = first.name + " and " + part->name + ": they share an input on a CUDA device, and have ";
    const std::string what = ", expected the same of both; choose a plan that has it, or run on the CPU (--device cpu)";
    if (part->kernel != first.kernel)
      return unsupported(both + name_of(first.plan.weights) + " weights with " + name_of(first.plan.activations) +
                         " activations and " + name_of(part->plan.weights) + " with " +
                         name_of(part->plan.activations) + what);
    if (part->activation_scale != first.activation_scale)
      return unsupported(both + scale_text(first) + " and " + scale_text(*part) + what);
  }
  return {};
}

}  // namespace

Status check_cuda_kv(KvKind kv) {
  if (runs(kv)) return {};
  return unsupported(std::string("a KV cache in ") + name_of(kv) +
                     " on a CUDA device, expected bf16 or fp8; choose one with --kv or in the plan (kv=fp8), or run "
                     "on the CPU (--device cpu)");
}

Status check_cuda_formats(const LinearPlan& plan, KvKind kv, const std::string& name) {
  if (runs(plan)) return check_cuda_kv(kv);
  return unsupported(
      name + ": " + name_of(plan.weights) + " weights with " + name_of(plan.activations) + " activations" +
      (runs(kv) ? "" : std::string(" and a KV cache in ") + name_of(kv)) +
      " on a CUDA device, expected nvfp4 or mxfp4 weights with bf16, fp8 or fp4 activations, or bf16 with bf16" +
      (runs(kv) ? "" : ", and a cache in bf16 or fp8") +
      "; choose another plan (--plan w4a16) or run on the CPU (--device cpu)");
}

Status check_cuda_model(const ModelWeights& weights, KvKind kv) {
  for (const LayerWeights& l : weights.layers) {
    HB_TRY(check_group({&l.q, &l.k, &l.v}, kv));
    HB_TRY(check_group({&l.o}, kv));
    HB_TRY(check_group({&l.gate, &l.up}, kv));
    HB_TRY(check_group({&l.down}, kv));
  }
  return check_group({&weights.head}, kv);
}

}  // namespace halfbyte
