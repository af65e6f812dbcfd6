// A driver that is too old is named before anything is loaded. ctest runs this with a stand-in for the driver's library first on
// the library path.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/cuda_api.h"

namespace halfbyte {
namespace {

TEST(CudaDriver, TooOldIsSaidWithBothVersions) {
  if (std::getenv("HALFBYTE_OLD_DRIVER") == nullptr) GTEST_SKIP() << "run by ctest, with a stand-in for libcuda.so.1";
  const Status usable = cuda_usable();
  ASSERT_FALSE(usable.ok());
  EXPECT_EQ(usable.code(), StatusCode::kUnsupported);
  EXPECT_NE(usable.message().find("the driver is for CUDA 11.4, this program needs 1"), std::string::npos)
      << usable.message();
  EXPECT_EQ(unusable_cuda_device(), usable.message()) << "a driver is there, so --device auto says why it is not used";
  const auto text = cuda_devices_text();
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().message(), usable.message());
}

}  // namespace
}  // namespace halfbyte
