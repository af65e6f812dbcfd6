// The questions that eval and calibrate ask: their flags, and how they become a list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"
#include "eval/question.h"

namespace halfbyte::tools {

struct QuestionOptions {
  std::string task, questions, split = "validation";
  std::vector<int64_t> levels;
  int64_t limit = 0;        // 0: all
  uint64_t order_seed = 0;  // of choices without an order
  bool in_sweep = false;  // --tasks of a sweep names task or file and levels: what is wrong is said without other flags
  bool given() const { return !task.empty() || !questions.empty(); }
};

void add_task_flag(Flags& flags, QuestionOptions& options);
// --questions, --levels, --limit, --order-seed.
void add_question_flags(Flags& flags, QuestionOptions& options);

// kNotFound where nothing lies under the name of a model.
Status check_model_exists(const std::string& model);

struct ChosenQuestions {
  std::string path;  // of their file
  std::vector<Question> questions;
};

// `model` is the folder that --task looks in.
Result<ChosenQuestions> choose_questions(const QuestionOptions& options, const std::string& model);

}  // namespace halfbyte::tools
