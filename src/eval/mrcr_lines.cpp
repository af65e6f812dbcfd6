#include "eval/mrcr_lines.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "eval/question_text.h"

namespace halfbyte {
namespace {

Status read_messages(const JsonValue& list, Question& q) {
  HB_ASSIGN(const auto items, list.elements());
  for (const JsonValue& item : items) {
    QuestionTurn turn;
    HB_TRY(read_question_text(item, "role", turn.role));
    HB_TRY(read_question_text(item, "content", turn.content));
    if (turn.role != "user" && turn.role != "assistant" && turn.role != "system")
      return item.error(fmt::format("its role is {}, expected user, assistant or system", quote(turn.role)));
    q.before.push_back(std::move(turn));
  }
  if (q.before.empty() || q.before.back().role != "user") return list.error("does not end in a message of the user");
  q.prompt = std::move(q.before.back().content);
  q.before.pop_back();
  return {};
}

}  // namespace

bool is_mrcr_line(const JsonValue& root) {
  return root.find("random_string_to_prepend").has_value();
}

Status read_mrcr_line(const JsonValue& root, const std::string& name, int64_t line, Question& q) {
  q.task = "mrcr";
  q.grading = Grading::kSequence;
  q.id = fmt::format("mrcr-{:04}", line);
  if (root.find_set("task")) HB_TRY(read_question_text(root, "task", q.task));
  if (const auto id = root.find_set("id"); id && id->is_string()) HB_TRY(read_question_text(root, "id", q.id));
  if (const auto needles = root.find_set("n_needles")) {
    HB_ASSIGN(q.level, needles->as_int(0, 1000));
  }
  HB_TRY(read_question_text(root, "answer", q.answer));
  HB_TRY(read_question_text(root, "random_string_to_prepend", q.prefix));
  HB_ASSIGN(const JsonValue messages, root.at(root.find("messages") ? "messages" : "prompt"));
  if (!messages.is_string()) return read_messages(messages, q);
  HB_ASSIGN(const std::string_view text, messages.as_string());
  HB_ASSIGN(const auto document, JsonDocument::parse(text, name + ": prompt"));
  return read_messages(document->root(), q);
}

}  // namespace halfbyte
