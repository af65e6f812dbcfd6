// halfbyte eval compare: what one run costs against another, paired question by question.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "eval_commands.h"
#include "eval_report.h"

namespace halfbyte::tools {
namespace {

struct CompareFlags {
  std::vector<std::string> files;
  bool json = false;
};

// Pairs are of the same draws only where the seeds are the same.
void note_other_draws(const std::string& reference, const std::string& other, const std::string& file) {
  using Json = nlohmann::json;
  const Json one = Json::parse(reference, nullptr, /*allow_exceptions=*/false);
  const Json two = Json::parse(other, nullptr, /*allow_exceptions=*/false);
  if (!one.is_object() || !two.is_object() || one.value("seed", Json()) == two.value("seed", Json())) return;
  note(fmt::format("{}: drawn with seed {}, the reference with {}: pairs share the question, not the draws",
                   quote(file), two.value("seed", Json()).dump(), one.value("seed", Json()).dump()));
}

Result<std::vector<NamedComparison>> compare_files(const CompareFlags& flags) {
  if (flags.files.size() < 2) return invalid_argument("two results files at least: the reference, then the others");
  HB_ASSIGN(const StoredResults reference, read_results(flags.files.front()));
  std::vector<NamedComparison> out;
  for (size_t i = 1; i < flags.files.size(); ++i) {
    HB_ASSIGN(const StoredResults other, read_results(flags.files[i]));
    auto comparison = compare_results(reference.results, other.results);
    HB_TRY(comparison.status().with_context(quote(flags.files[i])));
    note_other_draws(reference.settings_json, other.settings_json, flags.files[i]);
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
