// The results file of an evaluation: JSON lines, first the settings, then one line a sample in the order of questions and
// samples, each flushed. A run that was stopped goes on where the file ends and gives the same bytes as one that was not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "eval/text_shape.h"

namespace halfbyte {

struct SampleResult {
  std::string id;               // the question's
  int64_t sample = 0;           // from 0
  bool correct = false;         // wholly
  std::optional<double> score;  // in [0, 1], where an answer may be right in part
  std::string answer;           // what the completion answers, "" if nothing
  int64_t prompt_tokens = 0, reasoning_tokens = 0, tokens = 0;
  bool truncated = false;          // reached the limit of new tokens
  bool looped = false;             // decode/loop_detector.h
  TextShape shape;                 // of the reasoning
  std::vector<int32_t> token_ids;  // generated; only where they are to be kept
  // Multiple choice by likelihood (eval/choice_scores.h): one a choice, nats, and whether the best by length is right.
  std::vector<double> log_likelihoods;
  bool correct_norm = false;

  // What accuracies are made of.
  double points() const { return score.value_or(correct ? 1 : 0); }
};

// What a results file holds.
struct StoredResults {
  std::string settings_json;
  std::vector<SampleResult> results;
};
// An unfinished last line is left out.
Result<StoredResults> read_results(const std::string& path);

// Thread-compatible.
class ResultsFile {
 public:
  // `settings_json`: one line that says everything the results depend on. A file that exists must begin with it and is
  // continued; an unfinished last line is cut off. One whose results have token ids, which the settings do not ask for, is
  // taken too: see keeps_tokens(). kInvalidArgument when its settings are others, it is something else, or another process
  // is writing it.
  static Result<std::unique_ptr<ResultsFile>> open(const std::string& path, const std::string& settings_json);
  // Results in memory only.
  ResultsFile() = default;

  Status append(const SampleResult& result);
  // No more samples come: the file is free for others. What is in memory stays.
  void close() { file_.reset(); }
  const std::vector<SampleResult>& results() const { return results_; }
  const std::string& path() const { return path_; }  // "" in memory
  // Whether its settings say that results have token ids; what is appended must have them then.
  bool keeps_tokens() const { return keeps_tokens_; }

 private:
  Status hold();
  Status read_existing(const std::string& settings_json);
  Status write_line(const std::string& line);

  std::string path_;
  std::unique_ptr<FileDescriptor> file_;
  std::vector<SampleResult> results_;
  bool keeps_tokens_ = false;
};

}  // namespace halfbyte
