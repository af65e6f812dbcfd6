// A model rounded at load and the same model rounded by the exporter and read back are one and the same, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "halfbyte/engine.h"
#include "model/synthetic.h"
#include "quantize/exporter.h"
#include "support/temp_folder.h"
#include "support/tiny_synthetic.h"
#include "support/write_model_folder.h"

namespace halfbyte {
namespace {

using testing::TempFolder;

class ExportedFolder : public ::testing::Test {
 protected:
  // Writes a BF16 model of the given width and exports it by `rtn`.
  void make(int64_t hidden) {
    HfConfig config = testing::tiny_config("qwen2");
    config.hidden_size = hidden;
    config.intermediate_size = 80;
    testing::write_model_folder(folder_.path(), config,
                                testing::read_all(*synthetic_source(config, "exported").tensors),
                                /*bf16=*/true);
    ExportOptions options;
    options.threads = 2;
    const auto report = export_model(folder_.path(), exported(), *recipe_named("rtn"), options);
    ASSERT_TRUE(report.ok()) << report.status().message();
  }

  std::string exported() const { return exported_.path() + "/out"; }

  static std::shared_ptr<const Model> load(const std::string& path, const std::string& plan) {
    LoadOptions options;
    options.threads = 2;
    if (!plan.empty()) options.plan = *parse_plan(plan);
    const auto model = Model::load(path, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *model : nullptr;
  }

  static std::vector<float> logits(const std::shared_ptr<const Model>& model) {
    EngineOptions options;
    options.threads = 2;
    auto engine = Engine::create(model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    ScoreOptions score_options;
    score_options.logits = true;
    const auto score = (*engine)->score(std::vector<int32_t>{1, 5, 100, 22, 22, 7, 130, 0, 64, 3}, score_options);
    EXPECT_TRUE(score.ok()) << score.status().message();
    return score->logits;
  }

  TempFolder folder_, exported_;
};

TEST_F(ExportedFolder, EqualsRoundingAtLoadInEveryNvfp4Plan) {
  make(48);
  for (const char* plan : {"w4a16", "w4a8", "w4a4"}) {
    const auto stored = load(exported(), plan), rounded = load(folder_.path(), plan);
    ASSERT_TRUE(stored && rounded);
    EXPECT_EQ(stored->summary().source, "ModelOpt W4A16_NVFP4 folder");
    EXPECT_EQ(rounded->summary().source, "Hugging Face folder");
    EXPECT_EQ(logits(stored), logits(rounded)) << plan;
  }
}

TEST_F(ExportedFolder, ItsOwnPlanIsTheDefault) {
  make(48);
  const auto by_plan_file = load(exported(), "");
  EXPECT_EQ(by_plan_file->plan().linear_for("layers.0.mlp.up_proj").weights, WeightKind::kNVFP4);
  const std::vector<float> expected = logits(load(folder_.path(), "w4a16"));
  EXPECT_EQ(logits(by_plan_file), expected);
  // A folder of another maker has no such file: its tensors say the same.
  std::filesystem::remove(exported() + "/halfbyte_plan.json");
  const auto by_tensors = load(exported(), "");
  EXPECT_TRUE(by_tensors->summary().notes.empty());
  EXPECT_EQ(logits(by_tensors), expected);
}

TEST_F(ExportedFolder, LinearsLeftInBF16StaySo) {
  make(40);  // no multiple of 16: everything that reads the residual stream stays BF16
  std::filesystem::remove(exported() + "/halfbyte_plan.json");
  const auto model = load(exported(), "");
  EXPECT_EQ(model->plan().linear_for("layers.1.mlp.up_proj").weights, WeightKind::kBF16);
  EXPECT_EQ(model->plan().linear_for("layers.1.mlp.down_proj").weights, WeightKind::kNVFP4);
  const char* same =
      "w4a16,*.q_proj:weights=bf16,*.k_proj:weights=bf16,*.v_proj:weights=bf16,*.gate_proj:weights=bf16,"
      "*.up_proj:weights=bf16";
  EXPECT_EQ(logits(model), logits(load(folder_.path(), same)));
}

TEST_F(ExportedFolder, OtherPlansConvertAndSaySo) {
  make(48);
  const auto dequantised = load(exported(), "f32");
  ASSERT_EQ(dequantised->summary().notes.size(), 1u);
  EXPECT_THAT(dequantised->summary().notes[0], ::testing::HasSubstr("14 linears are stored in NVFP4"));
  const auto finer = load(exported(), "w4a16,head.weights=nvfp4");
  ASSERT_EQ(finer->summary().notes.size(), 1u);
  EXPECT_THAT(finer->summary().notes[0], ::testing::HasSubstr("1 linears that the checkpoint keeps"));
  const auto fixed_scale = load(exported(), "w4a4,activation_scale=static");
  ASSERT_EQ(fixed_scale->summary().notes.size(), 1u);
  EXPECT_THAT(fixed_scale->summary().notes[0], ::testing::HasSubstr("no input scale"));
}

}  // namespace
}  // namespace halfbyte
