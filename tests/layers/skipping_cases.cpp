// For device_main_test.py: cases that skip, pass or fail as the environment says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

TEST(Cases, First) {
  GTEST_SKIP() << "as on a machine without a device";
}

TEST(Cases, Second) {
  const char* wanted = std::getenv("HALFBYTE_SECOND_CASE");
  if (wanted == nullptr) GTEST_SKIP() << "as on a machine without a device";
  EXPECT_EQ(std::string(wanted), "passes");
}
