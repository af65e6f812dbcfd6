// GGUF files as models: Hugging Face names, shapes, row order, configuration and vocabulary.
#include <gtest/gtest.h>

#include <cmath>

#include "io/gguf.h"
#include "io/model_source.h"
#include "support/expect_status.h"
#include "support/gguf_file.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::add_tiny_metadata;
using testing::add_tiny_tensors;
using testing::expect_failure;
using testing::GgufBuilder;
using testing::little;
using testing::TempFolder;
using testing::tiny_gguf;
using testing::tiny_values;
using testing::TinyModel;

class GgufModelTest : public ::testing::Test {
 protected:
  Result<ModelSource> open(const std::string& file) { return open_model_source(folder_.write("m.gguf", file)); }
  Result<TokenizerSource> tokenizer(const std::string& file) {
    return open_tokenizer_source(folder_.write("m.gguf", file));
  }
  TempFolder folder_;
};

TEST_F(GgufModelTest, MapsNames) {
  TinyModel m;
  m.arch = "qwen3";
  m.layers = 11;
  m.tied = false;
  m.qk_norm = true;
  HB_ASSERT_OK(const ModelSource source, open(tiny_gguf(m)));
  const char* const expected[] = {"lm_head.weight",
                                  "model.embed_tokens.weight",
                                  "model.norm.weight",
                                  "model.layers.0.input_layernorm.weight",
                                  "model.layers.10.post_attention_layernorm.weight",
                                  "model.layers.10.self_attn.q_proj.weight",
                                  "model.layers.0.self_attn.k_proj.weight",
                                  "model.layers.0.self_attn.v_proj.weight",
                                  "model.layers.0.self_attn.o_proj.weight",
                                  "model.layers.0.self_attn.q_norm.weight",
                                  "model.layers.0.self_attn.k_norm.weight",
                                  "model.layers.0.mlp.gate_proj.weight",
                                  "model.layers.0.mlp.up_proj.weight",
                                  "model.layers.0.mlp.down_proj.weight"};
  for (const char* name : expected) EXPECT_NE(source.tensors->find(name), nullptr) << name;
  EXPECT_EQ(source.tensors->tensors().size(), 3u + 11u * 11u);
  const TensorInfo* down = source.tensors->find("model.layers.3.mlp.down_proj.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape, (Shape{{32, 64}}));
  EXPECT_EQ(down->file_name, "blk.3.ffn_down.weight");
  EXPECT_EQ(source.kind(), "GGUF v3");
  EXPECT_FALSE(source.config.tie_word_embeddings);
}

// llama.cpp permutes q and k of the llama architecture: reshape(heads, 2, hd/2, in).swapaxes(1, 2). Undone here.
TEST_F(GgufModelTest, UndoesTheRowOrderOfLlama) {
  const int64_t heads = 4, kv_heads = 2, hd = 8, hidden = 32;
  const auto permuted = [&](const std::vector<float>& hf, int64_t h, int64_t columns) {
    std::vector<float> out(hf.size());
    for (int64_t head = 0; head < h; ++head)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t j = 0; j < hd / 2; ++j)
          for (int64_t c = 0; c < columns; ++c)
            out[static_cast<size_t>((head * hd + 2 * j + half) * columns + c)] =
                hf[static_cast<size_t>((head * hd + half * (hd / 2) + j) * columns + c)];
    return out;
  };
  const auto q = tiny_values(static_cast<size_t>(heads * hd * hidden), 100),
             k = tiny_values(static_cast<size_t>(kv_heads * hd * hidden), 101);
  const auto qb = tiny_values(static_cast<size_t>(heads * hd), 102);
  for (const std::string arch : {"llama", "qwen2"}) {
    TinyModel m;
    m.arch = arch;
    m.layers = 2;
    GgufBuilder file;
    add_tiny_metadata(file, m);
    const bool llama = arch == "llama";
    file.f32_tensor("token_embd.weight", {32, 24}, tiny_values(32 * 24, 1));
    file.f32_tensor("blk.0.attn_q.weight", {32, 32}, llama ? permuted(q, heads, hidden) : q);
    file.f32_tensor("blk.0.attn_k.weight", {32, 16}, llama ? permuted(k, kv_heads, hidden) : k);
    file.f32_tensor("blk.0.attn_q.bias", {32}, llama ? permuted(qb, heads, 1) : qb);
    file.f32_tensor("blk.0.attn_v.weight", {32, 16}, k);
    HB_ASSERT_OK(const ModelSource source, open(file.str()));
    const TensorSource& tensors = *source.tensors;
    const auto read = [&](const char* name) { return *read_all(tensors, *tensors.find(name)); };
    EXPECT_EQ(read("model.layers.0.self_attn.q_proj.weight"), q) << arch;
    EXPECT_EQ(read("model.layers.0.self_attn.k_proj.weight"), k) << arch;
    EXPECT_EQ(read("model.layers.0.self_attn.v_proj.weight"), k) << arch;
    EXPECT_EQ(read("model.layers.0.self_attn.q_proj.bias"), qb) << arch;
    // Single rows too.
    std::vector<float> row(32);
    ASSERT_TRUE(tensors.read_rows(*tensors.find("model.layers.0.self_attn.q_proj.weight"), 13, 1, row).ok());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), q.begin() + 13 * 32)) << arch;
    // Bytes of reordered rows would be wrong, so there are none.
    EXPECT_EQ(tensors.bytes(*tensors.find("model.layers.0.self_attn.q_proj.weight")).ok(), !llama);
    EXPECT_TRUE(tensors.bytes(*tensors.find("model.layers.0.self_attn.v_proj.weight")).ok());
  }
}

