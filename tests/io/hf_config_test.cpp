#include "io/hf_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "io/architectures.h"
#include "io/quant_config.h"
#include "support/expect_status.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::expect_failure;
using testing::TempFolder;

// A right config.json, with fields replaced ("" removes one) or added.
std::string config(std::map<std::string, std::string> changes = {}) {
  std::map<std::string, std::string> fields = {{"architectures", R"(["Qwen3ForCausalLM"])"},
                                               {"model_type", R"("qwen3")"},
                                               {"hidden_size", "64"},
                                               {"intermediate_size", "128"},
                                               {"num_hidden_layers", "2"},
                                               {"num_attention_heads", "4"},
                                               {"num_key_value_heads", "2"},
                                               {"vocab_size", "100"},
                                               {"max_position_embeddings", "4096"},
                                               {"rms_norm_eps", "1e-06"}};
  for (const auto& [key, value] : changes) fields[key] = value;
  std::string json = "{";
  for (const auto& [key, value] : fields) {
    if (!value.empty()) json += (json.size() > 1 ? "," : "") + ("\"" + key + "\":") + value;
  }
  return json + "}";
}

Result<HfConfig> parse(const std::map<std::string, std::string>& changes) {
  return parse_hf_config(config(changes), "config.json");
}

TEST(HfConfig, Defaults) {
  HB_ASSERT_OK(const HfConfig c, parse({}));
  EXPECT_EQ(c.model_type, "qwen3");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.rope.kind, RopeKind::kDefault);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_EQ(c.rope.original_max_position, 4096);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_FALSE(c.attention_bias);
  EXPECT_TRUE(c.eos_token_ids.empty());
  HB_ASSERT_OK(const HfConfig mha, parse({{"num_key_value_heads", "null"}}));
  EXPECT_EQ(mha.num_kv_heads, 4);
}

TEST(HfConfig, Architectures) {
  for (const Architecture& known : kArchitectures) {
    const auto& [type, name] = std::pair(known.name, known.class_name);
    HB_ASSERT_OK(const HfConfig c, parse({{"architectures", "[\"" + std::string(name) + "\"]"}, {"model_type", ""}}));
    EXPECT_EQ(c.model_type, type);
    HB_ASSERT_OK(const HfConfig d, parse({{"architectures", ""}, {"model_type", "\"" + std::string(type) + "\""}}));
    EXPECT_EQ(d.architectures, std::vector<std::string>{std::string(name)});
  }
  const std::string list = "supported: LlamaForCausalLM (llama), Qwen2ForCausalLM (qwen2), Qwen3ForCausalLM (qwen3)";
  expect_failure(parse({{"architectures", R"(["DeepseekV3ForCausalLM"])"}}), StatusCode::kUnsupported,
                 {"config.json", "'DeepseekV3ForCausalLM'", list});
  // The class decides, not the model type: a classifier on a Qwen3 body is no language model.
  expect_failure(parse({{"architectures", R"(["Qwen3ForSequenceClassification"])"}}), StatusCode::kUnsupported,
                 {"'Qwen3ForSequenceClassification'", list});
  expect_failure(parse({{"architectures", "[]"}, {"model_type", R"("bert")"}}), StatusCode::kUnsupported,
                 {"'bert'", list});
  expect_failure(parse({{"architectures", ""}, {"model_type", ""}}), StatusCode::kInvalidData,
                 {"neither architectures nor model_type"});
}

