#include "io/quant_config.h"

#include <gtest/gtest.h>

#include "support/expect_status.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::expect_failure;

std::string in_config(const std::string& section) {
  return R"({"model_type":"qwen3","quantization_config":)" + section + "}";
}

Result<QuantConfig> from_config(const std::string& section) {
  return parse_quant_config(in_config(section), "");
}
Result<QuantConfig> from_hf(const std::string& json) {
  return parse_quant_config("{}", json);
}

TEST(QuantConfig, NothingSaidIsUnquantised) {
  for (const auto& [config, hf] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", ""}, {"{}", ""}, {R"({"quantization_config":null})", ""}}) {
    HB_ASSERT_OK(const QuantConfig q, parse_quant_config(config, hf));
    EXPECT_FALSE(q.quantised);
    EXPECT_EQ(q.for_module("model.layers.0.mlp.up_proj"), ModuleQuant::kNone);
  }
}

// The same description in all four shapes: both files, nested and flat.
TEST(QuantConfig, BothFilesBothShapes) {
  const std::string nested =
      R"({"producer":{"name":"modelopt","version":"0.39.0"},"quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":"FP8","group_size":16,"exclude_modules":["lm_head","model.layers.0.self_attn*"]}})";
  const std::string flat =
      R"({"quant_method":"modelopt","producer":{"name":"modelopt","version":"0.39.0"},"quant_algo":"NVFP4","kv_cache_scheme":{"dynamic":false,"num_bits":8,"type":"float"},"ignore":["lm_head","model.layers.0.self_attn*"],
      "config_groups":{"group_0":{"input_activations":{"dynamic":false,"num_bits":4,"type":"float","group_size":16},"weights":{"dynamic":false,"num_bits":4,"type":"float","group_size":16},"targets":["Linear"]}}})";
  for (const auto& result : {from_config(nested), from_config(flat), from_hf(nested), from_hf(flat)}) {
    ASSERT_TRUE(result.ok()) << result.status().message();
    const QuantConfig& q = *result;
    EXPECT_TRUE(q.quantised);
    EXPECT_EQ(q.algorithm, "NVFP4");
    EXPECT_EQ(q.producer, "modelopt 0.39.0");
    EXPECT_EQ(q.kv_cache, "FP8");
    EXPECT_EQ(q.scheme, "ModelOpt");
    EXPECT_EQ(q.for_module("model.layers.1.mlp.up_proj"), ModuleQuant::kNVFP4);
    EXPECT_EQ(q.for_module("lm_head"), ModuleQuant::kNone);
    EXPECT_EQ(q.for_module("model.layers.0.self_attn.q_proj"), ModuleQuant::kNone);
    EXPECT_EQ(q.for_module("model.layers.10.self_attn.q_proj"), ModuleQuant::kNVFP4);
    EXPECT_TRUE(q.warnings.empty());
  }
}

TEST(QuantConfig, WeightOnly) {
  HB_ASSERT_OK(
      const QuantConfig q,
      from_hf(
          R"({"quantization":{"quant_algo":"W4A16_NVFP4","kv_cache_quant_algo":null,"group_size":16,"exclude_modules":["lm_head"]}})"));
  EXPECT_EQ(q.for_module("model.layers.1.mlp.up_proj"), ModuleQuant::kNVFP4W4A16);
  // Without quant_algo the group says it: no input_activations.
  HB_ASSERT_OK(
      const QuantConfig g,
      from_config(
          R"({"quant_method":"modelopt","config_groups":{"g":{"weights":{"num_bits":4,"type":"float","group_size":16},"targets":["Linear"]}}})"));
  EXPECT_EQ(g.algorithm, "W4A16_NVFP4");
  HB_ASSERT_OK(
      const QuantConfig a,
      from_config(
          R"({"quant_method":"modelopt","config_groups":{"g":{"weights":{"num_bits":4,"type":"float","group_size":16},"input_activations":{"num_bits":4},"targets":["Linear"]}}})"));
  EXPECT_EQ(a.algorithm, "NVFP4");
}

TEST(QuantConfig, MixedPrecision) {
  HB_ASSERT_OK(
      const QuantConfig q,
      from_hf(
          R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"a.up":{"quant_algo":"W4A16_NVFP4","group_size":16},"a.down":{"quant_algo":"NVFP4","group_size":16}}}})"));
  EXPECT_EQ(q.for_module("a.up"), ModuleQuant::kNVFP4W4A16);
  EXPECT_EQ(q.for_module("a.down"), ModuleQuant::kNVFP4);
  EXPECT_EQ(q.for_module("a.gate"), ModuleQuant::kNone);  // unlisted
  expect_failure(
      from_hf(
          R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"a.up":{"quant_algo":"W4A16_AWQ"}}}})"),
      StatusCode::kUnsupported, {"hf_quant_config.json", "a.up", "'W4A16_AWQ': integer weights", "supported: NVFP4"});
  expect_failure(from_hf(R"({"quantization":{"quant_algo":"MIXED_PRECISION"}})"), StatusCode::kInvalidData,
                 {"MIXED_PRECISION", "quantized_layers"});
}

