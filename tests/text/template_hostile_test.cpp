// A template comes from the model's file: whatever it does, it ends soon, with text or with an error. (Under the
// sanitizers the same templates show that the C++ stack and the memory stay bounded.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace halfbyte {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string repeat(const std::string& s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += s;
  return out;
}

// "ok" or the message.
std::string outcome(const std::string& source, const std::string& messages = "[]") {
  const auto parsed = ChatTemplate::parse(source, "t");
  if (!parsed.ok()) return parsed.status().message();
  const auto pieces = (*parsed)->render_json(messages, {});
  return pieces.ok() ? "ok" : pieces.status().message();
}

TEST(HostileTemplate, TwentyThousandParentheses) {
  EXPECT_THAT(outcome("{{ " + repeat("(", 20000) + "1" + repeat(")", 20000) + " }}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ " + repeat("(", 20000)), HasSubstr("t: 1:"));
  EXPECT_THAT(outcome("{{ " + repeat("[", 20000) + repeat("]", 20000) + " }}"), HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ " + repeat("{1:", 20000) + "1" + repeat("}", 20000) + " }}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ " + repeat("x[", 20000) + "1" + repeat("]", 20000) + " }}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ " + repeat("x(", 20000) + "1" + repeat(")", 20000) + " }}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{% set " + repeat("(", 20000) + "x" + repeat(")", 20000) + " = 1 %}"),
              HasSubstr("nested deeper than 100"));
}

TEST(HostileTemplate, LongRunsOfUnaryOperators) {
  EXPECT_THAT(outcome("{{ " + repeat("not ", 50000) + "1 }}"), HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ " + repeat("- ", 50000) + "1 }}"), HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ " + repeat("1 if 0 else ", 20000) + "1 }}"), HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome("{{ x" + repeat(" if 1", 20000) + " }}"), HasSubstr("nest too deep"));
}