// CVE-2026-21869: every integer is parsed into a range.
TEST(HfConfig, Ranges) {
  const auto invalid = StatusCode::kInvalidData;
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "max_position_embeddings"}) {
    expect_failure(parse({{key, ""}}), invalid, {"config.json", key});
    for (const char* bad : {"0", "-1", "1e30", "9223372036854775808", "1.5", "\"64\"", "[64]", "true"})
      expect_failure(parse({{key, bad}}), invalid, {"config.json", key});
  }
  expect_failure(parse({{"num_key_value_heads", "3"}}), invalid,
                 {"num_attention_heads 4", "multiple of num_key_value_heads 3"});
  expect_failure(parse({{"num_attention_heads", "6"}}), invalid,
                 {"no head_dim", "hidden_size 64", "num_attention_heads 6"});
  expect_failure(parse({{"head_dim", "5"}}), invalid, {"head_dim is 5", "even"});
  EXPECT_TRUE(parse({{"num_attention_heads", "6"}, {"head_dim", "32"}}).ok());
  for (const char* bad : {"0", "-1e-6", "1", "1e400", "null1", "\"x\""})
    EXPECT_FALSE(parse({{"rms_norm_eps", bad}}).ok()) << bad;
  expect_failure(parse({{"rms_norm_eps", "0.5"}}), invalid, {"rms_norm_eps", "is 0.5", "expected 1e-12 to 0.1"});
  expect_failure(parse({{"hidden_act", R"("gelu")"}}), StatusCode::kUnsupported,
                 {"hidden_act", "'gelu'", "supported: silu"});
  EXPECT_EQ(parse({{"hidden_act", R"("swish")"}})->hidden_act, "silu") << "an older name";
  expect_failure(parse({{"tie_word_embeddings", "1"}}), invalid, {"tie_word_embeddings"});
}

TEST(HfConfig, TokenIds) {
  HB_ASSERT_OK(const HfConfig one, parse({{"eos_token_id", "7"}, {"bos_token_id", "3"}, {"pad_token_id", "null"}}));
  EXPECT_EQ(one.eos_token_ids, std::vector<int64_t>{7});
  EXPECT_EQ(one.bos_token_id, 3);
  EXPECT_EQ(one.pad_token_id, std::nullopt);
  HB_ASSERT_OK(const HfConfig list, parse({{"eos_token_id", "[7, 9]"}}));
  EXPECT_EQ(list.eos_token_ids, (std::vector<int64_t>{7, 9}));
  HB_ASSERT_OK(const HfConfig none, parse({{"pad_token_id", "-1"}, {"bos_token_id", "-1"}, {"eos_token_id", "-1"}}));
  EXPECT_EQ(none.pad_token_id, std::nullopt);
  EXPECT_EQ(none.bos_token_id, std::nullopt);
  EXPECT_TRUE(none.eos_token_ids.empty());
  expect_failure(parse({{"eos_token_id", "[7, -9]"}}), StatusCode::kInvalidData, {"eos_token_id"});
  expect_failure(parse({{"eos_token_id", "[7, 100]"}}), StatusCode::kInvalidData,
                 {"100", "outside the vocabulary of 100"});
  expect_failure(parse({{"eos_token_id", "\"</s>\""}}), StatusCode::kInvalidData, {"eos_token_id"});
}

TEST(HfConfig, RopeInBothSpellings) {
  // transformers 4.
  HB_ASSERT_OK(
      const HfConfig four,
      parse(
          {{"rope_theta", "500000.0"},
           {"rope_scaling",
            R"({"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"})"}}));
  // transformers 5.
  HB_ASSERT_OK(
      const HfConfig five,
      parse(
          {{"rope_parameters",
            R"({"rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"})"}}));
  for (const RopeFacts& rope : {four.rope, five.rope}) {
    EXPECT_EQ(rope.kind, RopeKind::kLlama3);
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_position, 8192);
  }
  // The old key "type", as the Qwen2.5 cards write it.
  HB_ASSERT_OK(const HfConfig yarn,
               parse({{"rope_scaling", R"({"type":"yarn","factor":4.0,"original_max_position_embeddings":32768})"}}));
  EXPECT_EQ(yarn.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(yarn.rope.factor, 4.0);
  EXPECT_EQ(yarn.rope.beta_fast, 32.0);
  EXPECT_EQ(yarn.rope.beta_slow, 1.0);
  EXPECT_EQ(yarn.rope.original_max_position, 32768);
  EXPECT_TRUE(yarn.rope.truncate);
  HB_ASSERT_OK(
      const HfConfig more,
      parse(
          {{"rope_scaling",
            R"({"rope_type":"yarn","factor":32,"beta_fast":16,"beta_slow":2,"attention_factor":1.1,"mscale":1,"mscale_all_dim":0.5,"truncate":false})"}}));
  EXPECT_EQ(more.rope.original_max_position, 4096);
  EXPECT_EQ(more.rope.attention_factor, 1.1);
  EXPECT_EQ(more.rope.mscale, 1.0);
  EXPECT_EQ(more.rope.mscale_all_dim, 0.5);
  EXPECT_FALSE(more.rope.truncate);
  HB_ASSERT_OK(const HfConfig linear, parse({{"rope_scaling", R"({"type":"linear","factor":2})"}}));
  EXPECT_EQ(linear.rope.kind, RopeKind::kLinear);
  HB_ASSERT_OK(const HfConfig plain, parse({{"rope_parameters", R"({"rope_type":"default","rope_theta":1000000})"}}));
  EXPECT_EQ(plain.rope.kind, RopeKind::kDefault);
  EXPECT_EQ(plain.rope.theta, 1e6);
}