TEST_F(GgufModelTest, Configuration) {
  TinyModel m;
  m.qkv_bias = true;
  HB_ASSERT_OK(const ModelSource source, open(tiny_gguf(m)));
  const HfConfig& c = source.config;
  EXPECT_TRUE(c.file.ends_with("/m.gguf")) << c.file;
  EXPECT_EQ(c.architectures, std::vector<std::string>{"LlamaForCausalLM"});
  EXPECT_EQ(c.hidden_size, 32);
  EXPECT_EQ(c.intermediate_size, 64);
  EXPECT_EQ(c.num_layers, 2);
  EXPECT_EQ(c.num_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.vocab_size, 24);
  EXPECT_EQ(c.max_position_embeddings, 128);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);  // not 9.999999747378752e-06, the FP32 in the file
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_TRUE(c.attention_bias);
  EXPECT_EQ(c.eos_token_ids, std::vector<int64_t>{0});
  EXPECT_EQ(source.generation.eos_token_ids, std::vector<int64_t>{0});
}

TEST_F(GgufModelTest, RefusesOtherModels) {
  TinyModel m;
  m.arch = "gemma3";
  expect_failure(
      open(tiny_gguf(m)), StatusCode::kUnsupported,
      {"m.gguf", "'gemma3'", "LlamaForCausalLM (llama), Qwen2ForCausalLM (qwen2), Qwen3ForCausalLM (qwen3)"});
  m.arch = "llama";
  const auto with = [&](auto&& change) {
    GgufBuilder file;
    add_tiny_metadata(file, m);
    change(file);
    add_tiny_tensors(file, m);
    return open(file.str());
  };
  const auto unsupported = StatusCode::kUnsupported, invalid = StatusCode::kInvalidData;
  expect_failure(with([](GgufBuilder& f) { f.u32("llama.expert_count", 8); }), unsupported, {"m.gguf", "8 experts"});
  expect_failure(with([](GgufBuilder& f) { f.u32("split.count", 3); }), unsupported,
                 {"one of 3 parts", "llama-gguf-split --merge"});
  expect_failure(with([](GgufBuilder& f) { f.u32("llama.rope.dimension_count", 4); }), unsupported,
                 {"'llama.rope.dimension_count'", "expected the head size 8"});
  expect_failure(with([](GgufBuilder& f) { f.text("llama.rope.scaling.type", "longrope"); }), unsupported,
                 {"'longrope'", "supported: none, linear, yarn"});
  expect_failure(with([](GgufBuilder& f) { f.f32("llama.rope.scaling.yarn_log_multiplier", 0.1f); }), unsupported,
                 {"yarn_log_multiplier"});
  expect_failure(with([](GgufBuilder& f) { f.u32("llama.attention.value_length", 16); }), unsupported,
                 {"value_length"});
  expect_failure(with([](GgufBuilder& f) { f.f32_tensor("blk.0.ffn_gate_exps.weight", {1}, {1}); }), unsupported,
                 {"'blk.0.ffn_gate_exps.weight'", "2 layers"});
  expect_failure(with([](GgufBuilder& f) {
                   f.f32_tensor("blk.2.attn_q.weight", {32, 32}, std::vector<float>(1024));
                 }),
                 unsupported, {"'blk.2.attn_q.weight'"});
  expect_failure(with([](GgufBuilder& f) {
                   f.f32_tensor("blk.00.attn_q.weight", {32, 32}, std::vector<float>(1024));
                 }),
                 unsupported, {"'blk.00.attn_q.weight'"});
  expect_failure(with([](GgufBuilder& f) { f.f32_tensor("../etc/passwd", {1}, {1}); }), unsupported,
                 {"'../etc/passwd'"});
  expect_failure(with([](GgufBuilder& f) { f.u32("tokenizer.ggml.bos_token_id", 24); }), invalid,
                 {"m.gguf", "24", "outside the vocabulary of 24"});
  GgufBuilder empty;
  add_tiny_metadata(empty, m);
  expect_failure(open(empty.str()), invalid, {"m.gguf", "no tensors"});
  GgufBuilder nothing;
  nothing.f32_tensor("x", {1}, {1});
  expect_failure(open(nothing.str()), invalid, {"'general.architecture'"});
}

