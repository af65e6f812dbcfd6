// The roofline picture: every kernel and point is in it, inside the frame, and no name breaks the markup.
#include "roofline_svg.h"

#include <gtest/gtest.h>

#include <regex>

namespace halfbyte::tools {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

RooflinePicture two_kernels() {
  return {
      "CPU <\"&",
      20.0,
      {{"slow", 40.0, {{3.5, 35.0, "1"}, {7.0, 39.0, "2"}}}, {"fast", 900.0, {{3.5, 69.0, "1"}, {56.0, 800.0, "16"}}}}};
}

TEST(RooflineSvg, HoldsEveryKernelAndPoint) {
  const std::string svg = roofline_svg(two_kernels());
  EXPECT_EQ(count(svg, "<circle"), 4 + 2) << "points, and a sign beside each name";
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2) << "a roof a kernel";
  EXPECT_EQ(count(svg, "class='roof'"), 1);
  EXPECT_NE(svg.find(">slow<"), std::string::npos);
  EXPECT_NE(svg.find("peak in the caches 900"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST(RooflineSvg, EscapesText) {
  const std::string svg = roofline_svg(two_kernels());
  EXPECT_NE(svg.find("CPU &lt;&quot;&amp;"), std::string::npos);
}

TEST(RooflineSvg, EverythingLiesInTheFrame) {
  const std::string svg = roofline_svg(two_kernels());
  const std::regex place("c[xy]='([-0-9.]+)'");
  for (std::sregex_iterator it(svg.begin(), svg.end(), place), end; it != end; ++it) {
    const double v = std::stod((*it)[1]);
    EXPECT_GE(v, 0.0);
    EXPECT_LE(v, 960.0);
  }
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(RooflineSvg, NothingMeasuredIsAnEmptyFrame) {
  const std::string svg = roofline_svg({"none", 20.0, {}});
  EXPECT_EQ(count(svg, "<circle"), 0);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte::tools
