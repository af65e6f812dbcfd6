// Tiny random models of every supported architecture and option against transformers (tiny.hbg, see README.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "formats/bf16.h"
#include "kernels/registry.h"
#include "parity/parity_support.h"
#include "parity/tiny_model.h"
#include "support/golden_file.h"
#include "support/temp_folder.h"

namespace halfbyte::testing {
namespace {

const GoldenFile& goldens() {
  static const GoldenFile file(HALFBYTE_SOURCE_DIR "/tests/parity/tiny.hbg");
  return file;
}

// The model's folder, written once a run.
std::string model_folder(const std::string& name) {
  static const TempFolder root;
  static std::map<std::string, uint64_t> fingerprints;
  if (fingerprints.count(name) == 0) fingerprints[name] = value_or_throw(write_tiny_model(name, root / name));
  if (fingerprints[name] != goldens().scalar<uint64_t>(name + "/fingerprint")) {
    throw std::runtime_error(name + ": the weights made here are not those that transformers ran");
  }
  return root / name;
}

struct Case {
  std::string model;
  Isa isa;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " on " << isa_name(c.isa);
}

class TinyParity : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!isa_runs_here(GetParam().isa)) GTEST_SKIP() << "this CPU does not run " << isa_name(GetParam().isa);
  }
  std::unique_ptr<Engine> open(const std::string& plan) const {
    return open_engine(model_folder(GetParam().model), plan, isa_name(GetParam().isa));
  }
  template <class T>
  std::vector<T> golden(const std::string& name) const {
    return goldens().get<T>(GetParam().model + "/" + name);
  }

  // Logits [positions, vocab] of the golden positions. score() gives no row behind the last token, so one is added.
  std::vector<float> logits_at_golden_positions(Engine& engine) const {
    std::vector<int32_t> tokens = golden<int32_t>("prompt");
    tokens.push_back(0);
    ScoreOptions options;
    options.logits = true;
    const ScoreResult scores = value_or_throw(engine.score(tokens, options));
    const size_t vocab = scores.logits.size() / (tokens.size() - 1);
    std::vector<float> out;
    for (const int32_t position : golden<int32_t>("positions")) {
      const auto row = scores.logits.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(position) * vocab);
      out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
    }
    return out;
  }
};

double max_abs(const std::vector<float>& x) {
  double m = 0;
  for (const float v : x) m = std::max(m, static_cast<double>(std::fabs(v)));
  return m;
}

double max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double m = 0;
  for (size_t i = 0; i < a.size(); ++i) m = std::max(m, std::fabs(static_cast<double>(a[i]) - b[i]));
  return m;
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST_P(TinyParity, Float32LogitsAreTransformers) {
  const auto engine = open("f32");
  const std::vector<float> expected = golden<float>("logits");
  const std::vector<float> logits = logits_at_golden_positions(*engine);
  ASSERT_EQ(logits.size(), expected.size());
  const double relative = max_difference(logits, expected) / max_abs(expected);
  RecordProperty("relative_error", std::to_string(relative));
  EXPECT_LT(relative, 1e-5);  // measured: 2e-6
}

TEST_P(TinyParity, Float32LogProbabilitiesAreTransformers) {
  const auto engine = open("f32");
  const ScoreResult scores = value_or_throw(engine->score(golden<int32_t>("prompt")));
  const std::vector<float> expected = golden<float>("logprobs");
  ASSERT_EQ(scores.logprobs.size(), expected.size());
  EXPECT_LT(max_difference(scores.logprobs, expected), 5e-5);
}

TEST_P(TinyParity, SixtyFourGreedyTokensAreTransformers) {
  const auto engine = open("f32");
  const std::vector<int32_t> expected = golden<int32_t>("greedy");
  const auto text = greedy(*engine, {golden<int32_t>("prompt")}, static_cast<int64_t>(expected.size()), -1);
  EXPECT_THAT(text[0], ::testing::ElementsAreArray(expected));
}

// Our `bf16` rounds the inputs of linears and the KV cache; transformers' bfloat16 rounds every intermediate too. So
// ours must be at least as near to the FP32 logits, and within both errors of transformers' BF16 logits.
TEST_P(TinyParity, Bf16IsNoFartherFromFloat32ThanTransformersBf16) {
  const auto engine = open("bf16");
  const std::vector<float> f32 = golden<float>("logits");
  std::vector<float> theirs;
  for (const uint16_t bits : golden<uint16_t>("logits_bf16")) theirs.push_back(BF16::decode(bits));
  const std::vector<float> ours = logits_at_golden_positions(*engine);
  ASSERT_EQ(ours.size(), f32.size());
  const double our_error = rms_difference(ours, f32), their_error = rms_difference(theirs, f32);
  RecordProperty("share_of_transformers_error", std::to_string(our_error / their_error));
  EXPECT_LE(our_error, their_error);
  EXPECT_GT(our_error, 0.0) << "nothing was rounded: the plan was not carried out";
  EXPECT_LE(rms_difference(ours, theirs), our_error + their_error);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& name : goldens().children("")) {
    if (name == "made_with") continue;
    for (const Isa isa : all_isas()) out.push_back({name, isa});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, TinyParity, ::testing::ValuesIn(cases()),
                         [](const auto& c) { return c.param.model + "_" + isa_name(c.param.isa); });

TEST(TinyParityFiles, EveryConfigurationHasGoldens) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(HALFBYTE_SOURCE_DIR "/tests/parity/tiny")) {
    names.push_back(entry.path().stem().string());
  }
  EXPECT_GE(names.size(), 11u);
  for (const std::string& name : names) EXPECT_TRUE(goldens().has(name + "/logits")) << name;
}

}  // namespace
}  // namespace halfbyte::testing
