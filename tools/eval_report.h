// What a comparison of plans looks like: Markdown tables, JSON, and a page with figures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/compare.h"
#include "eval/evaluate.h"
#include "eval/forced.h"
#include "eval_setup.h"

namespace halfbyte::tools {

// One plan on one task; the first of a group is the reference.
struct PlanResult {
  std::string plan;
  EvalSummary own;
  std::optional<Comparison> versus;        // not of the reference itself
  std::optional<ForcedSummary> forced;     // with the reference's texts
  double tokens_per_s = 0;                 // of this run; 0: its results were there
  std::vector<int64_t> lengths;            // reasoning tokens of each sample
  std::vector<int64_t> entropy_histogram;  // of the forced tokens, by kEntropyEdges
  std::optional<double> serving_penalty;   // eval/compare.h; not of the reference itself
};

struct TaskResults {
  std::string task;
  std::vector<PlanResult> plans;
};

// Lower edges, nats; the last bin is open.
inline constexpr double kEntropyEdges[] = {0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, .1, .25, .5, 1, 1.5, 2, 3};

struct SweepReport {
  std::string title;               // one line
  std::vector<std::string> facts;  // what was run, one line each
  std::vector<TaskResults> tasks;
};

struct NamedComparison {
  std::string name;
  Comparison comparison;
  std::string note;                       // what a reader must know of the pairs; "" for nothing
  std::optional<double> serving_penalty;  // eval/compare.h
};

// JSON, printed.
std::string comparisons_json(const std::string& reference, const std::vector<NamedComparison>& compared);
std::string report_json(const SweepReport& report);
std::string report_markdown(const SweepReport& report);
// Self-contained: no script, no other file.
std::string report_html(const SweepReport& report);

// Rows of two results files, for a terminal or a document.
std::string comparison_text(const NamedComparison& compared);

}  // namespace halfbyte::tools
