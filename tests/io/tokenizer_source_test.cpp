#include "io/tokenizer_source.h"

#include <gtest/gtest.h>

#include "support/expect_status.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::expect_failure;
using testing::TempFolder;

Result<TokenizerSource> parse(const std::string& json) {
  return parse_tokenizer_config(json, "tokenizer_config.json");
}

TEST(TokenizerSource, SpecialTokensInBothSpellings) {
  HB_ASSERT_OK(
      const TokenizerSource s,
      parse(
          R"({"bos_token":{"__type":"AddedToken","content":"<s>","special":true},"eos_token":"</s>","pad_token":null,"add_bos_token":true,"model_max_length":1000000000000000019884624838656,
      "added_tokens_decoder":{"11":{"content":"<b>","special":false},"3":{"content":"<a>","special":true}}})"));
  EXPECT_EQ(s.bos_token, "<s>");
  EXPECT_EQ(s.eos_token, "</s>");
  EXPECT_EQ(s.pad_token, "");
  EXPECT_EQ(s.add_bos_token, true);
  EXPECT_EQ(s.add_eos_token, std::nullopt);
  EXPECT_EQ(s.model_max_length, std::nullopt);  // transformers' "no limit"
  ASSERT_EQ(s.added_tokens.size(), 2u);
  EXPECT_EQ(s.added_tokens[0].id, 3);
  EXPECT_TRUE(s.added_tokens[0].special);
  EXPECT_EQ(s.added_tokens[1].text, "<b>");
  EXPECT_FALSE(s.added_tokens[1].special);
  EXPECT_EQ(s.chat_template(), nullptr);
}

TEST(TokenizerSource, ChatTemplates) {
  HB_ASSERT_OK(const TokenizerSource one, parse(R"({"chat_template":"T","model_max_length":8192})"));
  ASSERT_NE(one.chat_template(), nullptr);
  EXPECT_EQ(one.chat_template()->source, "T");
  EXPECT_EQ(one.model_max_length, 8192);
  HB_ASSERT_OK(const TokenizerSource many,
               parse(R"({"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"U"}]})"));
  EXPECT_EQ(many.chat_template()->source, "D");
  EXPECT_EQ(many.chat_template("tool_use")->source, "U");
}

constexpr const char* kTinyConfig =
    R"({"architectures":["Qwen2ForCausalLM"],"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":512})";

TEST(TokenizerSource, Refusals) {
  for (const char* bad :
       {"", "[]", "{", R"({"bos_token":3})", R"({"bos_token":{"text":"x"}})", R"({"chat_template":3})",
        R"({"chat_template":[{"name":"x"}]})", R"({"add_bos_token":"yes"})",
        R"({"added_tokens_decoder":{"x":{"content":"a"}}})", R"({"added_tokens_decoder":{"-1":{"content":"a"}}})",
        R"({"added_tokens_decoder":{"99999999999":{"content":"a"}}})",
        R"({"added_tokens_decoder":{"1":{"special":true}}})", R"({"added_tokens_decoder":[]})",
        R"({"model_max_length":"8192"})"}) {
    expect_failure(parse(bad), StatusCode::kInvalidData, {"tokenizer_config.json"});
  }
}

TEST(TokenizerSource, Folder) {
  const TempFolder folder;
  folder.write("notes.txt", "");
  expect_failure(open_tokenizer_source(folder.path()), StatusCode::kNotFound,
                 {folder.path(), "no config.json", "tokenizer.json", "there: notes.txt"});
  folder.write("config.json", R"({"architectures":["GemmaForCausalLM"]})");
  expect_failure(open_tokenizer_source(folder.path()), StatusCode::kUnsupported,
                 {"GemmaForCausalLM", "Qwen3ForCausalLM"});
  folder.write("config.json", kTinyConfig);
  expect_failure(open_tokenizer_source(folder.path()), StatusCode::kNotFound,
                 {folder.path(), "no tokenizer.json", "save_pretrained"});
  folder.write("tokenizer.json", "{}");
  HB_ASSERT_OK(const TokenizerSource bare, open_tokenizer_source(folder.path()));
  EXPECT_EQ(bare.tokenizer_json_path, folder / "tokenizer.json");
  EXPECT_TRUE(bare.chat_templates.empty());
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"old"},{"name":"rag","template":"R"}],"eos_token":"<e>"})");
  folder.write("chat_template.jinja", "new");
  HB_ASSERT_OK(const TokenizerSource s, open_tokenizer_source(folder.path()));
  EXPECT_EQ(s.chat_template()->source, "new");  // the file wins, as in transformers
  EXPECT_EQ(s.chat_template("rag")->source, "R");
  EXPECT_EQ(s.chat_templates.size(), 2u);
  EXPECT_EQ(s.eos_token, "<e>");
  folder.write("special_tokens_map.json", R"({"eos_token":"<other>","bos_token":{"content":"<b>"}})");
  HB_ASSERT_OK(const TokenizerSource filled, open_tokenizer_source(folder.path()));
  EXPECT_EQ(filled.eos_token, "<e>");
  EXPECT_EQ(filled.bos_token, "<b>");
  folder.write("special_tokens_map.json", "{");
  expect_failure(open_tokenizer_source(folder.path()), StatusCode::kInvalidData, {"special_tokens_map.json"});
}

TEST(TokenizerSource, PublishedConfigs) {
  const std::string root = testing::shared_data("tokenizers");
  HB_SKIP_WITHOUT(root, "shared/data/tokenizers");
  for (const char* name : {"qwen3", "qwen2.5", "r1-distill-qwen", "smollm2", "phi-2"}) {
    const auto s = parse_tokenizer_config(testing::read_file(root + "/" + name + "/tokenizer_config.json"), name);
    ASSERT_TRUE(s.ok()) << s.status().message();
    EXPECT_FALSE(s->eos_token.empty()) << name;
  }
  HB_ASSERT_OK(const TokenizerSource qwen3,
               parse_tokenizer_config(testing::read_file(root + "/qwen3/tokenizer_config.json"), "qwen3"));
  EXPECT_EQ(qwen3.added_tokens.size(), 26u);
  EXPECT_EQ(qwen3.eos_token, "<|im_end|>");
  HB_ASSERT_OK(const TokenizerSource r1,
               parse_tokenizer_config(testing::read_file(root + "/r1-distill-qwen/tokenizer_config.json"), "r1"));
  EXPECT_EQ(r1.add_bos_token, true);
  EXPECT_NE(r1.chat_template(), nullptr);
}

}  // namespace
}  // namespace halfbyte
