#include "eval/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

class ResultsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(::testing::TempDir()) /
             (std::string("results_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl"))
                .string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  static SampleResult result(int64_t sample) {
    SampleResult r;
    r.id = "word-\"1\"";
    r.sample = sample;
    r.correct = sample % 2 == 0;
    r.answer = "4\n2";
    r.prompt_tokens = 9;
    r.reasoning_tokens = 100 + sample;
    r.tokens = 110;
    r.looped = true;
    if (sample == 3) {
      r.log_likelihoods = {-1.0 / 3, -2.5};
      r.correct_norm = true;
    }
    if (sample == 1) r.score = 1.0 / 3;
    return r;
  }

  std::string path_;
};

TEST_F(ResultsFileTest, GoesOnWhereItEndedWhereverItWasCut) {
  {
    auto file = ResultsFile::open(path_, R"({"seed":1})");
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (int64_t s = 0; s < 4; ++s) ASSERT_TRUE((*file)->append(result(s)).ok());
  }
  const std::string whole = content();
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    write(whole.substr(0, cut));
    auto file = ResultsFile::open(path_, R"({"seed":1})");
    ASSERT_TRUE(file.ok()) << cut << ": " << file.status().message();
    const auto there = static_cast<int64_t>((*file)->results().size());
    for (int64_t s = 0; s < there; ++s) {
      const SampleResult& r = (*file)->results()[static_cast<size_t>(s)];
      EXPECT_EQ(r.id, "word-\"1\"");
      EXPECT_EQ(r.answer, "4\n2");
      EXPECT_EQ(r.reasoning_tokens, 100 + s);
      EXPECT_EQ(r.correct, s % 2 == 0);
      EXPECT_TRUE(r.looped);
      EXPECT_EQ(r.log_likelihoods, result(s).log_likelihoods) << "to the last bit";
      EXPECT_EQ(r.correct_norm, s == 3);
      EXPECT_EQ(r.score, result(s).score);
    }
    for (int64_t s = there; s < 4; ++s) ASSERT_TRUE((*file)->append(result(s)).ok());
    ASSERT_EQ(content(), whole) << cut;
  }
}

TEST_F(ResultsFileTest, RefusesOtherSettingsAndOtherFiles) {
  ASSERT_TRUE(ResultsFile::open(path_, R"({"seed":1})").ok());
  const auto other = ResultsFile::open(path_, R"({"seed":2})");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), HasSubstr("other settings"));
  write("my notes, without a newline");
  EXPECT_FALSE(ResultsFile::open(path_, R"({"seed":1})").ok());
  EXPECT_EQ(content(), "my notes, without a newline") << "a file that is not ours is not touched";
  write("{\"seed\":1}\nno json\n");
  const auto broken = ResultsFile::open(path_, R"({"seed":1})");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.status().message(), HasSubstr("line 2"));
  EXPECT_FALSE(ResultsFile::open("/no/such/folder/file", "{}").ok());
}

TEST_F(ResultsFileTest, NamesWhatDiffersDownToTheValue) {
  const std::string same = R"("temperature":0.6,"penalties":[1.1,0.0])";
  const std::string old = R"({"halfbyte_eval":2,"plan":{"linear":{"weights":"nvfp4"},"head":"bf16"},)";
  ASSERT_TRUE(ResultsFile::open(path_, old + same + "}").ok());
  const auto other =
      ResultsFile::open(path_, R"({"halfbyte_eval":2,"plan":{"linear":{"weights":"int4"},"head":"bf16"},)" + same +
                                   R"(,"choices":"text"})");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(),
              HasSubstr(R"(continued: 'plan.linear.weights' is '"nvfp4"' there and '"int4"' now, 'choices' is missing )"
                        R"(there and '"text"' now; name another file)"));
}

TEST_F(ResultsFileTest, SaysWhyAFingerprintMayDiffer) {
  ASSERT_TRUE(ResultsFile::open(path_, R"({"halfbyte_eval":2,"fingerprint":"1"})").ok());
  const auto other = ResultsFile::open(path_, R"({"halfbyte_eval":2,"fingerprint":"2"})");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), HasSubstr(R"('fingerprint' is '"1"' there and '"2"' now (the questions are )"
                                                  "others, or a version before 2026-11-30 wrote the file, "));
}

TEST_F(ResultsFileTest, GoesOnWithTheFloatsOfEarlierVersions) {
  const std::string now = R"({"halfbyte_eval":2,"temperature":0.6,"penalties":[1.1,0.0]})";
  write(R"({"halfbyte_eval":2,"temperature":0.6000000238418579,"penalties":[1.100000023841858,0.0]})"
        "\n");
  EXPECT_TRUE(ResultsFile::open(path_, now).ok());
  write(R"({"halfbyte_eval":2,"temperature":0.6000001,"penalties":[1.100000023841858,0.0]})"
        "\n");
  const auto other = ResultsFile::open(path_, now);
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), HasSubstr("continued: 'temperature' is '0.6000001' there and '0.6' now;"));
}

TEST_F(ResultsFileTest, OneRunAtATimeHoldsIt) {
  auto first = ResultsFile::open(path_, R"({"seed":1})");
  ASSERT_TRUE(first.ok() && (*first)->append(result(0)).ok());
  const auto second = ResultsFile::open(path_, R"({"seed":1})");
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("another halfbyte eval is writing it"));
  (*first)->close();
  EXPECT_EQ((*first)->results().size(), 1u);
  const auto next = ResultsFile::open(path_, R"({"seed":1})");
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*next)->results().size(), 1u);
}

TEST_F(ResultsFileTest, InMemoryWritesNothing) {
  ResultsFile file;
  ASSERT_TRUE(file.append(result(0)).ok());
  EXPECT_EQ(file.results().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace halfbyte