TEST_F(GgufModelTest, RequiredKeysAndRanges) {
  const auto with = [&](const std::string& skip, auto&& change) {
    GgufBuilder file;
    file.text("general.architecture", "qwen3");
    for (const auto& [key, value] :
         std::initializer_list<std::pair<std::string, uint32_t>>{{"block_count", 1},
                                                                 {"context_length", 64},
                                                                 {"embedding_length", 16},
                                                                 {"feed_forward_length", 16},
                                                                 {"attention.head_count", 2},
                                                                 {"attention.head_count_kv", 1}}) {
      if (key != skip) file.u32("qwen3." + key, value);
    }
    file.f32_tensor("token_embd.weight", {16, 4}, std::vector<float>(64));
    change(file);
    return open(file.str());
  };
  const auto nothing = [](GgufBuilder&) {};
  ASSERT_TRUE(with("", nothing).ok());
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"}) {
    expect_failure(with(key, nothing), StatusCode::kInvalidData,
                   {"m.gguf", std::string("'qwen3.") + key + "'", "has no metadata key"});
    expect_failure(with(key, [&](GgufBuilder& f) { f.u32(std::string("qwen3.") + key, 0); }), StatusCode::kInvalidData,
                   {key});
    expect_failure(with(key, [&](GgufBuilder& f) { f.i32(std::string("qwen3.") + key, -5); }), StatusCode::kInvalidData,
                   {key, "-5"});
  }
  expect_failure(with("attention.head_count_kv", [](GgufBuilder& f) { f.u32("qwen3.attention.head_count_kv", 3); }),
                 StatusCode::kInvalidData, {"num_attention_heads 2", "num_key_value_heads 3"});
  // Per-layer heads: equal ones are one number.
  EXPECT_TRUE(with("attention.head_count_kv", [](GgufBuilder& f) {
                f.i32s("qwen3.attention.head_count_kv", {1, 1});
              }).ok());
  expect_failure(with("attention.head_count_kv",
                      [](GgufBuilder& f) {
                        f.i32s("qwen3.attention.head_count_kv", {1, 2});
                      }),
                 StatusCode::kUnsupported, {"differs between layers"});
  expect_failure(with("", [](GgufBuilder& f) { f.f32("qwen3.rope.freq_base", INFINITY); }), StatusCode::kInvalidData,
                 {"'qwen3.rope.freq_base'", "not finite"});
  expect_failure(with("", [](GgufBuilder& f) { f.f32("qwen3.attention.layer_norm_rms_epsilon", -1.0f); }),
                 StatusCode::kInvalidData, {"layer_norm_rms_epsilon", "-1"});
}

