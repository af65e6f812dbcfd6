#include "text/template_text.h"

#include <gtest/gtest.h>

#include "text/template_print.h"

namespace halfbyte {
namespace {

// "ab[cd]e": user runs in brackets.
std::string marked(const MarkedText& t) {
  std::string out;
  t.for_each_run(
      [&](std::string_view run, bool user) { out += user ? "[" + std::string(run) + "]" : std::string(run); });
  return out;
}

TEST(MarkedText, JoinsRunsOfOneOrigin) {
  MarkedText t("ab");
  t.append("cd", true);
  t.append("ef", true);
  t.append("");
  t.append("g");
  EXPECT_EQ(marked(t), "ab[cdef]g");
  EXPECT_FALSE(t.user_at(1));
  EXPECT_TRUE(t.user_at(2));
  EXPECT_TRUE(t.user_at(5));
  EXPECT_FALSE(t.user_at(6));
}

TEST(MarkedText, SlicesAtEveryPairOfBorders) {
  MarkedText t("ab", true);
  t.append("cd");
  t.append("ef", true);
  const std::string origin = "uuttuu";
  for (size_t begin = 0; begin <= 6; ++begin) {
    for (size_t end = begin; end <= 6; ++end) {
      const MarkedText s = t.slice(begin, end);
      ASSERT_EQ(s.bytes(), t.bytes().substr(begin, end - begin));
      for (size_t i = 0; i < s.size(); ++i) EXPECT_EQ(s.user_at(i), origin[begin + i] == 'u') << begin << " " << end;
    }
  }
  MarkedText self = t;
  self.append(self);
  EXPECT_EQ(marked(self), "[ab]cd[efab]cd[ef]");
}

TEST(PythonFloat, WritesWhatReprWrites) {
  const std::pair<double, const char*> cases[] = {{1.0, "1.0"},
                                                  {0.1, "0.1"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e16, "1e+16"},
                                                  {123456789012345680.0, "1.2345678901234568e+17"},
                                                  {1e-4, "0.0001"},
                                                  {1e-5, "1e-05"},
                                                  {1.5e-7, "1.5e-07"},
                                                  {-0.0, "-0.0"},
                                                  {1e22, "1e+22"},
                                                  {100.0, "100.0"},
                                                  {12.5, "12.5"},
                                                  {5e-324, "5e-324"},
                                                  {1e100, "1e+100"},
                                                  {0.30000000000000004, "0.30000000000000004"},
                                                  {9007199254740993.0, "9007199254740992.0"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(python_float(value), text);
}

}  // namespace
}  // namespace halfbyte