TEST(HostileTemplate, FiftyThousandNestedIfs) {
  EXPECT_THAT(outcome(repeat("{%if 1%}", 50000) + repeat("{%endif%}", 50000)), HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome(repeat("{% for x in [1] %}", 20000) + repeat("{% endfor %}", 20000)),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome(repeat("{% macro m() %}", 20000) + repeat("{% endmacro %}", 20000)),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(outcome(repeat("{% if 1 %}", 50000)), HasSubstr("nested deeper than 100"));
}

TEST(HostileTemplate, LongButFlatTemplatesRender) {
  EXPECT_EQ(outcome(repeat("{% if 1 %}a{% endif %}", 20000)), "ok");
  EXPECT_EQ(outcome("{% if 0 %}" + repeat("{% elif 0 %}", 20000) + "{% endif %}"), "ok");
  EXPECT_EQ(outcome("{{ 0" + repeat(" + 1", 50000) + " }}"), "ok");
  EXPECT_EQ(outcome("{{ 'a'" + repeat(" ~ 'b'", 50000) + " }}"), "ok");
  EXPECT_EQ(outcome("{{ 1" + repeat(" and 1", 50000) + " }}"), "ok");
  EXPECT_EQ(outcome("{{ 'a'" + repeat(" | upper", 50000) + " }}"), "ok");
  EXPECT_EQ(outcome("{{ 'a'" + repeat(".strip()", 20000) + " }}"), "ok");
  EXPECT_EQ(outcome("{{ 1" + repeat(" < 2", 20000) + " }}"), "ok");
  EXPECT_EQ(outcome("{{ [" + repeat("1,", 100000) + "] | length }}"), "ok");
}

TEST(HostileTemplate, MacrosThatCallThemselves) {
  EXPECT_THAT(outcome("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("nest too deep"));
  EXPECT_THAT(outcome("{% macro m(x) %}{{ m(m(x)) }}{% endmacro %}{{ m(1) }}"), HasSubstr("nest too deep"));
  EXPECT_THAT(outcome("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
              HasSubstr("nest too deep"));
  EXPECT_THAT(outcome("{% macro m(x=m()) %}{% endmacro %}{{ m() }}"), HasSubstr("nest too deep"));
  EXPECT_THAT(outcome("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}"), HasSubstr("nest too deep"));
  EXPECT_THAT(outcome("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), HasSubstr("nest too deep"));
  // Two calls a level: 2^100 calls if depth were the only bound.
  EXPECT_THAT(outcome("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"),
              AnyOf(HasSubstr("steps"), HasSubstr("nest too deep")));
}

// At the limit of depth, through every kind of block: the stack must hold.
TEST(HostileTemplate, DeepestAllowedRecursionFitsTheStack) {
  const std::string blocks = "{% if 1 %}{% for x in [1] %}{% with y = 1 %}{% filter upper %}{% set z %}";
  const std::string ends = "{% endset %}{{ z }}{% endfilter %}{% endwith %}{% endfor %}{% endif %}";
  EXPECT_THAT(outcome("{% macro m() %}" + blocks + "{{ [[(m() ~ 'a') | upper]] }}" + ends + "{% endmacro %}{{ m() }}"),
              HasSubstr("nest too deep"));
}

TEST(HostileTemplate, HugeRangesAndLoops) {
  EXPECT_THAT(outcome("{% for i in range(30000000) %}{% endfor %}"),
              HasSubstr("range: 30000000 numbers are more than 100000"));
  EXPECT_THAT(outcome("{{ range(-9223372036854775807, 9223372036854775807) }}"), HasSubstr("range"));
  EXPECT_THAT(outcome("{{ range(9223372036854775807, -9223372036854775807, -1) }}"), HasSubstr("range"));
  EXPECT_EQ(outcome("{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807) }}"), "ok");
  EXPECT_THAT(outcome("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(outcome("{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}"),
              AnyOf(HasSubstr("steps"), HasSubstr("bytes")));
}

TEST(HostileTemplate, DoublingStringsAndLists) {
  const std::string loop = "{% for i in range(100) %}";
  EXPECT_THAT(outcome("{% set ns = namespace(x='ab') %}" + loop + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
              HasSubstr("bytes"));
  EXPECT_THAT(outcome("{% set ns = namespace(x='ab') %}" + loop + "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
              HasSubstr("bytes"));
  EXPECT_THAT(outcome("{% set ns = namespace(x=[1]) %}" + loop + "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
              HasSubstr("bytes"));
  EXPECT_THAT(
      outcome("{% set ns = namespace(x='a') %}" + loop + "{% set ns.x = ns.x | replace('a', 'aa') %}{% endfor %}"),
      AnyOf(HasSubstr("bytes"), HasSubstr("steps")));
  EXPECT_THAT(outcome("{{ 'ab' * 9223372036854775807 }}"), HasSubstr("bytes"));
  EXPECT_THAT(outcome("{{ [1] * 9223372036854775807 }}"), HasSubstr("bytes"));
  EXPECT_EQ(outcome("{{ '' * 9223372036854775807 }}{{ [] * 9223372036854775807 }}"), "ok");
  EXPECT_THAT(outcome("{% set a = 'x' * 8000000 %}{{ a.replace('x', a) }}"),
              AnyOf(HasSubstr("bytes"), HasSubstr("steps")));
  EXPECT_THAT(outcome("{% set a = 'x' * 8000000 %}{{ a | list | join(a) }}"),
              AnyOf(HasSubstr("bytes"), HasSubstr("steps")));
}

TEST(HostileTemplate, SharedStructuresPrintedExponentially) {
  const std::string grow =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  for (const char* use :
       {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == [ns.x[0], ns.x[1]] }}", "{{ ns.x | string | length }}",
        "{{ ns.x | tojson(indent=2) }}", "{{ ns.x < ns.x }}", "{{ [ns.x, 1] | unique }}"}) {
    EXPECT_NE(outcome(grow + use), "ok") << use;
  }
  EXPECT_THAT(outcome("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(
      outcome("{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}"),
      HasSubstr("nested deeper than 100"));
  EXPECT_THAT(
      outcome("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x.index] %}{% endfor %}"),
      HasSubstr("nested deeper than 100"));
  EXPECT_THAT(
      outcome("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% for j in [ns.x] %}{% set ns.x = loop %}"
              "{% endfor %}{% endfor %}"),
      HasSubstr("nested deeper than 100"));
}

TEST(HostileTemplate, ValuesThatHoldThemselves) {
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ ns.me.me.me }}{{ ns == ns.me }}"), "ok");
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.l = [ns] %}{{ ns.l }}"), "ok");
  EXPECT_THAT(outcome("{% set ns = namespace() %}{% set ns.l = [ns] %}{{ ns.l | tojson }}"), HasSubstr("not JSON"));
  EXPECT_EQ(outcome("{% macro m() %}{% endmacro %}{% set ns = namespace(m=m) %}{% macro k() %}{{ ns.m() }}{% endmacro "
                    "%}{{ k() }}"),
            "ok");
  EXPECT_EQ(
      outcome("{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}{{ ns.l([2]) }}"),
      "ok");
}

TEST(HostileTemplate, ManyNamesAndScopesStayFast) {
  std::string names;
  for (int i = 0; i < 20000; ++i) names += "{% set a" + std::to_string(i) + " = 1 %}";
  EXPECT_EQ(outcome(names + "{% for i in range(20000) %}{% if a0 %}{% endif %}{% endfor %}"), "ok");
  std::string dict = "{% set d = {";
  for (int i = 0; i < 20000; ++i) dict += "'k" + std::to_string(i) + "': 1,";
  EXPECT_EQ(outcome(dict + "} %}{% for i in range(20000) %}{% if d.k19999 %}{% endif %}{% endfor %}"), "ok");
  EXPECT_THAT(
      outcome(
          "{% for i in range(100000) %}{% for j in range(10) %}{% macro m() %}{% endmacro %}{% endfor %}{% endfor %}"),
      AnyOf(HasSubstr("bytes"), HasSubstr("steps")));
  EXPECT_THAT(outcome("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [namespace()] + ns.l "
                      "%}{% endfor %}"),
              AnyOf(HasSubstr("bytes"), HasSubstr("steps")));
}

// Text searched for text that nearly matches everywhere: the search must be linear.
TEST(HostileTemplate, SearchesThatNearlyMatch) {
  const std::string set = "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}";
  for (const char* use : {"{{ b in a }}", "{{ a.find(b) }}", "{{ a.rfind('b' ~ a) }}", "{{ a.count(b) }}",
                          "{{ a.replace(b, '') | length }}", "{{ a.split(b) | length }}",
                          "{{ a.rsplit('b' ~ a[1:], 3) | length }}", "{{ a.rpartition('b' ~ a[:99999])[0] }}"}) {
    EXPECT_EQ(outcome(set + use), "ok") << use;
  }
  EXPECT_THAT(outcome(set + "{{ a.strip(b) }}"), AnyOf(HasSubstr("steps"), ::testing::Eq("ok")));
}

TEST(HostileTemplate, OddFormatsAndWidths) {
  EXPECT_THAT(outcome("{{ strftime_now('%' ~ '9' * 30 ~ 'Y') }}"),
              AnyOf(HasSubstr("strftime_now"), ::testing::Eq("ok")));
  EXPECT_THAT(outcome("{{ strftime_now('%400d' * 4) }}"), HasSubstr("strftime_now"));
  EXPECT_THAT(outcome("{{ strftime_now('a\\0b') }}"), HasSubstr("strftime_now"));
  EXPECT_THAT(outcome("{{ [1] | tojson(indent=9223372036854775807) }}"), HasSubstr("indent"));
  EXPECT_THAT(outcome("{{ 'a' | indent(9223372036854775807) }}"), HasSubstr("indent"));
  EXPECT_THAT(outcome("{{ 1" + repeat("0", 400) + " }}"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(outcome("{{ 1e999 }}"), HasSubstr("out of range"));
  EXPECT_THAT(outcome("{{ -9223372036854775807 - 2 }}"), HasSubstr("64 bits"));
  EXPECT_EQ(outcome("{{ (-9223372036854775807 - 1) % -1 }}"), "ok");
  EXPECT_THAT(outcome("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(outcome("{{ -(-9223372036854775807 - 1) }}{{ (-9223372036854775807 - 1) | abs }}"), HasSubstr("64 bits"));
  EXPECT_THAT(outcome("{{ 10 ** 400 }}"), HasSubstr("64 bits"));
  EXPECT_EQ(outcome("{{ 1 ** 9223372036854775807 }}{{ 'abc'[-9223372036854775807 - 1:] }}"), "ok");
  EXPECT_THAT(outcome("{{ ['a'] | map(" + repeat("'map', ", 30000) + "'upper') | list }}"), HasSubstr("map of map"));
}

TEST(HostileTemplate, TooLongATemplate) {
  EXPECT_THAT(outcome(std::string((1 << 20) + 1, 'x')), HasSubstr("at most 1048576 are read"));
  EXPECT_EQ(outcome(std::string(1 << 20, '{')).substr(0, 2), "t:");
  EXPECT_EQ(outcome(repeat("{{", 1 << 19)).substr(0, 2), "t:");
  EXPECT_EQ(outcome(repeat("{#", 1 << 19)).substr(0, 2), "t:");
  EXPECT_EQ(outcome(repeat("{% raw %}", 100000)).substr(0, 2), "t:");
}

}  // namespace
}  // namespace halfbyte