TEST(QuantConfig, OthersAreNamed) {
  const auto unsupported = StatusCode::kUnsupported;
  for (const char* algorithm : {"W4A16_AWQ", "W4A8_AWQ", "W8A16", "W8A8_SQ_PER_CHANNEL", "NVFP4_SVD", "NVFP5"}) {
    expect_failure(from_hf(R"({"quantization":{"quant_algo":")" + std::string(algorithm) + R"("}})"), unsupported,
                   {"hf_quant_config.json", std::string("'") + algorithm + "'", "which is not supported"});
  }
  for (const char* method : {"fp_quant", "gptq", "awq", "bitsandbytes"}) {
    expect_failure(from_config(R"({"quant_method":")" + std::string(method) + R"("})"), unsupported,
                   {"config.json", "quantization_config", std::string("'") + method + "'", "which is not supported"});
  }
  expect_failure(from_hf(R"({"quantization":{"quant_algo":"NVFP4","group_size":32}})"), unsupported,
                 {"group_size", "32", "16"});
  expect_failure(
      from_config(R"({"quant_method":"modelopt","config_groups":{"g":{"weights":{"num_bits":3,"type":"float"}}}})"),
      unsupported, {"weights of 3 bits"});
  expect_failure(from_config(R"({"quant_method":"modelopt","config_groups":{"g":{},"h":{}}})"), unsupported,
                 {"2 groups"});
}

// Pitfall 22: kv_cache_scheme as an object, a string, null.
TEST(QuantConfig, KvCacheSpellings) {
  const auto kv = [](const std::string& value) {
    return from_config(R"({"quant_method":"modelopt","quant_algo":"NVFP4","kv_cache_scheme":)" + value + "}");
  };
  EXPECT_EQ(kv(R"({"num_bits":8,"type":"float","dynamic":false})")->kv_cache, "FP8");
  EXPECT_EQ(kv(R"("NVFP4")")->kv_cache, "NVFP4");
  EXPECT_EQ(kv("null")->kv_cache, "");
  EXPECT_EQ(kv(R"({"num_bits":8,"type":"int"})")->kv_cache, "int8");
  expect_failure(kv("7"), StatusCode::kInvalidData, {"kv_cache_scheme"});
}

// Only the KV cache is quantised.
TEST(QuantConfig, NullAlgorithm) {
  HB_ASSERT_OK(const QuantConfig q, from_hf(R"({"quantization":{"quant_algo":null,"kv_cache_quant_algo":"FP8"}})"));
  EXPECT_FALSE(q.quantised);
}

// A file that says nothing is damaged: without it the weights would be read as unquantised.
TEST(QuantConfig, FilesThatSayNothing) {
  for (const char* text : {"{}", R"({"quantization":{}})", R"({"producer":{"name":"modelopt"}})",
                           R"({"quantization":{"exclude_modules":["lm_head"],"kv_cache_quant_algo":null}})"}) {
    expect_failure(parse_quant_config("{}", text, "models/m"), StatusCode::kInvalidData,
                   {"models/m/hf_quant_config.json", "says nothing", "expected quant_algo"});
    expect_failure(parse_quant_config(in_config(text), "", "models/m"), StatusCode::kInvalidData,
                   {"models/m/config.json", "quantization_config", "says nothing", "expected quant_algo"});
  }
  const testing::TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("hf_quant_config.json", "");
  expect_failure(read_quant_config(folder.path()), StatusCode::kInvalidData,
                 {folder / "hf_quant_config.json", "is empty", "remove it"});
}

TEST(QuantConfig, ConfigJsonWinsAndDifferencesWarn) {
  const std::string config =
      in_config(R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"],"kv_cache_scheme":null})");
  const std::string same = R"({"quantization":{"quant_algo":"NVFP4","exclude_modules":["lm_head"]}})";
  HB_ASSERT_OK(const QuantConfig agreed, parse_quant_config(config, same));
  EXPECT_TRUE(agreed.warnings.empty());
  EXPECT_EQ(agreed.file, "config.json");
  const std::string other =
      R"({"quantization":{"quant_algo":"W4A16_NVFP4","kv_cache_quant_algo":"FP8","exclude_modules":["lm_head","a*"]}})";
  HB_ASSERT_OK(const QuantConfig q, parse_quant_config(config, other));
  EXPECT_EQ(q.algorithm, "NVFP4");
  ASSERT_EQ(q.warnings.size(), 3u);
  EXPECT_THAT(q.warnings[0], ::testing::AllOf(::testing::HasSubstr("config.json says quant_algo NVFP4"),
                                              ::testing::HasSubstr("hf_quant_config.json says W4A16_NVFP4"),
                                              ::testing::HasSubstr("using config.json")));
  EXPECT_THAT(q.warnings[1], ::testing::HasSubstr("kv cache none"));
  EXPECT_THAT(q.warnings[2], ::testing::HasSubstr("exclude_modules"));
  // A config.json section without an algorithm does not hide the other file.
  HB_ASSERT_OK(const QuantConfig filled,
               parse_quant_config(in_config(R"({"quant_method":"modelopt","quant_algo":null})"), same));
  EXPECT_EQ(filled.file, "hf_quant_config.json");
  EXPECT_EQ(filled.algorithm, "NVFP4");
}

