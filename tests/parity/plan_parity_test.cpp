// The engine's logits under every precision plan, bit for bit what the numpy definition computes (plans.hbg,
// README.md).
#include <gtest/gtest.h>

#include <cctype>

#include "kernels/registry.h"
#include "parity/parity_support.h"
#include "parity/tiny_model.h"
#include "support/golden_file.h"
#include "support/temp_folder.h"

namespace halfbyte::testing {
namespace {

const GoldenFile& goldens() {
  static const GoldenFile file(HALFBYTE_SOURCE_DIR "/tests/parity/plans.hbg");
  return file;
}

// The head as the linears of w4a16 are.
constexpr const char* kNvfp4Head = "w4a16,head.weights=nvfp4";
constexpr const char* kFp8Head = "bf16,head.weights=fp8";

struct Case {
  std::string model;
  std::string plan;
  Isa isa;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " in " << c.plan << " on " << isa_name(c.isa);
}

// W4A16 has two exact forms (docs/numerics.md 3.2); which one runs is a fact of the chosen kernel, not of the machine.
std::string golden_name(const Case& c) {
  if (const size_t kv = c.plan.find(",kv="); kv != std::string::npos)
    return c.plan.substr(0, kv) + "-kv-" + c.plan.substr(kv + 4);
  if (c.plan == kFp8Head) return "bf16-head-fp8";
  const std::string name = c.plan == kNvfp4Head ? "w4a16-head-nvfp4" : c.plan;
  const bool nvfp4 = name == "w4a16" || name == "w4a16-head-nvfp4", mxfp4 = name == "w4a16-mxfp4";
  if (!nvfp4 && !mxfp4) return name;
  const WeightFormat format = nvfp4 ? WeightFormat::kNVFP4 : WeightFormat::kMXFP4;
  const LinearKernel* kernel = value_or_throw(find_linear_kernel(format, ActivationMode::kA16, c.isa));
  return kernel->isa == Isa::kRef ? name : name + "-a16i16";
}

class PlanParity : public ::testing::TestWithParam<Case> {};

TEST_P(PlanParity, LogitsAreTheDefinitionsBits) {
  const Case& c = GetParam();
  if (!isa_runs_here(c.isa)) GTEST_SKIP() << "this CPU does not run " << isa_name(c.isa);
  const TempFolder folder;
  value_or_throw(write_tiny_model(c.model, folder.path()));
  const auto engine = open_engine(folder.path(), c.plan, isa_name(c.isa));

  std::vector<int32_t> tokens = goldens().get<int32_t>(c.model + "/prompt");
  tokens.push_back(0);  // score() gives no row behind the last token
  ScoreOptions options;
  options.logits = true;
  const ScoreResult scores = value_or_throw(engine->score(tokens, options));
  const std::string name = c.model + "/" + golden_name(c);
  const std::vector<float> expected = goldens().get<float>(name);
  const std::vector<int32_t> positions = goldens().get<int32_t>("positions");
  const size_t vocab = expected.size() / positions.size();
  for (size_t p = 0; p < positions.size(); ++p) {
    const float* row = scores.logits.data() + static_cast<size_t>(positions[p]) * vocab;
    for (size_t i = 0; i < vocab; ++i) {
      ASSERT_EQ(row[i], expected[p * vocab + i]) << name << ", position " << positions[p] << ", logit " << i;
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& model : goldens().children("")) {
    if (model == "positions") continue;
    std::vector<std::string> plans = plan_preset_names();
    for (const char* kv : {"f32", "fp8", "nvfp4", "e1m2"}) plans.push_back(std::string("bf16,kv=") + kv);
    plans.push_back(kNvfp4Head);
    plans.push_back(kFp8Head);
    for (const std::string& plan : plans) {
      for (const Isa isa : {Isa::kRef, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512}) out.push_back({model, plan, isa});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, PlanParity, ::testing::ValuesIn(cases()), [](const auto& c) {
  std::string name = c.param.model + "_" + c.param.plan + "_" + isa_name(c.param.isa);
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

}  // namespace
}  // namespace halfbyte::testing
