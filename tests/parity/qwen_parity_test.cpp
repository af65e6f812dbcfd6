// Qwen2.5-Coder-0.5B- and 1.5B-Instruct from Q4_K_M files (Q4_K, Q5_0, Q6_K, Q8_0 blocks), dequantised, against transformers
// (qwen.hbg and qwen_1.5b.hbg, see README.md).
#include <gtest/gtest.h>

#include "base/memory_info.h"
#include "parity/parity_support.h"
#include "support/golden_file.h"
#include "support/shared_data.h"

namespace halfbyte::testing {
namespace {

constexpr int32_t kEnd = 151645;  // <|im_end|>

// Sanitizers slow the arithmetic about tenfold.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// A prompt's greedy text equals transformers' up to the first step where the two best logits are within 1e-3.
void expect_greedy_texts(const std::string& gguf, const char* golden_file, size_t count) {
  const GoldenFile goldens(std::string(HALFBYTE_SOURCE_DIR "/tests/parity/") + golden_file);
  EngineOptions options;
  options.max_batch = 10;
  options.context = 128;
  options.kv_tokens = 10 * 128;
  LoadOptions load;
  load.plan = value_or_throw(parse_plan("f32"));
  const auto engine = value_or_throw(Engine::create(value_or_throw(Model::load(gguf, load)), options));

  std::vector<std::vector<int32_t>> prompts;
  const std::vector<std::string> questions = goldens.children("chat");
  ASSERT_EQ(questions.size(), 10u);
  for (size_t q = 0; q < count; ++q) prompts.push_back(goldens.get<int32_t>("chat/" + questions[q] + "/prompt"));
  const auto texts = greedy(*engine, prompts, 20, kEnd);
  for (size_t q = 0; q < count; ++q) {
    const auto expected = goldens.get<int32_t>("chat/" + questions[q] + "/tokens");
    const auto margins = goldens.get<float>("chat/" + questions[q] + "/margins");
    size_t same = 0;
    while (same < std::min(texts[q].size(), expected.size()) && texts[q][same] == expected[same]) ++same;
    if (same == expected.size() && texts[q].size() == same) continue;
    ASSERT_LT(same, margins.size()) << questions[q] << " went on behind the end of transformers' text";
    EXPECT_LT(margins[same], 1e-3f) << questions[q] << ": token " << same << " differs though it was no tie";
  }
}

TEST(QwenParity, GreedyTextOfTenQuestions) {
  HB_SKIP_WITHOUT(qwen_gguf(), "the Qwen2.5-Coder-0.5B GGUF");
  expect_greedy_texts(qwen_gguf(), "qwen.hbg", kSanitized ? 1 : 10);
}

TEST(QwenParity, GreedyTextOfTenQuestionsAt1500M) {
  HB_SKIP_WITHOUT(qwen_1_5b_gguf(), "the Qwen2.5-Coder-1.5B GGUF");
  if (kSanitized) GTEST_SKIP() << "6 GB of FP32 weights are too slow under a sanitizer";
  if (available_memory_bytes() < uint64_t{9} << 30) GTEST_SKIP() << "needs 9 GB of free memory";
  expect_greedy_texts(qwen_1_5b_gguf(), "qwen_1.5b.hbg", 10);
}

}  // namespace
}  // namespace halfbyte::testing
