#include "eval/code_grader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "eval/answer_text.h"

namespace halfbyte {
namespace {

// Runs the parts in one module and calls the function with each test's arguments. The token at the end says that nothing left
// early; code that ends the process before its tests did not pass them.
constexpr const char* kHarness = R"(import json, sys
with open("job.json", encoding="utf-8") as file: job = json.load(file)
space = {"__name__": job["name"]}
for part in job["parts"]: exec(compile(part, "<answer>", "exec"), space)
if job["function"]:
    holder = space["Solution"]() if "Solution" in space else None
    function = getattr(holder, job["function"]) if hasattr(holder, job["function"]) else space[job["function"]]
    for arguments, expected in job["calls"]:
        found = function(*[json.loads(a) for a in arguments])
        if isinstance(found, tuple): found = list(found)
        if found != json.loads(expected): sys.exit(1)
if job["token"]:
    print("\n" + job["token"], file=sys.__stdout__, flush=True)
)";

// What LiveCodeBench's own runner puts before an answer.
constexpr const char* kImports = R"(from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from statistics import *
from itertools import *
from functools import *
from operator import *
from io import *
from sys import *
from json import *
from builtins import *
from typing import *
import string, re, datetime, collections, heapq, bisect, copy, math, random, statistics, itertools, functools, operator, io, sys, json
sys.setrecursionlimit(50000)
)";

using Json = nlohmann::ordered_json;

// A decimal number as digits without outer zeros, and the power of ten behind the last: "-1.50e1" is -15 and 0.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
  bool operator==(const Decimal&) const = default;
};

std::optional<Decimal> decimal(std::string_view text) {
  Decimal out;
  if (text.starts_with('-') || text.starts_with('+')) {
    out.negative = text.front() == '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find_first_of("eE");
  if (e != std::string_view::npos) {
    std::string_view power = text.substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    const auto [end, error] = std::from_chars(power.data(), power.data() + power.size(), out.exponent);
    if (error != std::errc() || end != power.data() + power.size() || out.exponent > 1'000'000 ||
        out.exponent < -1'000'000)
      return std::nullopt;
    text = text.substr(0, e);
  }
  const size_t point = text.find('.');
  out.digits = std::string(text.substr(0, point));
  if (point != std::string_view::npos) {
    out.digits += text.substr(point + 1);
    out.exponent -= static_cast<int64_t>(text.size() - point - 1);
  }
  if (out.digits.empty() || out.digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const size_t last = out.digits.find_last_not_of('0');
  if (last == std::string::npos) return Decimal{};  // zero, of either sign
  out.exponent += static_cast<int64_t>(out.digits.size() - last - 1);
  out.digits = out.digits.substr(0, last + 1);
  out.digits.erase(0, out.digits.find_first_not_of('0'));
  return out;
}

std::optional<std::vector<Decimal>> decimals(std::string_view line) {
  std::vector<Decimal> out;
  while (!(line = trim(line)).empty()) {
    const size_t end = std::min(line.find_first_of(kWhiteSpace), line.size());
    const auto number = decimal(line.substr(0, end));
    if (!number) return std::nullopt;
    out.push_back(*number);
    line.remove_prefix(end);
  }
  return out;
}

std::string new_token() {
  std::random_device bits;
  std::string out = "halfbyte";
  for (int i = 0; i < 4; ++i) out += "-" + std::to_string(bits());
  return out;
}

Json job_of(const CodeTests& tests, const std::string& code) {
  Json parts = Json::array();
  // The body alone of a function that the question began.
  const bool body = !tests.before.empty() && !code.empty() && (code.front() == ' ' || code.front() == '\t');
  if (!tests.tests.empty()) {
    // A file of code may begin with "from __future__ import", so the imports are a part of their own.
    parts.push_back(kImports);
  }
  if (body) {
    parts.push_back(tests.before + code);
  } else {
    if (!tests.before.empty()) parts.push_back(tests.before);
    parts.push_back(code);
  }
  if (!tests.checks.empty()) parts.push_back(tests.checks);
  return {{"name", "answer"}, {"parts", parts}, {"function", tests.function}, {"calls", Json::array()}, {"token", ""}};
}

struct Runner {
  const Sandbox& sandbox;
  const std::stop_token& stop;
};

Result<bool> passes(const Runner& runner, const Json& job, const std::string& input, std::string& output) {
  const std::string text = job.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  HB_ASSIGN(SandboxRun run,
            runner.sandbox.run({{"harness.py", kHarness}, {"job.json", text}}, "harness.py", input, runner.stop));
  output = std::move(run.output);
  return run.end == SandboxRun::End::kExited && run.code == 0;
}

}  // namespace

std::optional<std::string> code_answer(std::string_view completion) {
  constexpr std::string_view kFence = "```";
  const auto part = answer_part(completion);
  if (!part) return std::nullopt;
  std::optional<std::string> last, open;
  std::string_view rest = *part;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const bool fence = trim(line).starts_with(kFence);
    if (fence && open) {
      last = std::exchange(open, std::nullopt);
    } else if (fence) {
      open.emplace();
    } else if (open) {
      *open += std::string(line) + "\n";
    }
  }
  return last;
}

Result<bool> grade_code(const Sandbox& sandbox, const CodeTests& tests, const std::string& code,
                        const std::stop_token& stop) {
  const Runner runner{sandbox, stop};
  if (trim(code).empty()) return false;  // no code passes nothing, not even tests that would let it
  Json job = job_of(tests, code);
  std::string output;
  const bool by_output = !tests.tests.empty() && tests.function.empty();
  if (by_output) {
    job["name"] = "__main__";
    for (const CodeTests::Test& test : tests.tests) {
      HB_ASSIGN(const bool ended, passes(runner, job, test.input, output));
      if (!ended || !same_output(output, test.output)) return false;
    }
    return true;
  }
  for (const CodeTests::Test& test : tests.tests) {
    Json arguments = Json::array();
    if (!trim(test.input).empty())
      for (const std::string_view line : lines_of(test.input)) arguments.push_back(std::string(line));
    job["calls"].push_back({arguments, test.output});
  }
  const std::string token = new_token();
  job["token"] = token;
  HB_ASSIGN(const bool ended, passes(runner, job, "", output));
  return ended && output.ends_with("\n" + token + "\n");
}

bool same_output(std::string_view output, std::string_view expected) {
  const auto found = lines_of(output), wanted = lines_of(expected);
  return std::ranges::equal(found, wanted, [](std::string_view a, std::string_view b) {
    if (a == b) return true;
    const auto left = decimals(a), right = decimals(b);
    return left && right && *left == *right;
  });
}

}  // namespace halfbyte
