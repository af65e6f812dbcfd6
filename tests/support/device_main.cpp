// main() of tests that need a device: 77, which ctest knows as skipped, when no case ran. GoogleTest's own ends with 0 then.
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  const bool none_ran = all.skipped_test_count() > 0 && all.successful_test_count() == 0;
  return code == 0 && none_ran ? 77 : code;
}
