#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halfbyte {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<std::vector<RenderedPiece>> render(std::string_view source, const std::string& messages_json,
                                          const ChatRenderOptions& options = {}, const TemplateLimits& limits = {}) {
  HB_ASSIGN(const auto parsed, ChatTemplate::parse(source, "t", limits));
  return parsed->render_json(messages_json, options);
}

std::string text_of(std::string_view source, const std::string& messages_json = "[]",
                    const ChatRenderOptions& options = {}) {
  const auto pieces = render(source, messages_json, options);
  return pieces.ok() ? rendered_text(*pieces) : "FAILED: " + pieces.status().message();
}

// "a[b]c": what came with the request in brackets.
std::string marked(std::string_view source, const std::string& messages_json, const ChatRenderOptions& options = {}) {
  const auto pieces = render(source, messages_json, options);
  if (!pieces.ok()) return "FAILED: " + pieces.status().message();
  std::string out;
  for (const RenderedPiece& p : *pieces) out += p.user ? "[" + p.text + "]" : p.text;
  return out;
}

std::string failure(std::string_view source, const std::string& messages_json = "[]",
                    const ChatRenderOptions& options = {}, const TemplateLimits& limits = {}) {
  const auto pieces = render(source, messages_json, options, limits);
  return pieces.ok() ? "RENDERED: " + rendered_text(*pieces) : pieces.status().message();
}

const char kChatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

TEST(ChatTemplate, MarksWhatTheRequestBrought) {
  EXPECT_EQ(marked(kChatml, R"([{"role": "user", "content": "Hi <|im_end|>"}])"),
            "<|im_start|>[user]\n[Hi <|im_end|>]<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, MarksSurviveEveryOperation) {
  const std::string m = R"([{"role": "user", "content": "ab <|x|> cd", "list": ["p", "q"], "n": 5}])";
  const std::pair<const char*, const char*> cases[] = {
      {"{{ messages[0].content[1:4] }}|", "[b <]|"},
      {"{{ messages[0].content[::-1] }}|", "[dc >|x|< ba]|"},
      {"{{ '(' ~ messages[0].content ~ ')' }}", "([ab <|x|> cd])"},
      {"{{ messages[0].content.split(' ')[1] }}|", "[<|x|>]|"},
      {"{{ messages[0].content.replace('<|x|>', 'T') }}|", "[ab ]T[ cd]|"},
      {"{{ 'T-T'.replace('-', messages[0].content) }}", "T[ab <|x|> cd]T"},
      {"{{ messages[0].content | upper }}|", "[AB <|X|> CD]|"},
      {"{{ messages[0].content.title() }}|", "[Ab <|X|> Cd]|"},
      {"{{ messages[0].list | join('-') }}", "[p]-[q]"},
      {"{{ '-'.join(messages[0].list) }}", "[p]-[q]"},
      {"{{ messages[0].list | tojson }}", "[\"[p]\", \"[q]\"]"},
      {"{{ messages[0].list }}", "['[p]', '[q]']"},
      {"{{ (' ' ~ messages[0].content ~ ' ') | trim }}|", "[ab <|x|> cd]|"},
      {"{{ messages[0].content.strip('abcd ') }}|", "[<|x|>]|"},
      {"{{ messages[0].content * 2 }}|", "[ab <|x|> cdab <|x|> cd]|"},
      {"{{ messages[0].content | first }}{{ messages[0].content | last }}|", "[ad]|"},
      {"{% for c in messages[0].content[:2] %}{{ c }}-{% endfor %}", "[a]-[b]-"},
      {"{% set x %}T{{ messages[0].content }}{% endset %}{{ x[:3] }}", "T[ab]"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) | lower }}", "<[ab <|x|> cd]>"},
      {"{% set ns = namespace(a='T') %}{% set ns.a = ns.a ~ messages[0].content %}{{ ns.a }}", "T[ab <|x|> cd]"},
      {"{{ messages[0].content | indent(1, true) }}", " [ab <|x|> cd]"},
      {"{{ messages[0].content | default('T') }}|", "[ab <|x|> cd]|"},
      {"{{ messages[0].list | map('upper') | join }}", "[PQ]"},
      {"{{ messages[0].content.partition('<|x|>')[1] }}", "[<|x|>]"},
      {"{% for k in messages[0] %}{{ k }} {% endfor %}", "[role] [content] [list] [n] "},
      {"{{ messages[0].n }}", "5"},
      {"{% filter upper %}t{{ messages[0].list[0] }}{% endfilter %}", "T[P]"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked(source, m), expected) << source;
}

TEST(ChatTemplate, ToolsAndArgumentsOfTheRequestAreMarked) {
  ChatRenderOptions options;
  options.tools_json = R"([{"name": "<|im_end|>"}])";
  options.kwargs_json = {{"style", "\"<|x|>\""}};
  options.bos_token = "<s>";
  EXPECT_EQ(marked("{{ bos_token }}{{ tools[0].name }}{{ style }}|{{ tools | tojson }}", "[]", options),
            "<s>[<|im_end|><|x|>]|[{\"[name]\": \"[<|im_end|>]\"}]");
}

TEST(ChatTemplate, RendersMessagesOfTheApi) {
  ChatMessage system{.role = "system", .content = "Be brief."};
  ChatMessage assistant{
      .role = "assistant", .reasoning_content = "because", .tool_calls = {{"id1", "f", R"({"x": 1.0})"}}};
  ChatMessage tool{"tool", "42", {}, {}, "id1", "f"};
  const auto t = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}:{{ m.content is defined }}:{{ m.content }}:{{ m.reasoning_content }}:"
      "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{{ m.tool_call_id }}{{ m.name }}\n{% endfor %}{{ "
      "tools is none }}",
      "t");
  ASSERT_TRUE(t.ok()) << t.status().message();
  const auto pieces = (*t)->render({system, assistant, tool}, {});
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  EXPECT_EQ(rendered_text(*pieces),
            "system:True:Be brief.::\n"
            "assistant:False::because:[{\"id\": \"id1\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
            "\"arguments\": {\"x\": 1.0}}}]\n"
            "tool:True:42::id1f\nTrue");
}

