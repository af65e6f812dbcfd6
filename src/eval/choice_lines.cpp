#include "eval/choice_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "base/rng.h"
#include "eval/answer_text.h"
#include "eval/choice.h"
#include "eval/question_text.h"

namespace halfbyte {
namespace {

struct Choices {
  std::vector<std::string> texts;
  std::vector<std::string> labels;  // the line's own names of them, if it has any
};

Status add_choice(const JsonValue& value, std::vector<std::string>& out) {
  HB_ASSIGN(const std::string_view text, value.as_string());
  if (trim(text).empty()) return value.error("is empty");
  out.emplace_back(text);
  return {};
}

// ["a", "b"]; {"text": ["a", "b"], "label": ["A", "B"]}; [{"text": "a", "label": "A"}, ...].
Status read_choices(const JsonValue& value, Choices& out) {
  JsonValue texts = value;
  if (value.is_object()) {
    HB_ASSIGN(texts, value.at("text"));
    HB_ASSIGN(const JsonValue labels, value.at("label"));
    HB_ASSIGN(const auto items, labels.elements());
    for (const JsonValue& item : items) HB_TRY(add_choice(item, out.labels));
  }
  HB_ASSIGN(const auto items, texts.elements());
  for (const JsonValue& item : items) {
    if (!item.is_object()) {
      HB_TRY(add_choice(item, out.texts));
      continue;
    }
    HB_ASSIGN(const JsonValue text, item.at("text"));
    HB_TRY(add_choice(text, out.texts));
    HB_ASSIGN(const JsonValue label, item.at("label"));
    HB_TRY(add_choice(label, out.labels));
  }
  if (out.texts.size() < 2 || out.texts.size() > kMostChoices) {
    return value.error(fmt::format("holds {} choices, expected 2 to {}", out.texts.size(), kMostChoices));
  }
  if (!out.labels.empty() && out.labels.size() != out.texts.size()) {
    return value.error(fmt::format("has {} labels for {} choices", out.labels.size(), out.texts.size()));
  }
  return {};
}

// An index from 0, one of the line's labels, a letter, or an index in quotes (HellaSwag).
Result<size_t> right_choice(const JsonValue& value, const Choices& choices) {
  const size_t n = choices.texts.size();
  const std::string last = choice_letter(n - 1);
  if (!value.is_string()) {
    HB_ASSIGN(const int64_t index, value.as_int(0, static_cast<int64_t>(n) - 1));
    return static_cast<size_t>(index);
  }
  HB_ASSIGN(const std::string_view raw, value.as_string());
  const std::string_view text = trim(raw);
  for (size_t i = 0; i < choices.labels.size(); ++i) {
    if (trim(choices.labels[i]) == text) return i;
  }
  for (size_t i = 0; i < n && choices.labels.empty(); ++i) {
    if (text == choice_letter(i) || text == std::to_string(i)) return i;
  }
  return value.error(fmt::format("found {}, expected {}", quote(text),
                                 choices.labels.empty()
                                     ? fmt::format("an index from 0 to {} or a letter from A to {}", n - 1, last)
                                     : "one of the labels of the choices"));
}

// All members that name the right choice must name the same.
Result<size_t> read_right(const JsonValue& root, const Choices& choices) {
  std::optional<size_t> right;
  for (const char* key : {"answer_index", "answer", "answerKey", "label"}) {
    const auto value = root.find_set(key);
    if (!value) continue;
    HB_ASSIGN(const size_t index, right_choice(*value, choices));
    if (right && *right != index) {
      return value->error(fmt::format("names choice {}, but another member names choice {}; expected the same",
                                      choice_letter(index), choice_letter(*right)));
    }
    right = index;
  }
  if (right) return *right;
  return root.error("names no right choice; expected \"answer\", \"answer_index\", \"answerKey\" or \"label\"");
}

// Equal choices of which one is right leave nothing to tell the answers apart by. The published sets are taken as they are:
// MMLU's test split has four such questions (hendrycks/test, issue 29), and equal wrong choices stand in ARC too.
Status check_right_is_alone(const JsonValue& root, const Choices& choices, size_t right) {
  if (root.find("subject") || root.find("category")) return {};  // MMLU, MMLU-Pro
  for (size_t i = 0; i < choices.texts.size(); ++i) {
    if (i == right || trim(choices.texts[i]) != trim(choices.texts[right])) continue;
    return root.error(fmt::format("its choices {} and {} are both {}, the right answer; expected different ones",
                                  choice_letter(std::min(i, right)), choice_letter(std::max(i, right)),
                                  quote(trim(choices.texts[right]), 60)));
  }
  return {};
}

// A number or a text.
std::optional<std::string> id_in(const JsonValue& root, const char* key, std::string_view before) {
  const auto value = root.find_set(key);
  if (!value) return std::nullopt;
  if (const auto text = value->as_string(); text.ok() && !text->empty()) return std::string(*text);
  if (const auto number = value->as_int(INT64_MIN, INT64_MAX); number.ok())
    return fmt::format("{}-{}", before, *number);
  return std::nullopt;
}

// GPQA has no order: "Correct Answer" and "Incorrect Answer 1" to "3" are put into one.
Status read_gpqa(const JsonValue& root, uint64_t order_seed, Question& q, Choices& choices, size_t& right) {
  constexpr std::array kKeys{"Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"};
  HB_TRY(read_question_text(root, "Question", q.stem));
  for (const char* key : kKeys) {
    HB_ASSIGN(const JsonValue value, root.at(key));
    HB_TRY(add_choice(value, choices.texts));
  }
  right = 0;
  q.order_drawn = true;
  for (size_t i = choices.texts.size() - 1; i > 0; --i) {
    const uint64_t bits =
        philox_draw(order_seed, static_cast<uint32_t>(i), static_cast<uint64_t>(q.number), /*stream=*/3);
    const auto j = static_cast<size_t>(((bits >> 32) * (i + 1)) >> 32);
    std::swap(choices.texts[i], choices.texts[j]);
    right = right == i ? j : right == j ? i : right;
  }
  return {};
}

// "[title]", "[substeps]" and the like, as lm-evaluation-harness reads HellaSwag.
std::string hellaswag_text(std::string_view text) {
  std::string out(trim(text));
  for (size_t at = out.find(" [title]"); at != std::string::npos; at = out.find(" [title]")) out.replace(at, 8, ". ");
  for (size_t open = out.find('['); open != std::string::npos; open = out.find('[', open)) {
    const size_t close = out.find(']', open);
    if (close == std::string::npos) break;
    out.erase(open, close + 1 - open);
  }
  for (size_t at = out.find("  "); at != std::string::npos; at = out.find("  ", at + 1)) out.erase(at, 1);
  return out;
}

// "activity: ctx_a Ctx_b", and the endings.
Status read_hellaswag(const JsonValue& root, Question& q, Choices& choices) {
  std::string activity, first, second;
  q.continued = true;
  if (root.find("ctx_a")) {
    HB_TRY(read_question_text(root, "activity_label", activity));
    HB_TRY(read_question_text(root, "ctx_a", first));
    HB_ASSIGN(const JsonValue rest, root.at("ctx_b"));
    HB_ASSIGN(const std::string_view text, rest.as_string());
    second = std::string(text);
    for (size_t i = 0; i < second.size(); ++i) {  // Python's capitalize()
      char& c = second[i];
      if (i == 0 && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
      if (i > 0 && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    q.stem = hellaswag_text(activity + ": " + first + " " + second);
  } else {
    HB_TRY(read_question_text(root, "ctx", q.stem));
    q.stem = hellaswag_text(q.stem);
  }
  HB_ASSIGN(const JsonValue endings, root.at("endings"));
  HB_TRY(read_choices(endings, choices));
  for (std::string& ending : choices.texts) ending = hellaswag_text(ending);
  return {};
}

// {"question": "...", "choices": [...]}, also "options", "prompt", and ARC's own {"question": {"stem", "choices"}}.
Status read_plain(const JsonValue& root, Question& q, Choices& choices) {
  if (const auto question = root.find_set("question"); question && question->is_object()) {
    HB_TRY(read_question_text(*question, "stem", q.stem));
    HB_ASSIGN(const JsonValue own, question->at("choices"));
    return read_choices(own, choices);
  }
  HB_TRY(read_question_text(root,
                            root.find("question")        ? "question"
                            : root.find("question_stem") ? "question_stem"
                                                         : "prompt",
                            q.stem));
  HB_ASSIGN(const JsonValue own, root.at(root.find("options") ? "options" : "choices"));
  return read_choices(own, choices);
}

}  // namespace

bool is_choice_line(const JsonValue& root) {
  for (const char* key : {"choices", "options", "endings", "Correct Answer"}) {
    if (root.find(key)) return true;
  }
  const auto question = root.find("question");
  return question && question->find("choices");
}

Status read_choice_line(const JsonValue& root, int64_t line, uint64_t order_seed, Question& q) {
  Choices choices;
  size_t right = 0;
  const bool gpqa = root.find("Correct Answer").has_value();
  q.grading = Grading::kChoice;
  q.task = gpqa ? "gpqa" : root.find("endings") ? "hellaswag" : root.find("options") ? "mmlu-pro" : "choice";
  if (root.find_set("task")) HB_TRY(read_question_text(root, "task", q.task));
  if (const auto level = root.find_set("level")) {
    HB_ASSIGN(q.level, level->as_int(0, 1000));
  }
  q.id = fmt::format("{}-{:04}", q.task, line);
  for (const char* key : {"Record ID", "question_id", "id"}) {
    if (const auto id = id_in(root, key, q.task)) q.id = *id;
  }
  if (gpqa) {
    HB_TRY(read_gpqa(root, order_seed, q, choices, right));
  } else {
    const bool hellaswag = root.find("endings").has_value();
    HB_TRY(hellaswag ? read_hellaswag(root, q, choices) : read_plain(root, q, choices));
    HB_ASSIGN(right, read_right(root, choices));
    if (!hellaswag) HB_TRY(check_right_is_alone(root, choices, right));
  }
  q.choices = std::move(choices.texts);
  for (std::string& choice : q.choices) choice = std::string(trim(choice));
  q.stem = std::string(trim(q.stem));
  if (q.stem.empty()) return root.error("its question is empty");
  q.answer = choice_letter(right);
  q.prompt = choice_prompt(q);
  return {};
}

}  // namespace halfbyte
