// halfbyte eval compare: what one run costs against another, paired question by question.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/quote_path.h"
#include "eval_commands.h"
#include "eval_report.h"

namespace halfbyte::tools {
namespace {

struct CompareFlags {
  std::vector<std::string> files;
  std::vector<double> rates;
  bool json = false;
};

// What the settings of a results file say of the seed; "null" where they say nothing.
std::string seed_of(const std::string& settings) {
  using Json = nlohmann::json;
  const Json all = Json::parse(settings, nullptr, /*allow_exceptions=*/false);
  return all.is_object() ? all.value("seed", Json()).dump() : "null";
}

// Pairs are of the same draws only where the seeds are the same.
std::string other_draws(const std::string& reference, const std::string& other) {
  const std::string one = seed_of(reference), two = seed_of(other);
  if (one == two) return "";
  return fmt::format("drawn with seed {}, the reference with {}: pairs share the question, not the draws", two, one);
}

Result<std::vector<NamedComparison>> compare_files(const CompareFlags& flags) {
  if (flags.files.size() < 2) return invalid_argument("two results files at least: the reference, then the others");
  if (!flags.rates.empty() && flags.rates.size() != flags.files.size())
    return invalid_argument(fmt::format("--tokens-per-s has {} for {}, expected one a file in their order",
                                        counted(flags.rates.size(), "rate"), counted(flags.files.size(), "file")));
  HB_ASSIGN(const StoredResults reference, read_results(flags.files.front()));
  std::vector<NamedComparison> out;
  for (size_t i = 1; i < flags.files.size(); ++i) {
    HB_ASSIGN(const StoredResults other, read_results(flags.files[i]));
    auto comparison = compare_results(reference.results, other.results);
    HB_TRY(comparison.status().with_context(quote_path(flags.files[i])));
    const auto penalty = flags.rates.empty() ? std::optional<double>()
                                             : serving_penalty(*comparison, flags.rates.front(), flags.rates[i]);
    out.push_back(
        {flags.files[i], std::move(*comparison), other_draws(reference.settings_json, other.settings_json), penalty});
  }
  return out;
}

int run(const CompareFlags& flags) {
  const auto found = compare_files(flags);
  if (!found.ok()) return fail(found.status());
  if (flags.json) return write_out(comparisons_json(flags.files.front(), *found)) ? kDone : fail_output();
  std::string text;
  for (const NamedComparison& c : *found) text += (text.empty() ? "" : "\n") + comparison_text(c);
  return write_out(text) ? kDone : fail_output();
}

}  // namespace

Command add_eval_compare(CLI::App& app) {
  auto o = std::make_shared<CompareFlags>();
  Flags flags(app);
  flags.words("FILES", o->files, "Results files of halfbyte eval -o; the first is the reference")->required();
  flags
      .option("--tokens-per-s", o->rates,
              "Rates that the files' plans generate at where they serve (halfbyte bench), for the serving penalty: "
              "6000,4800")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1e12));
  flags.flag("--json", o->json, "One JSON object instead of text");
  return [o] { return run(*o); };
}

}  // namespace halfbyte::tools