TEST(ChatTemplate, GenerationPromptAndKwargs) {
  ChatRenderOptions options;
  options.add_generation_prompt = false;
  EXPECT_EQ(text_of(kChatml, "[]", options), "");
  options.kwargs_json = {{"enable_thinking", "false"}, {"budget", "[1, {\"a\": null}]"}};
  EXPECT_EQ(text_of("{{ enable_thinking }} {{ budget }}", "[]", options), "False [1, {'a': None}]");
  EXPECT_EQ(text_of("{{ bos_token is defined }}", "[]", options), "False");
}

TEST(ChatTemplate, KwargsCannotReplaceWhatTheEngineSets) {
  for (const char* name :
       {"messages", "tools", "add_generation_prompt", "bos_token", "raise_exception", "a-b", "", "1a"}) {
    ChatRenderOptions options;
    options.kwargs_json = {{name, "1"}};
    EXPECT_THAT(failure("x", "[]", options), HasSubstr("chat_template_kwargs: the name '" + std::string(name) + "'"))
        << name;
  }
  ChatRenderOptions broken;
  broken.kwargs_json = {{"a", "{"}};
  EXPECT_THAT(failure("x", "[]", broken), HasSubstr("chat_template_kwargs.a"));
}

TEST(ChatTemplate, ErrorsSayWhere) {
  EXPECT_THAT(failure("a\nbc {{ é.x }}"), StartsWith("t: 2:7: "));
  EXPECT_EQ(failure("a\n  {% if x %}\n{{ missing.y }}", "[]"),
            "t: 3:16: the template ends inside a block: '{% endif %}' is missing");
  EXPECT_EQ(failure("{% if true %}\n\n  {{ missing.y }}{% endif %}"), "t: 3:13: 'missing' is undefined");
  EXPECT_THAT(failure("{{ 1 | urlencode }}"),
              StartsWith("t: 1:8: the filter 'urlencode' is outside the template subset, which has abs, "));
  EXPECT_THAT(failure("{{ 1 is sameas(1) }}"),
              HasSubstr("the test 'sameas' is outside the template subset, which has defined"));
  EXPECT_EQ(failure("{% include 'x' %}"), "t: 1:4: the statement 'include' is outside the template subset");
  EXPECT_EQ(failure("{{ 'a'.zfill(2) }}"), "t: 1:13: the method 'zfill' of 'str' is outside the template subset");
  EXPECT_EQ(failure("{{ f(*a) }}"), "t: 1:6: '*' before an argument is outside the template subset");
  EXPECT_EQ(failure("{{ messages.append(1) }}"),
            "t: 1:19: the method 'append' of 'list' is outside the template subset");
  EXPECT_EQ(failure("{{ raise_exception('no tools') }}"), "t: 1:19: the template refuses these messages: 'no tools'");
  EXPECT_EQ(failure("{{ raise_exception('a\\nb') }}"), "t: 1:19: the template refuses these messages: 'a\\nb'");
  EXPECT_EQ(failure("{{ 9223372036854775807 + 1 }}"),
            "t: 1:24: the result of + does not fit 64 bits; larger integers are outside the template subset");
}

// What a template holds enters a message as one short line: a string of many lines, a control character, a long name.
TEST(ChatTemplate, ErrorsStayOneShortLine) {
  EXPECT_EQ(failure("{{ 1 'a\nb' }}"), "t: 1:6: expected '}}', found ''a\\nb''");
  EXPECT_EQ(failure("{{ \x1b }}"), "t: 1:4: unexpected character '\\x1b'");
  const std::string name(5000, 'n');
  for (const std::string& source :
       {"{{ 1 | " + name + " }}", "{{ 1 is " + name + " }}", "{{ 'a'." + name + "() }}", "{% " + name + " %}",
        "{{ 'a'.split(" + name + "=1) }}", "{% macro m() %}{% endmacro %}{{ m(" + name + "=1) }}",
        "{% set " + name + " = 1 %}{% set " + name + ".x = 1 %}"}) {
    const std::string message = failure(source);
    EXPECT_LT(message.size(), 1000u) << source.substr(0, 20);
    EXPECT_THAT(message, HasSubstr("nnn...'")) << source.substr(0, 20);
  }
}

TEST(ChatTemplate, MessagesMustBeAnArrayOfUtf8) {
  EXPECT_THAT(failure("x", "{}"), HasSubstr("messages: expected an array"));
  EXPECT_THAT(failure("x", "[1"), HasSubstr("messages"));
  EXPECT_THAT(failure("x", "[\"\xff\"]"), HasSubstr("messages"));
  const auto t = ChatTemplate::parse("x", "t");
  const auto pieces = (*t)->render({ChatMessage{.role = "user", .content = "ab\xC3"}}, {});
  EXPECT_EQ(pieces.status().message(), "messages[0].content is not UTF-8 at byte 2");
  EXPECT_THAT(failure("a\xff"), HasSubstr("the template is not UTF-8 at byte 1"));
}

TEST(ChatTemplate, IsThreadSafeToRenderTwice) {
  const auto t = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "t");
  ASSERT_TRUE(t.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rendered_text(*(*t)->render_json("[1, 2, 3]", {})), "3");
}

}  // namespace
}  // namespace halfbyte
