#include "quantize/exporter.h"

#include <gtest/gtest.h>

#include "io/load_linear.h"
#include "io/model_source.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::smollm2_gguf;
using testing::TempFolder;

// A folder written by rtn reads back: every linear is NVFP4 with the values that rounding the source gives.
TEST(ExportSmolLM2, RtnReadsBackEqual) {
  const std::string path = smollm2_gguf();
  HB_SKIP_WITHOUT(path, "the SmolLM2 GGUF");
  const TempFolder folder;
  const auto recipe = recipe_named("rtn");
  ASSERT_TRUE(recipe.ok());
  const auto report = export_model(path, folder / "out", *recipe);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto written = open_model_source(folder / "out");
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(written->kind(), "ModelOpt W4A16_NVFP4 folder");
}

}  // namespace
}  // namespace halfbyte
