// Qwen2.5-Coder-0.5B-Instruct from a Q4_K_M file (Q4_K, Q5_0, Q6_K, Q8_0 blocks), dequantised, against transformers
// (qwen.hbg, see README.md).
#include <gtest/gtest.h>

#include "parity/parity_support.h"
#include "support/golden_file.h"
#include "support/shared_data.h"

namespace halfbyte::testing {
namespace {

constexpr int32_t kEnd = 151645;  // <|im_end|>

// Sanitizers slow the arithmetic about tenfold.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kQuestions = 1;
#else
constexpr size_t kQuestions = 10;
#endif

// A prompt's greedy text equals transformers' up to the first step where the two best logits are within 1e-3.
TEST(QwenParity, GreedyTextOfTenQuestions) {
  HB_SKIP_WITHOUT(qwen_gguf(), "the Qwen2.5-Coder-0.5B GGUF");
  const GoldenFile goldens(HALFBYTE_SOURCE_DIR "/tests/parity/qwen.hbg");
  EngineOptions options;
  options.max_batch = 10;
  options.context = 128;
  options.kv_tokens = 10 * 128;
  LoadOptions load;
  load.plan = value_or_throw(parse_plan("f32"));
  const auto engine = value_or_throw(Engine::create(value_or_throw(Model::load(qwen_gguf(), load)), options));

  std::vector<std::vector<int32_t>> prompts;
  const std::vector<std::string> questions = goldens.children("chat");
  for (size_t q = 0; q < kQuestions; ++q) prompts.push_back(goldens.get<int32_t>("chat/" + questions[q] + "/prompt"));
  const auto texts = greedy(*engine, prompts, 20, kEnd);
  for (size_t q = 0; q < kQuestions; ++q) {
    const auto expected = goldens.get<int32_t>("chat/" + questions[q] + "/tokens");
    const auto margins = goldens.get<float>("chat/" + questions[q] + "/margins");
    size_t same = 0;
    while (same < std::min(texts[q].size(), expected.size()) && texts[q][same] == expected[same]) ++same;
    if (same == expected.size() && texts[q].size() == same) continue;
    ASSERT_LT(same, margins.size()) << questions[q] << " went on behind the end of transformers' text";
    EXPECT_LT(margins[same], 1e-3f) << questions[q] << ": token " << same << " differs though it was no tie";
  }
}

}  // namespace
}  // namespace halfbyte::testing
