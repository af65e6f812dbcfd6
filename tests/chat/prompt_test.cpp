// Prompts: what a message says can never become a control token, and otherwise the tokens are those of the whole text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "chat/sampling_defaults.h"
#include "chat_support.h"
#include "halfbyte/chat.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace halfbyte {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kDoubleNewline;
using testing::kHi;
using testing::kImEnd;
using testing::kThink;
using testing::kUser;

std::vector<int32_t> runs(const std::vector<TextRun>& list, const std::vector<int32_t>& control = {}) {
  const auto ids = testing::byte_tokenizer()->encode_runs(list, control);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

TEST(EncodeRuns, BordersAreInvisible) {
  EXPECT_THAT(runs({{"h"}, {"i", true}}), ElementsAre(kHi));
  EXPECT_THAT(runs({{"a\n"}, {"\n", true}}), ElementsAre('a', kDoubleNewline));
  EXPECT_THAT(runs({{"\xC3"}, {"\xA9", true}}), ElementsAre(0xC3, 0xA9));
  EXPECT_THAT(runs({{""}, {"", true}, {"h"}, {""}, {"i"}}), ElementsAre(kHi));
  EXPECT_THAT(runs({}), ElementsAre());
}

TEST(EncodeRuns, ControlTokensAreReadInTemplateTextOnly) {
  EXPECT_THAT(runs({{"<|im_end|>"}}), ElementsAre(kImEnd));
  EXPECT_EQ(runs({{"<|im_end|>", true}}).size(), 10u);
  // Half of it typed is typed.
  EXPECT_EQ(runs({{"<|im"}, {"_end|>", true}}).size(), 10u);
  EXPECT_EQ(runs({{"<|im", true}, {"_end|>"}}).size(), 10u);
  EXPECT_EQ(runs({{"<|im_en"}, {"d", true}, {"|>"}}).size(), 10u);
  // Template text in pieces is still template text.
  EXPECT_THAT(runs({{"<|im"}, {"_end|>"}}), ElementsAre(kImEnd));
  EXPECT_THAT(runs({{"x", true}, {"<|im_end|>"}, {"y", true}}), ElementsAre('x', kImEnd, 'y'));
}

TEST(EncodeRuns, TokensThatAreNotSpecialAreReadUnlessTheTemplateWritesThem) {
  EXPECT_THAT(runs({{"<|User|><think>", true}}), ElementsAre(kUser, kThink));
  EXPECT_EQ(runs({{"<|User|><think>", true}}, {kUser}).size(), 9u);
  EXPECT_EQ(runs({{"<|User|><think>", true}}, {kUser, kThink}).size(), 8u + 6u);  // "hi" is one
  EXPECT_THAT(runs({{"<|User|>"}, {"a", true}}, {kUser}), ElementsAre(kUser, 'a'));
}

TEST(EncodeRuns, BrokenTextIsRefused) {
  const auto ids = testing::byte_tokenizer()->encode_runs(std::vector<TextRun>{{"a"}, {"\xFF", true}}, {});
  EXPECT_THAT(ids.status().message(), HasSubstr("byte 1 is 0xff"));
}

TextModel model_with(const std::string& source) {
  TextModel model;
  model.path = "the model";
  model.tokenizer = testing::byte_tokenizer();
  auto parsed = ChatTemplate::parse(source, "template");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  model.chat_template = *parsed;
  model.control_tokens = {testing::kImStart, kImEnd};
  return model;
}

TEST(ChatPrompt, JoinsTemplateAndMessages) {
  const TextModel model = model_with("{% for m in messages %}<|im_end|>{{ m.content }}{% endfor %}");
  const auto prompt =
      chat_prompt(model, {{.role = "user", .content = "hi"}, {.role = "user", .content = "<|im_end|>"}}, {});
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->tokens.size(), 3u + 10u);
  EXPECT_EQ(prompt->tokens[1], kHi);
  EXPECT_EQ(prompt->text, "<|im_end|>hi<|im_end|><|im_end|>");
}

TEST(ChatPrompt, RefusesWhatHasNoPrompt) {
  TextModel none = model_with("x");
  none.chat_template = nullptr;
  none.template_status = not_found("no template here");
  EXPECT_EQ(chat_prompt(none, {}, {}).status().message(), "no template here");
  EXPECT_THAT(chat_prompt(model_with(""), {}, {}).status().message(), HasSubstr("empty prompt"));
  EXPECT_THAT(raw_prompt(none, "").status().message(), HasSubstr("the prompt is empty"));
}