TEST_F(GgufModelTest, RopeScaling) {
  const auto with = [&](auto&& change) {
    TinyModel m;
    m.arch = "qwen2";
    GgufBuilder file;
    add_tiny_metadata(file, m);
    change(file);
    add_tiny_tensors(file, m);
    return open(file.str());
  };
  HB_ASSERT_OK(const ModelSource linear, with([](GgufBuilder& f) {
                 f.text("qwen2.rope.scaling.type", "linear").f32("qwen2.rope.scaling.factor", 2.5f);
               }));
  EXPECT_EQ(linear.config.rope.kind, RopeKind::kLinear);
  EXPECT_EQ(linear.config.rope.factor, 2.5);
  HB_ASSERT_OK(const ModelSource yarn, with([](GgufBuilder& f) {
                 f.text("qwen2.rope.scaling.type", "yarn")
                     .f32("qwen2.rope.scaling.factor", 4.0f)
                     .u32("qwen2.rope.scaling.original_context_length", 32);
               }));
  EXPECT_EQ(yarn.config.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(yarn.config.rope.original_max_position, 32);
  HB_ASSERT_OK(const ModelSource none, with([](GgufBuilder& f) {
                 f.text("qwen2.rope.scaling.type", "none").f32("qwen2.rope.scaling.factor", 0.0f);
               }));
  EXPECT_EQ(none.config.rope.kind, RopeKind::kDefault);
  EXPECT_EQ(none.config.rope.factor, 1.0);
}

// The rope_freqs tensor of Llama 3.1 to 3.3: written by llama.cpp from transformers' llama3 rule.
TEST_F(GgufModelTest, RopeFreqsOfLlama3) {
  const auto factors = [](double factor, double theta, int64_t hd) {
    std::vector<float> out;
    for (int64_t i = 0; i < hd; i += 2) {
      const double wavelength = 2 * M_PI * std::pow(theta, static_cast<double>(i) / static_cast<double>(hd));
      const double low = 8192.0 / 1.0, high = 8192.0 / 4.0;
      if (wavelength < high)
        out.push_back(1.0f);
      else if (wavelength > low)
        out.push_back(static_cast<float>(factor));
      else {
        const double smooth = (8192.0 / wavelength - 1.0) / (4.0 - 1.0);
        out.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
      }
    }
    return out;
  };
  const auto with = [&](const std::vector<float>& values) {
    TinyModel m;
    m.head_dim = 64;
    GgufBuilder file;
    add_tiny_metadata(file, m);
    file.f32_tensor("rope_freqs.weight", {values.size()}, values);
    add_tiny_tensors(file, m);
    return open(file.str());
  };
  // The tiny model's theta is 10000, and the factors are made for it.
  HB_ASSERT_OK(const ModelSource source, with(factors(32.0, 10000.0, 64)));
  const RopeFacts& rope = source.config.rope;
  EXPECT_EQ(rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_EQ(rope.low_freq_factor, 1.0);
  EXPECT_EQ(rope.high_freq_factor, 4.0);
  EXPECT_EQ(rope.original_max_position, 8192);
  EXPECT_EQ(rope.frequency_factors, factors(32.0, 10000.0, 64));
  EXPECT_EQ(source.tensors->find("rope_freqs.weight"), nullptr);
  // Other factors stay factors.
  auto other = factors(8.0, 10000.0, 64);
  other[3] = 1.5f;
  HB_ASSERT_OK(const ModelSource odd, with(other));
  EXPECT_EQ(odd.config.rope.kind, RopeKind::kDefault);
  EXPECT_EQ(odd.config.rope.frequency_factors, other);
  expect_failure(with(std::vector<float>(31, 1.0f)), StatusCode::kInvalidData,
                 {"'rope_freqs.weight'", "31", "half of the head size 64"});
  other[3] = 0.0f;
  expect_failure(with(other), StatusCode::kInvalidData, {"'rope_freqs.weight'", "index 3"});
  other[3] = NAN;
  expect_failure(with(other), StatusCode::kInvalidData, {"'rope_freqs.weight'", "index 3"});
}

TEST_F(GgufModelTest, InterleavedRowsNeedWholeHeads) {
  TinyModel m;
  GgufBuilder file;
  add_tiny_metadata(file, m);
  file.f32_tensor("token_embd.weight", {32, 24}, tiny_values(32 * 24, 1))
      .f32_tensor("blk.0.attn_q.weight", {32, 12}, tiny_values(384, 2));
  expect_failure(open(file.str()), StatusCode::kInvalidData,
                 {"m.gguf", "'blk.0.attn_q.weight'", "[12, 32]", "4 heads"});
}

// One NVFP4 block of 64: scales 1, 1, 1, 1 and the codes of 0.5 (1) in the low, of -6 (15) in the high nibbles.
TEST_F(GgufModelTest, Nvfp4WeightTakesItsScale) {
  const std::string block = std::string(4, '\x38') + std::string(32, '\xf1');
  const auto with = [&](float scale, uint32_t type) {
    GgufBuilder file;
    add_tiny_metadata(file, TinyModel());
    file.f32_tensor("token_embd.weight", {32, 24}, tiny_values(32 * 24, 1))
        .tensor("blk.0.ffn_up.weight", {64, 1}, 40, block)
        .tensor("blk.0.ffn_up.scale", {1}, type, little(scale));
    return open(file.str());
  };
  HB_ASSERT_OK(const ModelSource source, with(0.25f, 0));
  EXPECT_EQ(source.tensors->tensors().size(), 2u);
  const TensorInfo* up = source.tensors->find("model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(up, nullptr);
  std::vector<float> row(64);
  ASSERT_TRUE(source.tensors->read_rows(*up, 0, 1, row).ok());
  EXPECT_EQ(row[0], 0.125f);
  EXPECT_EQ(row[8], -1.5f);
  EXPECT_EQ(row[63], -1.5f);
  EXPECT_FALSE(source.tensors->bytes(*up).ok()) << "the stored bytes are not the weight";
  expect_failure(with(0.0f, 0), StatusCode::kInvalidData, {"'blk.0.ffn_up.scale'", "above 0"});
  expect_failure(with(NAN, 0), StatusCode::kInvalidData, {"'blk.0.ffn_up.scale'", "above 0"});
  expect_failure(with(1.0f, 26), StatusCode::kUnsupported, {"'blk.0.ffn_up.scale'", "I32"});
}

// Vocabulary.

TEST_F(GgufModelTest, Vocabulary) {
  GgufBuilder file;
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "qwen2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>", "<think>", "[PAD5]", "gone"})
      .i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 4, 4, 5});
  file.texts("tokenizer.ggml.merges", {"a b"})
      .u32("tokenizer.ggml.eos_token_id", 3)
      .u32("tokenizer.ggml.bos_token_id", 3)
      .boolean("tokenizer.ggml.add_bos_token", false);
  file.text("tokenizer.chat_template", "T")
      .texts("tokenizer.chat_templates", {"tool_use"})
      .text("tokenizer.chat_template.tool_use", "U");
  HB_ASSERT_OK(const TokenizerSource source, tokenizer(file.str()));
  ASSERT_TRUE(source.vocab.has_value());
  EXPECT_EQ(source.vocab->pre, "qwen2");
  EXPECT_EQ(source.vocab->tokens, (std::vector<std::string>{"a", "b", "ab", "<|end|>", "<think>", "", ""}));
  EXPECT_EQ(source.vocab->merges, std::vector<std::string>{"a b"});
  ASSERT_EQ(source.vocab->added.size(), 2u);
  EXPECT_EQ(source.vocab->added[0].text, "<|end|>");
  EXPECT_TRUE(source.vocab->added[0].special);
  EXPECT_EQ(source.vocab->added[1].text, "<think>");
  EXPECT_EQ(source.vocab->added[1].id, 4);
  EXPECT_FALSE(source.vocab->added[1].special);
  EXPECT_EQ(source.eos_token, "<|end|>");
  EXPECT_EQ(source.bos_token, "<|end|>");
  EXPECT_FALSE(source.vocab->add_bos);
  ASSERT_NE(source.chat_template(), nullptr);
  EXPECT_EQ(source.chat_template()->source, "T");
  EXPECT_EQ(source.chat_template("tool_use")->source, "U");
  EXPECT_EQ(source.chat_template("none"), nullptr);
}

