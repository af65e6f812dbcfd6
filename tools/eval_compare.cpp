// halfbyte eval compare: what one run costs against another, paired question by question.
#include <fmt/format.h>

#include "base/quote.h"
#include "eval_commands.h"
#include "eval_report.h"
#include "json_text.h"

namespace halfbyte::tools {
namespace {

struct CompareFlags {
  std::vector<std::string> files;
  bool json = false;
};

struct NamedComparison {
  std::string name;
  Comparison comparison;
};

Result<std::vector<NamedComparison>> compare_files(const CompareFlags& flags) {
  if (flags.files.size() < 2) return invalid_argument("two results files at least: the reference, then the others");
  HB_ASSIGN(const StoredResults reference, read_results(flags.files.front()));
  std::vector<NamedComparison> out;
  for (size_t i = 1; i < flags.files.size(); ++i) {
    HB_ASSIGN(const StoredResults other, read_results(flags.files[i]));
    auto comparison = compare_results(reference.results, other.results);
    HB_TRY(comparison.status().with_context(quote(flags.files[i])));
    out.push_back({flags.files[i], std::move(*comparison)});
  }
  return out;
}

int run(const CompareFlags& flags) {
  const auto found = compare_files(flags);
  if (!found.ok()) return fail(found.status());
  std::string text;
  Json rows = Json::array();
  for (const auto& [name, comparison] : *found) {
    text += (text.empty() ? "" : "\n") + comparison_text(name, comparison);
    Json row{{"file", name}};
    row.update(comparison_json(comparison));
    rows.push_back(std::move(row));
  }
  const Json all{{"reference", flags.files.front()}, {"compared", rows}};
  return write_out(flags.json ? json_text(all) : text) ? kDone : fail_output();
}

}  // namespace

Command add_eval_compare(CLI::App& app) {
  auto o = std::make_shared<CompareFlags>();
  Flags flags(app);
  flags.words("FILES", o->files, "Results files of halfbyte eval -o; the first is the reference")->required();
  flags.flag("--json", o->json, "One JSON object instead of text");
  return [o] { return run(*o); };
}

}  // namespace halfbyte::tools