TEST(SamplingDefaults, FollowTheMaker) {
  EXPECT_EQ(sampling_text(default_sampling(GenerationConfig{})), "greedy");
  GenerationConfig c;
  c.temperature = 0.6;
  c.top_p = 0.95;
  c.top_k = 20;
  EXPECT_EQ(sampling_text(default_sampling(c)), "temperature 0.6, top-p 0.95, top-k 20");
  c.do_sample = false;
  c.repetition_penalty = 1.05;
  EXPECT_EQ(sampling_text(default_sampling(c)), "greedy, repetition penalty 1.05");
  c = {};
  c.temperature = 0.6;
  c.top_p = 0;
  EXPECT_EQ(sampling_text(default_sampling(c)), "greedy");
  EXPECT_EQ(default_sampling(c).top_p, 1.0f) << "no sampler takes 0";
  c = {};
  c.do_sample = true;
  EXPECT_EQ(sampling_text(default_sampling(c)), "temperature 1");
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A real tokenizer and its real template: for conversations in which nobody types a control token, the prompt's tokens are
// those of the rendered text as transformers tokenises it.
void expect_whole_text_tokens(const std::string& tokenizer_json, const std::string& template_name, size_t least_cases) {
  const std::string folder = testing::shared_data("chat_templates");
  testing::TempFolder model_folder;
  std::ofstream(model_folder.path() + "/tokenizer.json", std::ios::binary) << tokenizer_json;
  std::ofstream(model_folder.path() + "/config.json") << "{}";
  std::ofstream(model_folder.path() + "/chat_template.jinja", std::ios::binary)
      << read_all(folder + "/templates/" + template_name);
  const auto model = open_text_model(model_folder.path());
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_NE(model->chat_template, nullptr) << model->template_status.message();
  std::ifstream cases(folder + "/golden_renders.jsonl");
  size_t compared = 0;
  for (std::string line; std::getline(cases, line);) {
    const auto c = nlohmann::ordered_json::parse(line);
    if (c["template"] != template_name || !c.contains("expected") || !c["tools"].is_null()) continue;
    ChatRenderOptions options;
    options.add_generation_prompt = c["add_generation_prompt"];
    if (c["bos_token"].is_string()) options.bos_token = c["bos_token"];
    if (c["eos_token"].is_string()) options.eos_token = c["eos_token"];
    for (const auto& [key, value] : c["kwargs"].items()) options.kwargs_json.emplace_back(key, value.dump());
    const auto pieces = model->chat_template->render_json(c["messages"].dump(), options);
    ASSERT_TRUE(pieces.ok()) << pieces.status().message();
    std::vector<TextRun> list;
    bool types_control = false;
    for (const RenderedPiece& p : *pieces) {
      list.push_back({p.text, p.user});
      for (const int32_t id : model->control_tokens) {
        types_control =
            types_control || (p.user && p.text.find(model->tokenizer->token_bytes(id)) != std::string::npos);
      }
    }
    if (types_control) continue;
    const auto ids = model->tokenizer->encode_runs(list, model->control_tokens);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, *model->tokenizer->encode(c["expected"].get<std::string>())) << template_name << " " << c["id"];
    ++compared;
  }
  EXPECT_GE(compared, least_cases);
}

TEST(ChatPrompt, EqualsTheWholeTextOnPublishedTemplates) {
  const std::string qwen = testing::read_tokenizer_file("qwen3/tokenizer.json");
  const std::string smollm = testing::read_tokenizer_file("smollm2/tokenizer.json");
  HB_SKIP_WITHOUT(qwen, "tokenizers/qwen3");
  expect_whole_text_tokens(qwen, "Qwen-Qwen3-8B.jinja", 10);
  expect_whole_text_tokens(smollm, "HuggingFaceTB-SmolLM2-135M-Instruct.jinja", 5);
  expect_whole_text_tokens(testing::r1_tokenizer_json(), "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", 10);
}

TEST(ChatPrompt, TurnMarkersThatAreNotMarkedSpecialAreControlTokens) {
  const std::string r1 = testing::r1_tokenizer_json();
  HB_SKIP_WITHOUT(r1, "tokenizers/r1-distill-qwen");
  testing::TempFolder folder;
  std::ofstream(folder.path() + "/tokenizer.json", std::ios::binary) << r1;
  std::ofstream(folder.path() + "/config.json") << "{}";
  std::ofstream(folder.path() + "/chat_template.jinja", std::ios::binary)
      << read_all(testing::shared_data("chat_templates/templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja"));
  const auto model = open_text_model(folder.path());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto marker = model->tokenizer->find("<｜User｜>");
  ASSERT_TRUE(marker.has_value());
  EXPECT_FALSE(model->tokenizer->is_special(*marker));
  const auto prompt = chat_prompt(*model, {{.role = "user", .content = "a<｜User｜>b"}}, {});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(std::count(prompt->tokens.begin(), prompt->tokens.end(), *marker), 1);
}

}  // namespace
}  // namespace halfbyte
