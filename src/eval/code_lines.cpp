#include "eval/code_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "eval/answer_text.h"
#include "eval/question_text.h"

namespace halfbyte {
namespace {

constexpr std::string_view kInstruction =
    "\n\nPut the whole code into one block that begins with ```python and ends with ```.";

std::string block(std::string_view code) {
  return fmt::format("```python\n{}\n```", trim(code));
}

// A text that may be missing or empty.
Status read_optional(const JsonValue& root, std::string_view key, std::string& out) {
  const auto value = root.find_set(key);
  if (!value) return {};
  HB_ASSIGN(const std::string_view text, value->as_string());
  out = std::string(text);
  return {};
}

// A name is put into code that runs, so it must be one.
Status read_name(const JsonValue& root, std::string_view key, std::string& out) {
  HB_TRY(read_question_text(root, key, out));
  const auto part_of_name = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (!std::all_of(out.begin(), out.end(), part_of_name) || (out[0] >= '0' && out[0] <= '9'))
    return root.error(fmt::format("\"{}\" is {}, expected the name of a function", key, quote(out)));
  return {};
}

// Lines of a list of texts.
Status read_lines(const JsonValue& value, std::string& out) {
  HB_ASSIGN(const auto items, value.elements());
  for (const JsonValue& item : items) {
    HB_ASSIGN(const std::string_view text, item.as_string());
    out += std::string(text) + "\n";
  }
  return {};
}

// Whether Python's json reads it. An integer of any length is one there.
bool is_python_json(std::string_view text) {
  constexpr int kDigits = 100;  // of a longer row the rest is left out: a double holds no more than 309
  std::string shortened;
  int row = 0;
  for (const char c : without_python_numbers(text, PythonNumbers::kNull)) {
    row = c >= '0' && c <= '9' ? row + 1 : 0;
    if (row <= kDigits) shortened += c;
  }
  return nlohmann::json::accept(shortened);
}

// The arguments of a call and what it returns: what is no JSON here would fail every answer.
Status check_call(const JsonValue& test) {
  HB_ASSIGN(const JsonValue input, test.at("input"));
  HB_ASSIGN(const std::string_view arguments, input.as_string());
  size_t line = 0;
  for (const std::string_view argument : lines_of(arguments)) {
    ++line;
    if (trim(arguments).empty() || is_python_json(argument)) continue;
    return input.error(
        fmt::format("line {} is no JSON: found {}, expected the arguments of the function, one a line, a "
                    "text in double quotes",
                    line, quote(argument, 60)));
  }
  HB_ASSIGN(const JsonValue output, test.at("output"));
  HB_ASSIGN(const std::string_view returned, output.as_string());
  if (is_python_json(returned)) return {};
  return output.error(
      fmt::format("is no JSON: found {}, expected what the function returns, a text in double quotes, None as null",
                  quote(returned, 60)));
}

// `tests.function` is known by now.
Status add_tests(const JsonValue& list, CodeTests& tests) {
  HB_ASSIGN(const auto items, list.elements());
  for (const JsonValue& item : items) {
    CodeTests::Test test;
    for (const auto& [key, out] : {std::pair("input", &test.input), std::pair("output", &test.output)}) {
      HB_ASSIGN(const JsonValue value, item.at(key));
      HB_ASSIGN(const std::string_view text, value.as_string());
      *out = std::string(text);
    }
    if (!tests.function.empty()) HB_TRY(check_call(item));
    tests.tests.push_back(std::move(test));
  }
  return {};
}

// LiveCodeBench's lists stand as JSON in a string; the private ones are packed in the published files.
Status add_stored_tests(const JsonValue& root, std::string_view key, const std::string& name, CodeTests& tests) {
  const auto value = root.find_set(key);
  if (!value) return {};
  if (value->is_array()) return add_tests(*value, tests);
  HB_ASSIGN(const std::string_view text, value->as_string());
  if (!trim(text).starts_with('[')) {
    return value->error(
        "is packed (base64 of a compressed pickle), expected a JSON list of tests; unpack the file first: "
        "python3 -m halfbyte.tasks.livecodebench IN OUT");
  }
  HB_ASSIGN(const auto document, JsonDocument::parse(text, fmt::format("{}: {}", name, key)));
  return add_tests(document->root(), tests);
}

Status read_humaneval(const JsonValue& root, Question& q, CodeTests& tests) {
  std::string entry;
  q.task = "humaneval";
  HB_TRY(read_question_text(root, "prompt", tests.before));
  HB_TRY(read_question_text(root, "test", tests.checks));
  HB_TRY(read_name(root, "entry_point", entry));
  tests.checks += fmt::format("\ncheck({})\n", entry);
  q.prompt = "Complete this Python function.\n\n" + block(tests.before);
  return {};
}

Status read_mbpp(const JsonValue& root, Question& q, CodeTests& tests) {
  std::string asserts, task;
  q.task = "mbpp";
  HB_TRY(read_question_text(root, root.find("prompt") ? "prompt" : "text", task));
  HB_ASSIGN(const JsonValue list, root.at("test_list"));
  HB_TRY(read_lines(list, asserts));
  if (asserts.empty()) return list.error("holds no test");
  if (const auto imports = root.find_set("test_imports")) HB_TRY(read_lines(*imports, tests.before));
  HB_TRY(read_optional(root, "test_setup_code", tests.checks));
  tests.checks += "\n" + asserts;
  q.prompt = task + "\n\nThe code must pass these tests:\n\n" + block(asserts);
  return {};
}

Status read_livecodebench(const JsonValue& root, const std::string& name, Question& q, CodeTests& tests) {
  q.task = "livecodebench";
  HB_TRY(read_question_text(root, "question_content", q.prompt));
  std::string starter, metadata;
  HB_TRY(read_optional(root, "starter_code", starter));
  HB_TRY(read_optional(root, "metadata", metadata));
  if (trim(starter).empty()) {
    q.prompt += "\n\nWrite a Python program that reads the input from stdin and writes the answer to stdout.";
  } else {
    HB_ASSIGN(const auto document, JsonDocument::parse(metadata, name + ": metadata"));
    HB_TRY(read_name(document->root(), "func_name", tests.function));
    q.prompt += "\n\nBegin with this code:\n\n" + block(starter);
  }
  HB_TRY(add_stored_tests(root, "public_test_cases", name, tests));
  HB_TRY(add_stored_tests(root, "private_test_cases", name, tests));
  if (tests.tests.empty()) return root.error("has no tests in \"public_test_cases\" or \"private_test_cases\"");
  return {};
}

Status read_own(const JsonValue& root, Question& q, CodeTests& tests) {
  HB_TRY(read_question_text(root, "task", q.task));
  HB_TRY(read_question_text(root, "prompt", q.prompt));
  HB_TRY(read_optional(root, "before", tests.before));
  HB_TRY(read_optional(root, "checks", tests.checks));
  if (root.find_set("function")) HB_TRY(read_name(root, "function", tests.function));
  if (const auto list = root.find_set("tests")) HB_TRY(add_tests(*list, tests));
  if (tests.checks.empty() && tests.tests.empty()) return root.error("has no tests; expected \"checks\" or \"tests\"");
  if (!tests.checks.empty() && !tests.tests.empty() && tests.function.empty())
    return root.error("has \"checks\" and tests of stdin and stdout; expected one of them");
  return {};
}

}  // namespace

bool is_code_line(const JsonValue& root) {
  for (const char* key : {"test_list", "public_test_cases", "checks", "tests"}) {
    if (root.find(key)) return true;
  }
  return root.find("test") && root.find("entry_point");
}

Status read_code_line(const JsonValue& root, const std::string& name, int64_t line, Question& q) {
  auto tests = std::make_shared<CodeTests>();
  q.grading = Grading::kCode;
  if (root.find("public_test_cases")) {
    HB_TRY(read_livecodebench(root, name, q, *tests));
  } else if (root.find("test_list")) {
    HB_TRY(read_mbpp(root, q, *tests));
  } else if (root.find("test")) {
    HB_TRY(read_humaneval(root, q, *tests));
  } else {
    HB_TRY(read_own(root, q, *tests));
  }
  q.prompt += std::string(kInstruction);
  q.id = fmt::format("{}-{:04}", q.task, line);
  for (const char* key : {"question_id", "task_id", "id"}) {
    const auto id = root.find_set(key);
    if (!id) continue;
    if (id->is_string()) {
      HB_TRY(read_question_text(root, key, q.id));
    } else {
      HB_ASSIGN(const int64_t number, id->as_int(0, INT64_MAX));
      q.id = fmt::format("{}-{}", q.task, number);
    }
  }
  q.answer = "code that passes its tests";
  q.code = std::move(tests);
  return {};
}

}  // namespace halfbyte
