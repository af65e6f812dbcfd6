#include "question_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>

#include "base/quote.h"
#include "base/quote_path.h"

namespace halfbyte::tools {
namespace {

Result<std::string> questions_path(const QuestionOptions& options, const std::string& model) {
  if (!options.questions.empty() && !options.task.empty())
    return invalid_argument("--task and --questions: give one of them");
  if (!options.questions.empty()) return options.questions;
  if (options.task.empty()) {
    return invalid_argument(
        "what is to be answered? Give --task NAME, for a model with a folder questions, or --questions FILE");
  }
  if (options.split != "validation" && options.split != "test") {
    return invalid_argument(fmt::format("--split is {}, expected validation or test", quote(options.split)));
  }
  const std::filesystem::path folder = std::filesystem::path(model) / "questions";
  std::string path = (folder / (options.task + "-" + options.split + ".jsonl")).string();
  std::error_code failure;
  if (std::filesystem::exists(path, failure)) return path;
  std::set<std::string> tasks;
  const std::string ending = "-" + options.split + ".jsonl";
  for (const auto& file : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(ending)) tasks.insert(name.substr(0, name.size() - ending.size()));
  }
  HB_TRY(check_model_exists(model));
  return not_found(fmt::format(
      "{}{}: there is no file {}; {}{}", options.in_sweep ? "" : "--task ", quote(options.task), quote_path(path),
      tasks.empty() ? "" : fmt::format("there are {}; ", fmt::join(tasks, ", ")),
      options.in_sweep ? "the name of a question file ends in .jsonl" : "name a file with --questions FILE"));
}

std::string levels_of(std::span<const Question> questions) {
  std::set<int64_t> levels;
  for (const Question& q : questions) levels.insert(q.level);
  return fmt::format("{}", fmt::join(levels, ", "));
}

Status keep_some(const QuestionOptions& options, std::vector<Question>& questions) {
  if (!options.levels.empty()) {
    for (const int64_t level : options.levels) {
      if (std::ranges::find(questions, level, &Question::level) != questions.end()) continue;
      return invalid_argument(fmt::format(
          "{}: no question has level {}, there are {}",
          options.in_sweep ? quote_path(options.task.empty() ? options.questions : options.task) : "--levels", level,
          levels_of(questions)));
    }
    std::erase_if(questions, [&](const Question& q) {
      return std::ranges::find(options.levels, q.level) == options.levels.end();
    });
  }
  const auto all = static_cast<int64_t>(questions.size());
  if (options.limit <= 0 || options.limit >= all) return {};
  // Spread over the file, so that every level keeps its share.
  std::vector<Question> some;
  for (int64_t i = 0; i < options.limit; ++i)
    some.push_back(std::move(questions[static_cast<size_t>(i * all / options.limit)]));
  questions = std::move(some);
  return {};
}

}  // namespace

Status check_model_exists(const std::string& model) {
  std::error_code failure;
  if (std::filesystem::exists(model, failure)) return {};
  return not_found(quote_path(model) + ": no such file or folder; expected a Hugging Face folder or a .gguf file");
}

Result<ChosenQuestions> choose_questions(const QuestionOptions& options, const std::string& model) {
  ChosenQuestions chosen;
  HB_ASSIGN(chosen.path, questions_path(options, model));
  HB_ASSIGN(chosen.questions, read_questions(chosen.path, options.order_seed));
  HB_TRY(keep_some(options, chosen.questions));
  // A variable may be meant for other runs.
  if (options.order_seed != 0 && !from_environment("HALFBYTE_ORDER_SEED") &&
      std::ranges::none_of(chosen.questions, &Question::order_drawn))
    return invalid_argument(
        fmt::format("--order-seed has no effect: the choices of {} have an order, or there are none; leave it out",
                    quote_path(chosen.path)));
  return chosen;
}

void add_task_flag(Flags& flags, QuestionOptions& o) {
  flags.option("--task", o.task, "Questions in the model's folder: MODEL/questions/TASK-SPLIT.jsonl");
}

void add_question_flags(Flags& flags, QuestionOptions& o) {
  flags.option("--questions", o.questions, "A question file instead: JSON lines (docs/evaluation.md)");
  flags.option("--levels", o.levels, "Only questions of these levels, e.g. 2,3")->delimiter(',');
  flags.option("--limit", o.limit, "At most this many questions, spread over the file")
      ->check(whole_number(1, 1'000'000'000));
  flags.option("--order-seed", o.order_seed, "Seed of the order of choices that have none in their file (GPQA)")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
}

}  // namespace halfbyte::tools