TEST_F(GgufModelTest, BosByDefault) {
  const auto add_bos = [&](const char* pre, bool with_bos) {
    GgufBuilder file;
    file.text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .texts("tokenizer.ggml.tokens", {"a", "<s>"});
    if (with_bos) file.u32("tokenizer.ggml.bos_token_id", 1);
    return tokenizer(file.str())->vocab->add_bos;
  };
  EXPECT_TRUE(add_bos("llama-bpe", true));
  EXPECT_FALSE(add_bos("llama-bpe", false));
  EXPECT_FALSE(add_bos("qwen2", true));
}

TEST_F(GgufModelTest, SentencePieceVocabulary) {
  const auto file = [](int scores) {
    GgufBuilder b;
    b.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "<0x0A>", "a"});
    b.i32s("tokenizer.ggml.token_type", {2, 3, 6, 1}).u32("tokenizer.ggml.bos_token_id", 1);
    if (scores >= 0) b.f32s("tokenizer.ggml.scores", std::vector<float>(static_cast<size_t>(scores), -0.5f));
    return b;
  };
  HB_ASSERT_OK(const TokenizerSource source, tokenizer(file(4).str()));
  EXPECT_EQ(source.vocab->scores, std::vector<float>(4, -0.5f));
  EXPECT_TRUE(source.vocab->add_bos);
  EXPECT_TRUE(source.vocab->space_prefix);
  EXPECT_EQ(source.vocab->added.size(), 2u);  // a byte is none
  HB_ASSERT_OK(const TokenizerSource bare, tokenizer(file(4).boolean("tokenizer.ggml.add_space_prefix", false).str()));
  EXPECT_FALSE(bare.vocab->space_prefix);
  for (const int scores : {-1, 3})
    expect_failure(tokenizer(file(scores).str()), StatusCode::kInvalidData, {"tokenizer.ggml.scores", "4 tokens"});
  expect_failure(tokenizer(file(-1).i32s("tokenizer.ggml.scores", {1, 2, 3, 4}).str()), StatusCode::kInvalidData,
                 {"tokenizer.ggml.scores", "int32", "expected float32"});
}