TEST(HfConfig, BadRope) {
  const auto unsupported = StatusCode::kUnsupported, invalid = StatusCode::kInvalidData;
  expect_failure(parse({{"rope_scaling", R"({"type":"dynamic","factor":2})"}}), unsupported,
                 {"config.json", "rope_scaling", "'dynamic'", "supported: default, linear, llama3, yarn"});
  expect_failure(parse({{"rope_scaling", R"({"type":"longrope"})"}}), unsupported, {"'longrope'"});
  expect_failure(parse({{"rope_parameters",
                         R"({"full_attention":{"rope_type":"default"},"sliding_attention":{"rope_type":"default"}})"}}),
                 unsupported, {"rope_parameters", "per layer type"});
  expect_failure(parse({{"partial_rotary_factor", "0.5"}}), unsupported, {"partial_rotary_factor", "0.5"});
  expect_failure(parse({{"rope_scaling", R"({"type":"linear"})"}}), invalid, {"rope_scaling", "factor"});
  expect_failure(parse({{"rope_scaling", R"({"type":"linear","factor":0.5})"}}), invalid, {"factor", "0.5"});
  expect_failure(parse({{"rope_scaling", R"({"type":"linear","factor":"2"})"}}), invalid, {"factor"});
  expect_failure(parse({{"rope_scaling", R"({"rope_type":"llama3","factor":8})"}}), invalid,
                 {"rope_scaling", "low_freq_factor"});
  expect_failure(
      parse(
          {{"rope_scaling",
            R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":8192})"}}),
      invalid, {"high_freq_factor 4", "low_freq_factor 4"});
  expect_failure(parse({{"rope_theta", "0"}}), invalid, {"rope_theta"});
}

// A YaRN line as the model cards give it, added to a file that transformers 5 wrote.
TEST(HfConfig, RopeInBothSpellingsAtOnceMustAgree) {
  const std::string yarn = R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":1024})";
  const std::string plain = R"({"rope_type":"default","rope_theta":10000})";
  expect_failure(
      parse({{"rope_parameters", plain}, {"rope_scaling", yarn}}), StatusCode::kInvalidData,
      {"config.json: rope_scaling", "yarn with factor 4", "rope_parameters says default", "expected the same"});
  expect_failure(parse({{"rope_parameters", plain}, {"rope_theta", "5e5"}}), StatusCode::kInvalidData,
                 {"rope_theta is 5e+05", "rope_parameters has 10000"});
  HB_ASSERT_OK(const HfConfig both,
               parse({{"rope_parameters", yarn}, {"rope_scaling", yarn}, {"rope_theta", "10000"}}));
  EXPECT_EQ(both.rope.kind, RopeKind::kYarn);
  for (const char* nothing : {"null", "{}"}) {
    HB_ASSERT_OK(const HfConfig one, parse({{"rope_parameters", yarn}, {"rope_scaling", nothing}}));
    EXPECT_EQ(one.rope.factor, 4.0);
  }
}

TEST(HfConfig, OtherRotations) {
  EXPECT_TRUE(parse({{"rope_interleaved", "false"}, {"use_mrope", "null"}}).ok());
  for (const char* key : {"rope_interleaved", "use_mrope"}) {
    expect_failure(parse({{key, "true"}}), StatusCode::kUnsupported, {"config.json", key, "expected false"});
  }
}

