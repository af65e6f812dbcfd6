// Loading: what comes out of a folder, the plan that is chosen, and every way in which a folder can be wrong.
#include "model/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "formats/nvfp4.h"
#include "halfbyte/model.h"
#include "model/load_plan.h"
#include "model/model_impl.h"
#include "model/synthetic.h"
#include "support/gguf_file.h"
#include "support/temp_folder.h"
#include "support/tiny_synthetic.h"
#include "support/write_model_folder.h"

namespace halfbyte {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_all;
using testing::StoredTensor;
using testing::TempFolder;
using testing::tiny_config;
using testing::write_model_folder;

LoadOptions with_plan(const std::string& plan) {
  LoadOptions options;
  options.plan = *parse_plan(plan);
  options.threads = 2;
  return options;
}

// A folder with the tiny model of an architecture, after `change` has been at its tensors and configuration.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& type,
                       const std::function<void(HfConfig&, std::vector<StoredTensor>&)>& change = nullptr,
                       bool bf16 = false) {
    HfConfig config = tiny_config(type);
    std::vector<StoredTensor> tensors = read_all(*synthetic_source(config, type).tensors);
    if (change) change(config, tensors);
    write_model_folder(folder_.path(), config, tensors, bf16);
  }
  const std::string& path() const { return folder_.path(); }
  const TempFolder& folder() const { return folder_; }
  Status load_error(const std::string& plan = "w4a16") const {
    const auto model = Model::load(path(), with_plan(plan));
    EXPECT_FALSE(model.ok());
    return model.status();
  }

 private:
  TempFolder folder_;
};

StoredTensor* find(std::vector<StoredTensor>& tensors, const std::string& name) {
  for (StoredTensor& t : tensors)
    if (t.name == name) return &t;
  return nullptr;
}

TEST(Load, AFolderGivesTheModelOfItsTensors) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    const ModelFolder folder(type);
    const auto model = Model::load(folder.path(), with_plan("f32"));
    ASSERT_TRUE(model.ok()) << type << ": " << model.status().message();
    const ModelSummary& s = (*model)->summary();
    EXPECT_EQ(s.architecture, type);
    EXPECT_EQ(s.source, "Hugging Face folder");
    EXPECT_EQ(s.vocab, 131);
    EXPECT_EQ(s.context, 256);
    EXPECT_GT(s.parameters, 20000);
    EXPECT_TRUE(s.notes.empty()) << s.notes[0];
    const Model::Impl& impl = (*model)->impl();
    EXPECT_EQ(impl.config.qk_norm, std::string(type) == "qwen3");
    EXPECT_EQ(impl.config.qkv_bias, std::string(type) == "qwen2");
    EXPECT_EQ(impl.weights.layers[1].q.bias.empty(), std::string(type) != "qwen2");
    EXPECT_EQ(impl.weights.layers[1].k_norm.size(), std::string(type) == "qwen3" ? 12u : 0u);
    EXPECT_EQ(impl.weights.layers[0].down.name, "layers.0.mlp.down_proj");
    EXPECT_EQ(impl.weights.head.name, "lm_head");
    EXPECT_EQ(impl.weights.head.n, 131);
  }
}

