// Whether a completion ends in a right answer. The same rules as python/halfbyte/tasks, which a test holds together.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "eval/question.h"

namespace halfbyte {

// What the whole text of a completion answers: behind the last "</think>" (the whole text without one), white space
// around it taken away, the text must be "answer: X" in one line; that X. None otherwise, and where the reasoning was
// opened and never closed.
std::optional<std::string> final_answer(std::string_view completion);

// A countdown's equations "a op b=c, ...": every number used once, each equation true, the last result the target.
bool grade_countdown(const Question& question, std::string_view answer);

// What the completion answers, by the question's grading; "" if nothing.
std::string answer_of(const Question& question, std::string_view completion);
// MRCR's own score: 0 where the answer (behind the reasoning and white space) does not begin with the question's prefix, else
// the ratio of difflib's SequenceMatcher of the rest to the right answer's rest (eval/sequence_ratio.h).
double sequence_score(const Question& question, std::string_view completion);

// Whether that is right: the same text, a countdown as above, the same mathematics (eval/math_answer.h), the right letter, a
// sequence with a score of 1. False for code, which grade_code() runs.
bool grade(const Question& question, std::string_view completion);

}  // namespace halfbyte