TEST(HfConfig, SlidingWindowOnlyMattersInUse) {
  HB_ASSERT_OK(const HfConfig off, parse({{"sliding_window", "4096"}, {"use_sliding_window", "false"}}));
  EXPECT_EQ(off.sliding_window, 4096);
  EXPECT_TRUE(parse({{"sliding_window", "4096"}, {"use_sliding_window", "true"}, {"max_window_layers", "2"}}).ok());
  EXPECT_TRUE(parse({{"layer_types", R"(["full_attention","full_attention"])"}}).ok());
  expect_failure(parse({{"sliding_window", "4096"}, {"use_sliding_window", "true"}, {"max_window_layers", "1"}}),
                 StatusCode::kUnsupported, {"config.json", "sliding-window"});
  expect_failure(parse({{"layer_types", R"(["full_attention","sliding_attention"])"}}), StatusCode::kUnsupported,
                 {"sliding-window"});
  expect_failure(parse({{"layer_types", R"(["full_attention"])"}}), StatusCode::kInvalidData,
                 {"layer_types", "1 layers", "num_hidden_layers is 2"});
}

TEST(HfConfig, BrokenFiles) {
  for (const char* text : {"", "{", "[]", "null", "42", "{\"a\":1,\"a\":2}", "{\"architectures\":\"x\"}", "\xff"}) {
    EXPECT_FALSE(parse_hf_config(text, "config.json").ok()) << text;
  }
  const TempFolder folder;
  expect_failure(read_hf_config(folder.path()), StatusCode::kNotFound, {folder.path(), "no config.json"});
  std::filesystem::create_directory(folder / "config.json");
  expect_failure(read_hf_config(folder.path()), StatusCode::kInvalidData, {"config.json", "not a regular file"});
}