TEST(QuantConfig, ExcludePatterns) {
  const auto excluded = [](const std::string& version, const std::string& pattern, const char* module) {
    const auto q = from_hf(R"({"producer":{"name":"modelopt","version":")" + version +
                           R"("},"quantization":{"quant_algo":"NVFP4","exclude_modules":[")" + pattern + R"("]}})");
    return q.ok() && q->for_module(module) == ModuleQuant::kNone;
  };
  EXPECT_TRUE(excluded("0.40.0", "lm_head", "lm_head"));
  EXPECT_FALSE(excluded("0.40.0", "lm_head", "model.lm_head_extra"));
  EXPECT_TRUE(excluded("0.40.0", "model.layers.0.self_attn*", "model.layers.0.self_attn.k_proj"));
  EXPECT_TRUE(
      excluded("0.40.0", "model.layers.0", "model.layers.0.self_attn.k_proj"));  // a name stands for what is below it
  EXPECT_FALSE(excluded("0.40.0", "model.layers.1", "model.layers.10.self_attn.k_proj"));
  EXPECT_FALSE(excluded("0.40.0", "self_attn", "model.layers.0.self_attn.k_proj"));
  EXPECT_TRUE(excluded("0.38.1", "self_attn", "model.layers.0.self_attn.k_proj"));  // before 0.39 anywhere in the name
  EXPECT_FALSE(
      excluded("0.0.1.dev752", "self_attn", "model.layers.0.self_attn.k_proj"));  // a development build counts as new
  EXPECT_FALSE(excluded("1.2.0", "self_attn", "model.layers.0.self_attn.k_proj"));
  EXPECT_TRUE(excluded("0.40.0", "*", "anything"));
}

TEST(QuantConfig, BrokenFiles) {
  for (const char* bad : {"{", "[]", "3", R"({"quantization":{"quant_algo":3}})",
                          R"({"quantization":{"quant_algo":"NVFP4","exclude_modules":"lm_head"}})",
                          R"({"quantization":{"quant_algo":"NVFP4","exclude_modules":[3]}})",
                          R"({"quantization":{"quant_algo":"NVFP4","group_size":"16"}})",
                          R"({"quantization":{"quant_algo":"NVFP4","group_size":-1}})",
                          R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":[]}})",
                          R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"a":3}}})"}) {
    expect_failure(from_hf(bad), StatusCode::kInvalidData, {"hf_quant_config.json"});
  }
}

TEST(Fnmatch, LikePython) {
  const auto yes = [](const char* text, const char* pattern) {
    EXPECT_TRUE(fnmatch(text, pattern)) << text << " " << pattern;
  };
  const auto no = [](const char* text, const char* pattern) {
    EXPECT_FALSE(fnmatch(text, pattern)) << text << " " << pattern;
  };
  yes("", ""), yes("", "*"), yes("a", "?"), yes("abc", "a*c"), yes("abc", "*"), yes("a.b/c", "a*c"),
      yes("abcbc", "a*bc"), yes("x", "[x]"), yes("b", "[a-c]"), yes("d", "[!a-c]");
  yes("]", "[]]"), yes("-", "[a-]"), yes("-", "[-a]"), yes("[", "["), yes("[a", "[a"), yes("aa", "**a"),
      yes("a]", "[a]]"), yes("!", "[a!]"), yes("ab", "[!b][!a]");
  no("a", ""), no("", "?"), no("abc", "a*d"), no("A", "a"), no("d", "[a-c]"), no("b", "[!a-c]"), no("ab", "?"),
      no("", "[a]"), no("]", "[!]]"), no("ab", "a"), no("x", "[a-c]*");
}

// 20,000 stars against 20,000 letters: text * pattern steps, not exponential.
TEST(Fnmatch, TimeIsBounded) {
  std::string pattern, text(20000, 'a');
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  EXPECT_FALSE(fnmatch(text, pattern + "b"));
  EXPECT_TRUE(fnmatch(text, pattern));
}

}  // namespace
}  // namespace halfbyte
