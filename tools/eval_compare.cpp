// halfbyte eval compare: what one run costs against another, paired question by question.
#include <fmt/format.h>

#include "base/quote.h"
#include "eval_commands.h"
#include "eval_report.h"

namespace halfbyte::tools {
namespace {

struct CompareFlags {
  std::vector<std::string> files;
  bool json = false;
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
  if (flags.json) return write_out(comparisons_json(flags.files.front(), *found)) ? kDone : fail_output();
  std::string text;
  for (const auto& [name, comparison] : *found) text += (text.empty() ? "" : "\n") + comparison_text(name, comparison);
  return write_out(text) ? kDone : fail_output();
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