// Python's json writes words that JSON does not have; they matter only where a number is needed.
TEST(HfConfig, PythonNumbers) {
  EXPECT_TRUE(parse({{"time_step_limit", R"([0.0, Infinity, -Infinity, NaN, "NaN \" Infinity"])"}}).ok());
  expect_failure(parse({{"hidden_size", "NaN"}}), StatusCode::kInvalidData, {"config.json", "hidden_size"});
  expect_failure(parse({{"rms_norm_eps", "NaN"}}), StatusCode::kInvalidData, {"rms_norm_eps: is NaN, expected 1e-12"});
  expect_failure(parse({{"rope_scaling", R"({"type":"linear","factor":Infinity})"}}), StatusCode::kInvalidData,
                 {"factor: is Infinity, expected 1 to"});
  EXPECT_FALSE(parse({{"x", "Infinit"}}).ok());
  expect_failure(parse({{"model_type", "NaN"}}), StatusCode::kInvalidData,
                 {"model_type: found NaN, expected a string"});
  // Any other text is a text, and none gets into the message with its line ends.
  const auto other = parse({{"rms_norm_eps", R"("1\nInfinity")"}});
  expect_failure(other, StatusCode::kInvalidData, {"rms_norm_eps: found a string"});
  EXPECT_EQ(other.status().message().find('\n'), std::string::npos);
}

// What is no JSON says what to do, and so does what is JSON of another kind.
TEST(HfConfig, BrokenFilesSayWhatToDo) {
  for (const char* text : {"", "{", "\xff"})
    expect_failure(parse_hf_config(text, "config.json"), StatusCode::kInvalidData,
                   {"config.json", "download the file"});
  expect_failure(parse_generation_config("[]", "g.json"), StatusCode::kInvalidData,
                 {"found an array, expected an object"});
}

TEST(GenerationConfig, SwitchedOffAndImpossible) {
  HB_ASSERT_OK(const GenerationConfig off, parse_generation_config(R"({"top_k":-1})", "g.json"));
  EXPECT_EQ(off.top_k, 0);  // vLLM's "all"
  HB_ASSERT_OK(const GenerationConfig greedy, parse_generation_config(R"({"top_p":0})", "g.json"));
  EXPECT_EQ(greedy.top_p, 0.0);  // transformers keeps the most likely token alone
  expect_failure(parse_generation_config(R"({"top_p":-0.1})", "g.json"), StatusCode::kInvalidData,
                 {"g.json", "top_p: is -0.1, expected 0 to 1"});
  expect_failure(parse_generation_config(R"({"temperature":NaN})", "g.json"), StatusCode::kInvalidData,
                 {"temperature: is NaN"});
}

TEST(GenerationConfig, Reads) {
  HB_ASSERT_OK(
      const GenerationConfig c,
      parse_generation_config(
          R"({"bos_token_id":1,"do_sample":true,"eos_token_id":[2,3],"pad_token_id":4,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.1,"repetition_penalty":1.05,"max_new_tokens":100,"transformers_version":"4.51.0"})",
          "generation_config.json"));
  EXPECT_EQ(c.eos_token_ids, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_EQ(c.pad_token_id, 4);
  EXPECT_EQ(c.do_sample, true);
  EXPECT_EQ(c.temperature, 0.6);
  EXPECT_EQ(c.top_k, 20);
  EXPECT_EQ(c.top_p, 0.95);
  EXPECT_EQ(c.min_p, 0.1);
  EXPECT_EQ(c.repetition_penalty, 1.05);
  EXPECT_EQ(c.max_new_tokens, 100);
  HB_ASSERT_OK(const GenerationConfig empty, parse_generation_config("{}", "generation_config.json"));
  EXPECT_EQ(empty.temperature, std::nullopt);
  for (const char* bad :
       {R"({"temperature":-1})", R"({"top_p":1.5})", R"({"top_p":"1"})", R"({"top_k":1e12})", R"({"min_p":-0.1})",
        R"({"repetition_penalty":0})", R"({"max_new_tokens":0})", R"({"eos_token_id":-2})", "[]", "", "{"}) {
    expect_failure(parse_generation_config(bad, "generation_config.json"), StatusCode::kInvalidData,
                   {"generation_config.json"});
  }
  const TempFolder folder;
  HB_ASSERT_OK(const GenerationConfig absent, read_generation_config(folder.path()));
  EXPECT_TRUE(absent.eos_token_ids.empty());
}

// Every configuration of the shared data: read, or refused with its reason.
struct Published {
  const char* name;
  const char* refusal;     // "" for a model that is read
  const char* quant = "";  // its algorithm
  const char* scheme = "ModelOpt";
  ModuleQuant linears = ModuleQuant::kNVFP4;  // of the modules that no list names
};

class PublishedConfigs : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedConfigs, AreReadOrRefused) {
  const Published& model = GetParam();
  const std::string folder = testing::shared_data(std::string("model_configs/") + model.name);
  HB_SKIP_WITHOUT(folder, "shared/data/model_configs");
  const auto config = read_hf_config(folder);
  if (*model.refusal != '\0') {
    expect_failure(config, StatusCode::kUnsupported, {"config.json", model.refusal, "supported: LlamaForCausalLM"});
  } else {
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_GT(config->vocab_size, 40000);
  }
  const auto quant = read_quant_config(folder);
  ASSERT_TRUE(quant.ok()) << quant.status().message();
  EXPECT_EQ(quant->algorithm, model.quant);
  EXPECT_EQ(quant->quantised, *model.quant != '\0' || std::string(model.scheme) != "ModelOpt");
  EXPECT_TRUE(quant->warnings.empty()) << quant->warnings.front();
  if (!quant->quantised) return;
  EXPECT_EQ(quant->scheme, model.scheme);
  EXPECT_EQ(quant->default_quant, model.linears);
}

INSTANTIATE_TEST_SUITE_P(
    SharedData, PublishedConfigs,
    ::testing::Values(
        Published{"DeepSeek-R1", "'DeepseekV3ForCausalLM'", "", "FP8", ModuleQuant::kFP8},
        Published{"DeepSeek-R1-Distill-Qwen-14B", ""}, Published{"DeepSeek-R1-Distill-Qwen-7B", ""},
        Published{"DeepSeek-V3.1-NVFP4", "'DeepseekV3ForCausalLM'", "NVFP4"},
        Published{"DeepSeek-V4-Flash-NVFP4", "'DeepseekV4ForCausalLM'", "MIXED_PRECISION", "ModelOpt",
                  ModuleQuant::kNone},
        Published{"Gemma-4-31B-IT-NVFP4", "'Gemma4ForConditionalGeneration'", "NVFP4"},
        Published{"Kimi-K2.5-NVFP4", "'KimiK25ForConditionalGeneration'", "NVFP4"}, Published{"Meta-Llama-3.1-8B", ""},
        Published{"NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "'NemotronHForCausalLM'", "NVFP4"},
        Published{"NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "'NemotronHForCausalLM'", "NVFP4"},
        Published{"Qwen3-0.6B", ""}, Published{"Qwen3-1.7B", ""}, Published{"Qwen3-14B", ""},
        Published{"Qwen3-235B-A22B-NVFP4", "'Qwen3MoeForCausalLM'", "NVFP4"},
        Published{"Qwen3-30B-A3B", "'Qwen3MoeForCausalLM'"}, Published{"Qwen3-32B", ""},
        Published{"Qwen3-32B-FP8-Static-PerTensor", "", "FP8", "ModelOpt", ModuleQuant::kFP8},
        Published{"Qwen3-8B", ""},
        Published{"Qwen3-8B-MXFP4-ct", "", "mxfp4-pack-quantized", "compressed-tensors", ModuleQuant::kMXFP4},
        Published{"Qwen3-8B-NVFP4-ct", "", "nvfp4-pack-quantized", "compressed-tensors"},
        Published{"Qwen3-8B-NVFP4-modelopt", "", "NVFP4"},
        Published{"Qwen3-8B-NVFP4A16-ct", "", "nvfp4-pack-quantized", "compressed-tensors", ModuleQuant::kNVFP4W4A16},
        Published{"Qwen3.5-122B-A10B-NVFP4", "'Qwen3_5MoeForConditionalGeneration'", "NVFP4"},
        Published{"Qwen3.5-27B", "'Qwen3_5ForConditionalGeneration'"},
        Published{"Qwen3.6-27B-NVFP4", "'Qwen3_5ForConditionalGeneration'", "MIXED_PRECISION", "ModelOpt",
                  ModuleQuant::kNone},
        Published{"SmolLM2-135M-Instruct", ""},
        Published{"gpt-oss-20b", "'GptOssForCausalLM'", "", "MXFP4", ModuleQuant::kMXFP4}),
    [](const auto& param_info) {
      std::string name = param_info.param.name;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

// The list above is the whole folder.
TEST(PublishedConfigs, NoneIsForgotten) {
  const std::string root = testing::shared_data("model_configs");
  HB_SKIP_WITHOUT(root, "shared/data/model_configs");
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) folders += entry.is_directory() ? 1 : 0;
  EXPECT_EQ(folders, 27u);
}

TEST(PublishedConfigs, FactsOfSome) {
  const std::string root = testing::shared_data("model_configs");
  HB_SKIP_WITHOUT(root, "shared/data/model_configs");
  HB_ASSERT_OK(const HfConfig llama, read_hf_config(root + "/Meta-Llama-3.1-8B"));
  EXPECT_EQ(llama.rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.num_kv_heads, 8);
  HB_ASSERT_OK(const HfConfig qwen, read_hf_config(root + "/Qwen3-0.6B"));
  EXPECT_EQ(qwen.head_dim, 128);
  EXPECT_EQ(qwen.hidden_size, 1024);
  EXPECT_TRUE(qwen.tie_word_embeddings);
  HB_ASSERT_OK(const HfConfig distill, read_hf_config(root + "/DeepSeek-R1-Distill-Qwen-7B"));
  EXPECT_EQ(distill.model_type, "qwen2");
  EXPECT_EQ(distill.bos_token_id, 151643);
  HB_ASSERT_OK(const GenerationConfig generation, read_generation_config(root + "/DeepSeek-R1-Distill-Qwen-7B"));
  EXPECT_EQ(generation.bos_token_id, 151646);  // differs from config.json: the known trap of these models
  EXPECT_EQ(generation.temperature, 0.6);
  HB_ASSERT_OK(const GenerationConfig list, read_generation_config(root + "/Qwen3-8B"));
  EXPECT_EQ(list.eos_token_ids, (std::vector<int64_t>{151645, 151643}));
  // Saved again by another version of transformers: dtype for torch_dtype, layer_types added.
  HB_ASSERT_OK(const HfConfig first, read_hf_config(root + "/Qwen3-8B"));
  HB_ASSERT_OK(const HfConfig resaved,
               parse_hf_config(testing::read_file(root + "/Qwen3-8B/config.resaved.json"), "config.resaved.json"));
  EXPECT_EQ(first.dtype, "bfloat16");
  EXPECT_EQ(resaved.dtype, "float32");
  EXPECT_EQ(resaved.num_layers, first.num_layers);
  EXPECT_EQ(resaved.rope.theta, first.rope.theta);
}

}  // namespace
}  // namespace halfbyte