TEST(Load, RoundingSharesOneTensorScaleAmongLinearsWithOneInput) {
  const ModelFolder folder("llama", [](HfConfig&, std::vector<StoredTensor>& tensors) {
    find(tensors, "model.layers.0.self_attn.v_proj.weight")->values[7] = 3.0f;
    find(tensors, "model.layers.0.mlp.up_proj.weight")->values[7] = -5.0f;
  });
  const auto model = Model::load(folder.path(), with_plan("w4a16"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const LayerWeights& l = (*model)->impl().weights.layers[0];
  EXPECT_EQ(l.q.tensor_scale, NVFP4::tensor_scale(3.0f));
  EXPECT_EQ(l.k.tensor_scale, l.q.tensor_scale);
  EXPECT_EQ(l.v.tensor_scale, l.q.tensor_scale);
  EXPECT_EQ(l.gate.tensor_scale, NVFP4::tensor_scale(5.0f));
  EXPECT_EQ(l.up.tensor_scale, l.gate.tensor_scale);
  EXPECT_NE(l.o.tensor_scale, l.q.tensor_scale);
  EXPECT_TRUE(l.v.same_input_as(l.q));
}

// ModelOpt's and compressed-tensors' names; a plan that has no use for them leaves them.
TEST(Load, CacheScalesAreTheCheckpointsOrOne) {
  const auto with = [](std::vector<StoredTensor> scales) {
    return ModelFolder("llama", [scales](HfConfig&, std::vector<StoredTensor>& tensors) {
      tensors.insert(tensors.end(), scales.begin(), scales.end());
    });
  };
  const ModelFolder folder = with({{"model.layers.0.self_attn.k_proj.k_scale", {1}, {0.25f}},
                                   {"model.layers.0.self_attn.v_scale", {1}, {0.5f}},
                                   {"model.layers.1.self_attn.attn.k_scale", {}, {3.0f}}});
  for (const char* plan : {"w4a16,kv=fp8", "w4a16,kv=nvfp4", "w4a16,kv=e1m2"}) {
    const auto model = Model::load(folder.path(), with_plan(plan));
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<LayerWeights>& l = (*model)->impl().weights.layers;
    EXPECT_EQ((std::vector<float>{l[0].key_scale, l[0].value_scale, l[1].key_scale, l[1].value_scale}),
              (std::vector<float>{0.25f, 0.5f, 3.0f, 1.0f}));
    ASSERT_EQ((*model)->summary().notes.size(), 1u);
    EXPECT_THAT((*model)->summary().notes[0], HasSubstr("1 layers' keys or values have no scale"));
  }
  for (const char* plan : {"w4a16", "w4a16,kv=fp8,kv_scale=1"}) {
    const auto model = Model::load(folder.path(), with_plan(plan));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ((*model)->impl().weights.layers[0].key_scale, 1.0f);
    EXPECT_TRUE((*model)->summary().notes.empty());
  }
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    const ModelFolder broken = with({{"model.layers.1.self_attn.v_proj.v_scale", {1}, {bad}}});
    EXPECT_THAT(
        Model::load(broken.path(), with_plan("w4a16,kv=fp8")).status().message(),
        AllOf(HasSubstr("model.layers.1.self_attn.v_proj.v_scale"), HasSubstr("expected a finite number above 0")));
  }
}

TEST(Load, TheCacheFormatReplacesAnyPlans) {
  LoadOptions options = with_plan("w4a4,kv=f32");
  options.kv = KvKind::kE1M2;
  const ModelFolder folder("llama");
  EXPECT_EQ((*Model::load(folder.path(), options))->plan().kv, KvKind::kE1M2);
  options.plan.reset();
  const auto model = Model::load(folder.path(), options);
  EXPECT_EQ((*model)->plan().kv, KvKind::kE1M2);
  EXPECT_EQ((*model)->plan().preset, "w4a16");
}

// The file keeps q and k of the llama architecture in another order, so their BF16 cannot be packed as it is stored.
TEST(Load, ABf16GgufFileIsTheModelOfItsFolder) {
  TempFolder folder, hf_folder;
  testing::TinyModel shape;
  shape.bf16 = true;
  const std::string file = folder.write("m.gguf", testing::tiny_gguf(shape));
  const auto source = open_model_source(file);
  ASSERT_TRUE(source.ok()) << source.status().message();
  write_model_folder(hf_folder.path(), source->config, read_all(*source->tensors), /*bf16=*/true);
  for (const char* plan : {"bf16", "w4a16", "f32"}) {
    const auto gguf = Model::load(file, with_plan(plan)), hf = Model::load(hf_folder.path(), with_plan(plan));
    ASSERT_TRUE(gguf.ok()) << gguf.status().message();
    ASSERT_TRUE(hf.ok()) << hf.status().message();
    for (size_t i = 0; i < 2; ++i) {
      const LayerWeights &a = (*gguf)->impl().weights.layers[i], &b = (*hf)->impl().weights.layers[i];
      for (const auto part : {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::o})
        EXPECT_TRUE(std::ranges::equal((a.*part).packed.bytes(), (b.*part).packed.bytes()))
            << plan << " " << (a.*part).name;
    }
  }
}

TEST(Load, ThreadsAreChecked) {
  LoadOptions options;
  for (const int threads : {-1, 4097}) {
    options.threads = threads;
    const Status status = Model::synthetic("tiny", options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("threads is " + std::to_string(threads)));
  }
}

TEST(Load, OverridesReachTheKernels) {
  const ModelFolder folder("llama");
  const auto model = Model::load(
      folder.path(),
      with_plan("w4a4,layers.0.*:weights=bf16,layers.1.mlp.down_proj:activations=fp8,lm_head:weights=mxfp4"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelWeights& w = (*model)->impl().weights;
  EXPECT_EQ(w.layers[0].q.kernel->weights, WeightFormat::kBF16);
  EXPECT_EQ(w.layers[0].q.kernel->activations, ActivationMode::kA16);
  EXPECT_EQ(w.layers[1].q.kernel->weights, WeightFormat::kNVFP4);
  EXPECT_EQ(w.layers[1].q.kernel->activations, ActivationMode::kA4);
  EXPECT_EQ(w.layers[1].down.kernel->activations, ActivationMode::kA8);
  EXPECT_EQ(w.head.kernel->weights, WeightFormat::kMXFP4);
  EXPECT_EQ(w.head.kernel->activations, ActivationMode::kA16);
}

TEST(Load, TheDefaultPlanIsW4A16AndAStoredPlanWins) {
  const ModelFolder folder("llama");
  LoadOptions options;
  options.threads = 1;
  auto model = Model::load(folder.path(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->plan(), *plan_preset("w4a16"));
  const PrecisionPlan stored = *parse_plan("w4a8,layers.1.*:weights=bf16");
  folder.folder().write("halfbyte_plan.json", plan_to_json(stored));
  model = Model::load(folder.path(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->plan(), stored);
  folder.folder().write("halfbyte_plan.json", R"({"weight": 1})");
  const Status broken = Model::load(folder.path(), options).status();
  EXPECT_THAT(broken.message(), AllOf(HasSubstr("halfbyte_plan.json"), HasSubstr("unknown key 'weight'")));
}

TEST(Load, ForcedKernelsAreUsedAndUnknownOnesRefused) {
  const ModelFolder folder("llama");
  LoadOptions options = with_plan("w4a16");
  options.kernels = "ref";
  auto model = Model::load(folder.path(), options);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->summary().kernels, "ref");
  EXPECT_EQ((*model)->impl().weights.layers[0].q.kernel->isa, Isa::kRef);
  options.kernels = "sse9";
  EXPECT_THAT(Model::load(folder.path(), options).status().message(), HasSubstr("sse9"));
}

TEST(Load, AMissingHeadIsTheEmbeddingAndSaysSo) {
  const ModelFolder folder("llama", [](HfConfig& config, std::vector<StoredTensor>& tensors) {
    ASSERT_FALSE(config.tie_word_embeddings);
    std::erase_if(tensors, [](const StoredTensor& t) { return t.name == "lm_head.weight"; });
  });
  const auto model = Model::load(folder.path(), with_plan("bf16"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE((*model)->config().tied_head);
  ASSERT_EQ((*model)->summary().notes.size(), 1u);
  EXPECT_THAT((*model)->summary().notes[0], HasSubstr("no lm_head"));
}

// What the tensors are decides, as in transformers 5: a head that is not the embedding is used, whatever is said of it.
TEST(Load, AStoredHeadBesideATiedEmbeddingIsUsedUnlessItIsTheCopy) {
  for (const bool copy : {true, false}) {
    const ModelFolder folder("llama", [copy](HfConfig& config, std::vector<StoredTensor>& tensors) {
      config.tie_word_embeddings = true;
      find(tensors, "lm_head.weight")->values = find(tensors, "model.embed_tokens.weight")->values;
      if (!copy) find(tensors, "lm_head.weight")->values[3] += 1.0f;
    });
    const auto model = Model::load(folder.path(), with_plan("f32"));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ((*model)->config().tied_head, copy);
    ASSERT_EQ((*model)->summary().notes.size(), copy ? 0u : 1u);
    for (const std::string& note : (*model)->summary().notes)
      EXPECT_THAT(note, HasSubstr("the stored lm_head is not the embedding"));
  }
}

// Names of a base class (no prefix) and of a multimodal one.
// What is odd in a configuration and does not keep the model from running is said.
TEST(Load, OddConfigurationsAreNoted) {
  const ModelFolder folder("qwen3");
  const auto notes = [&] {
    const auto model = Model::load(folder.path(), with_plan("w4a16"));
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? (*model)->summary().notes : std::vector<std::string>();
  };
  const std::vector<std::string> before = notes();
  std::ofstream(folder.path() + "/generation_config.json") << R"({"eos_token_id": [1, 99999], "top_p": 0})";
  std::ifstream config(folder.path() + "/config.json");
  std::string text(std::istreambuf_iterator<char>(config), {});
  text.replace(text.find("\"qwen3\""), 7, R"("llama", "architectures": ["Qwen3ForCausalLM"])");
  std::ofstream(folder.path() + "/config.json") << text;
  std::vector<std::string> now = notes();
  ASSERT_EQ(now.size(), before.size() + 3);
  EXPECT_THAT(now, ::testing::Contains(HasSubstr("config.json: model_type is 'llama', and architectures names "
                                                 "'Qwen3ForCausalLM'; read as qwen3")));
  EXPECT_THAT(now, ::testing::Contains(HasSubstr("generation_config.json: the end-of-text id 99999 is outside")));
  EXPECT_THAT(now, ::testing::Contains(HasSubstr("generation_config.json: top_p is 0")));
}

TEST(Load, TensorsUnderAnotherPrefixAreNamed) {
  for (const std::string prefix : {"", "model.language_model."}) {
    const ModelFolder folder("llama", [&](HfConfig&, std::vector<StoredTensor>& tensors) {
      for (StoredTensor& t : tensors)
        if (t.name.starts_with("model.")) t.name = prefix + t.name.substr(6);
    });
    EXPECT_THAT(folder.load_error().message(),
                AllOf(HasSubstr("no tensor 'model.embed_tokens.weight'"),
                      HasSubstr("it is called '" + prefix + "embed_tokens.weight' here")));
  }
}

TEST(Load, MissingMisshapenAndForeignTensorsAreNamed) {
  const auto drop = [](const std::string& name) {
    return [name](HfConfig&, std::vector<StoredTensor>& tensors) {
      std::erase_if(tensors, [&](const StoredTensor& t) { return t.name == name; });
    };
  };
  EXPECT_THAT(ModelFolder("llama", drop("model.norm.weight")).load_error().message(), HasSubstr("model.norm.weight"));
  EXPECT_THAT(ModelFolder("llama", drop("model.embed_tokens.weight")).load_error().message(),
              HasSubstr("model.embed_tokens.weight"));
  EXPECT_THAT(ModelFolder("qwen3", drop("model.layers.1.self_attn.k_norm.weight")).load_error().message(),
              HasSubstr("layers.1.self_attn.k_norm"));
  EXPECT_THAT(ModelFolder("llama", drop("model.layers.1.mlp.up_proj.weight")).load_error().message(),
              HasSubstr("layers.1.mlp.up_proj"));
  EXPECT_THAT(ModelFolder("qwen2", drop("model.layers.0.self_attn.q_proj.bias")).load_error().message(),
              HasSubstr("bias is missing"));

  const ModelFolder narrow("llama", [](HfConfig&, std::vector<StoredTensor>& tensors) {
    find(tensors, "model.layers.1.input_layernorm.weight")->dims = {20};
    find(tensors, "model.layers.1.input_layernorm.weight")->values.resize(20);
  });
  EXPECT_THAT(
      narrow.load_error().message(),
      AllOf(HasSubstr("model.safetensors"), HasSubstr("layers.1.input_layernorm"), HasSubstr("[20], expected [40]")));
  const ModelFolder turned("llama", [](HfConfig&, std::vector<StoredTensor>& tensors) {
    find(tensors, "model.layers.0.mlp.gate_proj.weight")->dims = {40, 72};
  });
  EXPECT_THAT(turned.load_error().message(), AllOf(HasSubstr("layers.0.mlp.gate_proj"),
                                                   HasSubstr("[40, 72], expected [72, 40]"), HasSubstr("config.json")));
  const ModelFolder vocabulary("llama", [](HfConfig& config, std::vector<StoredTensor>&) { config.vocab_size = 99; });
  EXPECT_THAT(vocabulary.load_error().message(), AllOf(HasSubstr("embed_tokens"), HasSubstr("expected [99, 40]")));
  const ModelFolder deeper("llama", [](HfConfig& config, std::vector<StoredTensor>&) { config.num_layers = 3; });
  EXPECT_THAT(deeper.load_error().message(), AllOf(HasSubstr("model.layers.2."), HasSubstr("3 layers")));
  const ModelFolder shallower("llama", [](HfConfig& config, std::vector<StoredTensor>&) { config.num_layers = 1; });
  EXPECT_THAT(shallower.load_error().message(),
              AllOf(HasSubstr("model.layers.1."), HasSubstr("(and 8 more) belongs to no part")));
  const ModelFolder biased("llama", [](HfConfig&, std::vector<StoredTensor>& tensors) {
    tensors.push_back({"model.layers.0.mlp.up_proj.bias", {72}, std::vector<float>(72)});
  });
  EXPECT_THAT(biased.load_error().message(),
              AllOf(HasSubstr("layers.0.mlp.up_proj"), HasSubstr("it has a bias, expected none")));
}

TEST(Load, TablesOfOlderExportersAreIgnored) {
  const ModelFolder folder("llama", [](HfConfig&, std::vector<StoredTensor>& tensors) {
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {6}, std::vector<float>(6)});
  });
  EXPECT_TRUE(Model::load(folder.path(), with_plan("bf16")).ok());
}

TEST(Load, NumbersThatAreNotFiniteAreRefusedInEveryPlan) {
  const auto set = [](const std::string& name, size_t at) {
    return [name, at](HfConfig&, std::vector<StoredTensor>& tensors) { find(tensors, name)->values[at] = NAN; };
  };
  for (const bool bf16 : {false, true}) {
    const ModelFolder weight("llama", set("model.layers.1.self_attn.o_proj.weight", 48 * 2 + 5), bf16);
    const ModelFolder embedding("llama", set("model.embed_tokens.weight", 41), bf16);
    const ModelFolder norm("llama", set("model.norm.weight", 9), bf16),
        bias("qwen2", set("model.layers.0.self_attn.k_proj.bias", 3), bf16);
    for (const char* plan : {"f32", "bf16", "w4a16", "w4a4-mxfp4"}) {
      EXPECT_THAT(weight.load_error(plan).message(),
                  AllOf(HasSubstr("model.safetensors"), HasSubstr("layers.1.self_attn.o_proj"),
                        HasSubstr("NaN at row 2, column 5")))
          << plan;
      EXPECT_THAT(embedding.load_error(plan).message(),
                  AllOf(HasSubstr("embed_tokens"), HasSubstr("NaN at row 1, column 1")))
          << plan;
      EXPECT_THAT(norm.load_error(plan).message(), AllOf(HasSubstr("model.norm.weight"), HasSubstr("element 9")))
          << plan;
      EXPECT_THAT(bias.load_error(plan).message(), AllOf(HasSubstr("k_proj.bias"), HasSubstr("element 3"))) << plan;
    }
  }
}

TEST(Load, StoredBF16KeepsItsBits) {
  const ModelFolder folder("llama", nullptr, /*bf16=*/true);
  const auto bf16 = Model::load(folder.path(), with_plan("bf16")), f32 = Model::load(folder.path(), with_plan("f32"));
  ASSERT_TRUE(bf16.ok() && f32.ok());
  std::vector<float> a(40), b(40);
  for (int32_t token = 0; token < 131; ++token) {
    (*bf16)->impl().weights.embedding.read(token, a.data());
    (*f32)->impl().weights.embedding.read(token, b.data());
    EXPECT_EQ(a, b);
  }
}

TEST(Load, ProgressRisesToTheTotalAndCanStop) {
  const ModelFolder folder("qwen3");
  LoadOptions options = with_plan("w4a16");
  uint64_t last = 0, total = 0;
  int calls = 0;
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, all);
    last = done;
    total = all;
    ++calls;
    return true;
  };
  ASSERT_TRUE(Model::load(folder.path(), options).ok());
  EXPECT_GT(calls, 10);
  EXPECT_EQ(last, total);
  const int all_calls = calls;
  for (const int stop_at : {1, 2, all_calls / 2, all_calls}) {
    calls = 0;
    options.progress = [&](uint64_t, uint64_t) { return ++calls < stop_at; };
    const auto stopped = Model::load(folder.path(), options);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
    EXPECT_EQ(calls, stop_at);
  }
}

TEST(Load, FootprintIsWhatTheModelTakes) {
  for (const std::string& plan : plan_preset_names()) {
    const ModelSource source = synthetic_source(tiny_config("qwen2"), "qwen2");
    const auto load_plan = make_load_plan(source, *plan_preset(plan), Isa::kRef);
    ASSERT_TRUE(load_plan.ok()) << load_plan.status().message();
    LoadOptions options = with_plan(plan);
    options.kernels = "ref";
    const auto model = Model::from_source(source, options);
    ASSERT_TRUE(model.ok());
    const ModelWeights& w = (*model)->impl().weights;
    uint64_t bytes = w.embedding.rows.size() + w.head.packed.size() + w.final_norm.size() * 4;
    for (const LayerWeights& l : w.layers) {
      bytes += (l.attention_norm.size() + l.mlp_norm.size() + l.q_norm.size() + l.k_norm.size()) * 4;
      for (const PackedLinear* p : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
        bytes += p->packed.size() + p->bias.size() * 4;
    }
    EXPECT_EQ(load_plan->footprint.resident(), bytes) << plan;
    // Each thread holds rows of its own while it rounds: at least one of the widest linear.
    const WeightFootprint& f = load_plan->footprint;
    EXPECT_EQ(f.peak(8), bytes + f.shared_staging + 8 * f.thread_staging) << plan;
    EXPECT_GE(f.thread_staging, static_cast<uint64_t>(source.config.intermediate_size) * sizeof(float)) << plan;
    EXPECT_EQ((*model)->summary().weight_bytes, bytes);
  }
}

TEST(Load, MemoryIsCheckedWithBothNumbers) {
  const Status status = check_memory(uint64_t{1} << 60, "some model", "choose a smaller one");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("some model needs"), HasSubstr("available"), HasSubstr("choose a smaller one")));
  EXPECT_TRUE(check_memory(1, "x", "y").ok());
}

TEST(Load, KvBytesPerTokenFollowThePlan) {
  const auto bf16 = testing::tiny_model("llama", "bf16"), f32 = testing::tiny_model("llama", "bf16,kv=f32");
  EXPECT_EQ(bf16->summary().kv_bytes_per_token, 2u * 2 * 24 * 2);
  EXPECT_EQ(f32->summary().kv_bytes_per_token, 2u * 2 * 24 * 4);
  const auto fp8 = testing::tiny_model("llama", "bf16,kv=fp8"), e1m2 = testing::tiny_model("llama", "bf16,kv=e1m2");
  EXPECT_EQ(fp8->summary().kv_bytes_per_token, 2u * 2 * 24);
  EXPECT_EQ(e1m2->summary().kv_bytes_per_token, 2u * 2 * 2 * (6 + 1));  // a head of 12 channels: codes and one scale
}

TEST(Synthetic, ShapesAreThoseOfTheirNames) {
  const std::map<std::string, int64_t> parameters{
      {"qwen2.5-1.5b", 1'543'714'304}, {"qwen3-8b", 8'190'735'360}, {"smollm2-135m", 134'515'008}};
  int64_t compared = 0;
  for (const std::string& name : synthetic_shape_names()) {
    const auto source = synthetic_source(name);
    ASSERT_TRUE(source.ok());
    const auto plan = make_load_plan(*source, *plan_preset("w4a16"), Isa::kRef);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
    if (!parameters.contains(name)) continue;
    EXPECT_EQ(plan->parameters, parameters.at(name)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 3);
  EXPECT_THAT(synthetic_source("qwen9").status().message(), HasSubstr("expected one of tiny, smollm2-135m"));
}

}  // namespace
}  // namespace halfbyte