// CVE-2025-49847 and PR #25969: token lengths and ids from a file.
TEST_F(GgufModelTest, BadVocabularies) {
  const auto with = [&](auto&& change) {
    GgufBuilder file;
    file.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a", "b"});
    change(file);
    return tokenizer(file.str());
  };
  const auto invalid = StatusCode::kInvalidData;
  ASSERT_TRUE(with([](GgufBuilder&) {}).ok());
  expect_failure(with([](GgufBuilder& f) { f.i32s("tokenizer.ggml.token_type", {1}); }), invalid,
                 {"m.gguf", "token_type", "1 entries", "2 tokens"});
  expect_failure(with([](GgufBuilder& f) { f.u32("tokenizer.ggml.eos_token_id", 2); }), invalid,
                 {"eos_token_id", "is 2", "vocabulary of 2"});
  expect_failure(with([](GgufBuilder& f) { f.i32("tokenizer.ggml.eos_token_id", -2); }), invalid,
                 {"eos_token_id", "-2"});
  expect_failure(with([](GgufBuilder& f) { f.text("tokenizer.ggml.merges", "a b"); }), invalid,
                 {"merges", "expected an array of strings"});
  expect_failure(with([](GgufBuilder& f) { f.texts("tokenizer.chat_templates", {"x"}); }), invalid,
                 {"chat_templates", "'x'"});
  // "None" in the spelling of some converters.
  EXPECT_TRUE(with([](GgufBuilder& f) {
                f.u32("tokenizer.ggml.eos_token_id", UINT32_MAX).i32("tokenizer.ggml.bos_token_id", -1);
              }).ok());
  GgufBuilder other;
  other.text("tokenizer.ggml.model", "t5").texts("tokenizer.ggml.tokens", {"a"});
  expect_failure(tokenizer(other.str()), StatusCode::kUnsupported,
                 {"m.gguf", "'t5'", "supported: gpt2 (byte-level BPE) and llama"});
  expect_failure(tokenizer(GgufBuilder().u32("x", 1).str()), StatusCode::kNotFound, {"m.gguf", "no vocabulary"});
  expect_failure(tokenizer(GgufBuilder().text("tokenizer.ggml.model", "gpt2").str()), invalid, {"no tokens"});
}

}  // namespace
}  // namespace halfbyte
