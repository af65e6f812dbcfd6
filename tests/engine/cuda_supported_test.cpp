// What a CUDA device refuses, and that it says what was found. Needs no CUDA.
#include "engine/cuda_supported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/registry.h"
#include "model/load_plan.h"

namespace halfbyte {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PackedLinear linear(const std::string& name, WeightKind weights, ActivationKind activations) {
  PackedLinear out;
  out.name = name;
  out.plan.weights = weights;
  out.plan.activations = activations;
  const auto kernel = find_linear_kernel(weight_format_of(weights), activation_mode_of(activations), Isa::kRef);
  EXPECT_TRUE(kernel.ok()) << kernel.status().message();
  if (kernel.ok()) out.kernel = out.prompt_kernel = *kernel;
  return out;
}

ModelWeights model(WeightKind weights, ActivationKind activations) {
  ModelWeights out;
  LayerWeights layer;
  layer.q = linear("layers.0.self_attn.q_proj", weights, activations);
  layer.k = linear("layers.0.self_attn.k_proj", weights, activations);
  layer.v = linear("layers.0.self_attn.v_proj", weights, activations);
  layer.o = linear("layers.0.self_attn.o_proj", weights, activations);
  layer.gate = linear("layers.0.mlp.gate_proj", weights, activations);
  layer.up = linear("layers.0.mlp.up_proj", weights, activations);
  layer.down = linear("layers.0.mlp.down_proj", weights, activations);
  out.layers.push_back(std::move(layer));
  out.head = linear("lm_head", WeightKind::kBF16, ActivationKind::kBF16);
  return out;
}

ModelWeights w4a16() {
  return model(WeightKind::kNVFP4, ActivationKind::kBF16);
}

// Of a refusal.
std::string message_of(const ModelWeights& weights, KvKind kv = KvKind::kBF16) {
  const Status status = check_cuda_model(weights, kv);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  return status.message();
}

TEST(CudaSupported, TakesThePlansThatItHas) {
  for (const WeightKind weights : {WeightKind::kNVFP4, WeightKind::kMXFP4})
    for (const ActivationKind activations : {ActivationKind::kBF16, ActivationKind::kFP8, ActivationKind::kFP4})
      for (const KvKind kv : {KvKind::kBF16, KvKind::kFP8})
        EXPECT_TRUE(check_cuda_model(model(weights, activations), kv).ok());
  EXPECT_TRUE(check_cuda_model(model(WeightKind::kBF16, ActivationKind::kBF16), KvKind::kBF16).ok());
}

TEST(CudaSupported, NamesTheFormatsThatAreNotThere) {
  EXPECT_THAT(
      message_of(model(WeightKind::kFP8, ActivationKind::kBF16)),
      AllOf(StartsWith("layers.0.self_attn.q_proj: fp8 weights with bf16 activations on a CUDA device, expected"),
            Not(HasSubstr("KV"))));
  ModelWeights head = w4a16();
  head.head = linear("lm_head", WeightKind::kFP8, ActivationKind::kBF16);
  EXPECT_THAT(message_of(head), StartsWith("lm_head: fp8 weights"));
  // Plan f32: both that are wrong, in one message.
  EXPECT_THAT(message_of(model(WeightKind::kF32, ActivationKind::kF32), KvKind::kF32),
              AllOf(HasSubstr("f32 weights with f32 activations and a KV cache in f32"),
                    HasSubstr("and a cache in bf16 or fp8")));
  const std::string cache = message_of(w4a16(), KvKind::kNVFP4);
  EXPECT_THAT(cache, StartsWith("a KV cache in nvfp4 on a CUDA device, expected bf16 or fp8; choose one with --kv"));
  EXPECT_EQ(cache, check_cuda_kv(KvKind::kNVFP4).message()) << "one text for a model and for a measurement";
}

TEST(CudaSupported, NamesWhatAwqAndSharedInputsHave) {
  ModelWeights awq = w4a16();
  awq.layers[0].o.pre_scale = std::make_shared<const std::vector<float>>(16, 1.0f);
  EXPECT_THAT(message_of(awq), StartsWith("layers.0.self_attn.o_proj: has a pre_quant_scale (AWQ)"));

  ModelWeights scales = model(WeightKind::kNVFP4, ActivationKind::kFP4);
  scales.layers[0].k.activation_scale = 0.25f;
  EXPECT_THAT(message_of(scales), AllOf(StartsWith("layers.0.self_attn.q_proj and layers.0.self_attn.k_proj: "),
                                        HasSubstr("a scale for each row and an input scale of 0.25")));

  ModelWeights formats = w4a16();
  formats.layers[0].up = linear("layers.0.mlp.up_proj", WeightKind::kBF16, ActivationKind::kBF16);
  EXPECT_THAT(message_of(formats), AllOf(StartsWith("layers.0.mlp.gate_proj and layers.0.mlp.up_proj: "),
                                         HasSubstr("nvfp4 weights with bf16 activations and bf16 with bf16")));
}

}  // namespace
}  // namespace halfbyte
