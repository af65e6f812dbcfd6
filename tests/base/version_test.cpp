#include "halfbyte/version.h"

#include <gtest/gtest.h>

#include <regex>

namespace halfbyte {
namespace {

TEST(Version, Texts) {
  EXPECT_TRUE(std::regex_match(version(), std::regex(R"(\d+\.\d+\.\d+)"))) << version();
  EXPECT_TRUE(std::regex_match(build_commit(), std::regex(R"(unknown|[0-9a-f]{12,40}(\+dirty)?)"))) << build_commit();
  EXPECT_TRUE(std::regex_search(build_compiler(), std::regex(R"(^(g\+\+|clang) \d+\.)"))) << build_compiler();
}

}  // namespace
}  // namespace halfbyte
