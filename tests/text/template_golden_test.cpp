// Renderings by jinja2: small ones in the tree (tests/golden/templates.jsonl, written by make_template_golden.py) and
// those of published templates in the shared data.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/shared_data.h"
#include "text/chat_template.h"
#include "text/reasoning.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> read_lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// 12:00 local time of a "2025-07-26".
int64_t noon(const std::string& date) {
  std::tm t{};
  t.tm_year = std::stoi(date.substr(0, 4)) - 1900;
  t.tm_mon = std::stoi(date.substr(5, 2)) - 1;
  t.tm_mday = std::stoi(date.substr(8, 2));
  t.tm_hour = 12;
  t.tm_isdst = -1;
  return static_cast<int64_t>(std::mktime(&t));
}

ChatRenderOptions options_of(const Json& job) {
  const auto text = [&](const char* key) {
    return job.contains(key) && job[key].is_string() ? job[key].get<std::string>() : "";
  };
  ChatRenderOptions options;
  options.add_generation_prompt = job.value("add_generation_prompt", true);
  options.bos_token = text("bos_token");
  options.eos_token = text("eos_token");
  options.now_unix = noon(job.value("date", "2025-07-26"));
  if (job.contains("tools") && !job["tools"].is_null()) options.tools_json = job["tools"].dump();
  if (job.contains("kwargs")) {
    for (const auto& [key, value] : job["kwargs"].items()) options.kwargs_json.emplace_back(key, value.dump());
  }
  return options;
}

TEST(TemplateGolden, SmallTemplates) {
  const auto lines = read_lines(std::string(HALFBYTE_SOURCE_DIR) + "/tests/golden/templates.jsonl");
  ASSERT_GT(lines.size(), 150u);
  const std::string messages = lines[0]["messages"].dump();
  const ChatRenderOptions options = options_of(lines[0]);
  int refused = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string source = lines[i]["template"];
    const auto parsed = ChatTemplate::parse(source, "case");
    const auto pieces =
        parsed.ok() ? (*parsed)->render_json(messages, options) : Result<std::vector<RenderedPiece>>(parsed.status());
    if (lines[i].contains("refused")) {
      EXPECT_FALSE(pieces.ok()) << source;
      EXPECT_EQ(pieces.status().message().rfind("case: ", 0), 0u) << pieces.status().message();  // says where
      ++refused;
    } else {
      ASSERT_TRUE(pieces.ok()) << source << ": " << pieces.status().message();
      EXPECT_EQ(rendered_text(*pieces), lines[i]["expected"].get<std::string>()) << source;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST(TemplateGolden, PublishedTemplates) {
  const std::string folder = testing::shared_data("chat_templates");
  HB_SKIP_WITHOUT(folder, "chat_templates");
  const auto cases = read_lines(folder + "/golden_renders.jsonl");
  ASSERT_EQ(cases.size(), 480u);
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates;
  for (const Json& c : cases) {
    const std::string name = c["template"];
    if (!templates.count(name)) {
      const auto parsed = ChatTemplate::parse(read_all(folder + "/templates/" + name), name);
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      templates[name] = *parsed;
    }
    const auto pieces = templates[name]->render_json(c["messages"].dump(), options_of(c));
    if (c.contains("error")) {
      ASSERT_FALSE(pieces.ok());
      const std::string expected = c["error"].get<std::string>().substr(std::string("TemplateError: ").size());
      EXPECT_NE(pieces.status().message().find(expected), std::string::npos) << pieces.status().message();
      continue;
    }
    ASSERT_TRUE(pieces.ok()) << name << ", case " << c["id"] << ": " << pieces.status().message();
    EXPECT_EQ(rendered_text(*pieces), c["expected"].get<std::string>()) << name << ", case " << c["id"];
  }
  EXPECT_EQ(templates.size(), 21u);
}

// Whether a model starts inside its reasoning, behind it, or before it, comes from the end of the rendered prompt: by
// template, with thinking as the template has it and switched off.
TEST(TemplateGolden, WhereTemplatesLeaveTheModel) {
  using enum ReasoningState;
  const std::string folder = testing::shared_data("chat_templates");
  HB_SKIP_WITHOUT(folder, "chat_templates");
  const std::map<std::string, std::pair<ReasoningState, ReasoningState>> reasoning = {
      {"HuggingFaceTB-SmolLM3-3B.current.jinja", {kBefore, kAfter}},
      {"HuggingFaceTB-SmolLM3-3B.jinja", {kBefore, kAfter}},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", {kInsideStart, kAfter}},
      {"NVIDIA-Nemotron-Nano-v2.jinja", {kInsideStart, kInsideStart}},  // its switch is in the system message
      {"Qwen-QwQ-32B.jinja", {kAfter, kAfter}},
      {"Qwen-Qwen3-0.6B.jinja", {kBefore, kAfter}},
      {"Qwen-Qwen3-8B.jinja", {kBefore, kAfter}},
      {"Qwen3.5-4B.jinja", {kInsideStart, kAfter}},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", {kInsideStart, kInsideStart}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", {kAfter, kAfter}}};
  int compared = 0;
  for (const Json& c : read_lines(folder + "/golden_renders.jsonl")) {
    if (c["conversation"] != "user" || !c["add_generation_prompt"].get<bool>() || !c.contains("expected")) continue;
    const auto found = reasoning.find(c["template"].get<std::string>());
    const bool off = c["kwargs"].contains("enable_thinking") && !c["kwargs"]["enable_thinking"].get<bool>();
    const ReasoningState expected = found == reasoning.end() ? kBefore
                                    : off                    ? found->second.second
                                                             : found->second.first;
    EXPECT_EQ(reasoning_start(c["expected"].get<std::string>()), expected) << c["template"] << " " << c["kwargs"];
    ++compared;
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace halfbyte
