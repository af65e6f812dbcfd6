// halfbyte quantize: rounds a model and writes it as a Hugging Face folder.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/progress.h"
#include "base/size_text.h"
#include "json_text.h"
#include "model_options.h"
#include "quantize/exporter.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct QuantizeOptions {
  std::string model, out, recipe = "rtn", shard_size;
  int threads = 0;
  bool force = false, json = false, quiet = false;
};

std::string error_text(double snr_db) {
  return std::isinf(snr_db) ? "exact" : fmt::format("{:.2f} dB", snr_db);
}

std::string result_json(const std::string& model, const std::string& recipe, const ExportReport& report,
                        double seconds) {
  Json tensors = Json::array();
  for (const TensorReport& t : report.tensors) {
    Json row{{"name", t.name}, {"format", t.format}, {"shape", t.shape}, {"bytes", t.bytes}};
    // JSON has no infinity: null says that nothing changed.
    row["snr_db"] = std::isinf(t.snr_db) ? Json() : Json(t.snr_db);
    tensors.push_back(std::move(row));
  }
  const Json out{{"model", model},
                 {"folder", report.folder},
                 {"recipe", recipe},
                 {"bytes", report.bytes},
                 {"source_bytes", report.source_bytes},
                 {"seconds", seconds},
                 {"files", report.files},
                 {"warnings", report.warnings},
                 {"tensors", tensors}};
  return json_text(out);
}

int run(const QuantizeOptions& options) {
  const auto path = model_path(options.model);
  if (!path.ok()) return fail(path.status());
  const auto recipe = recipe_named(options.recipe);
  if (!recipe.ok()) return fail(recipe.status());
  ExportOptions exporting;
  exporting.force = options.force;
  exporting.threads = options.threads;
  int64_t shard_bytes = static_cast<int64_t>(exporting.shard_bytes);
  if (const Status s = read_size(options.shard_size, "--shard-size", shard_bytes); !s.ok()) return fail(s);
  if (shard_bytes <= 0) return fail("--shard-size is 0, expected a size such as 5GB");
  exporting.shard_bytes = static_cast<uint64_t>(shard_bytes);

  const bool lines = !options.json && !options.quiet;
  // On one terminal the lines themselves show how far it is.
  ProgressBar bar("writing " + options.out, stderr, stderr_is_terminal() && !(lines && stdout_is_terminal()));
  const Stopwatch clock;
  bool readers_left = true;
  hold_all_signals();
  exporting.progress = [&](const ExportProgress& p) {
    if (lines && p.tensor != nullptr) {
      const auto percent = p.total == 0 ? 100.0 : 100.0 * static_cast<double>(p.done) / static_cast<double>(p.total);
      readers_left =
          write_out(fmt::format("{:3.0f}%  {:<52} {:<16} {:<6} {:>10}  {}\n", percent, p.tensor->name, p.tensor->shape,
                                p.tensor->format, format_bytes(p.tensor->bytes), error_text(p.tensor->snr_db)));
    }
    bar.share(p.done, p.total);  // elements
    return readers_left && !interrupted();
  };
  const auto report = export_model(*path, options.out, *recipe, exporting);
  bar.finish();
  if (!readers_left) return fail_output();
  if (!report.ok()) return fail(report.status());
  for (const std::string& warning : report->warnings) note(warning);
  const std::string text = options.json ? result_json(*path, recipe->name, *report, clock.seconds())
                                        : fmt::format("{}: {} from {}, recipe {}, in {:.1f} s\n", report->folder,
                                                      format_bytes(report->bytes), format_bytes(report->source_bytes),
                                                      recipe->name, clock.seconds());
  return write_out(text) ? kDone : fail_output();
}

}  // namespace

Command add_quantize(CLI::App& app) {
  auto options = std::make_shared<QuantizeOptions>();
  std::string recipe_help;
  for (const Recipe& r : recipes()) recipe_help += (recipe_help.empty() ? "" : "; ") + r.name + ": " + r.description;
  Flags flags(app);
  flags.option("MODEL", options->model, kModelHelp);
  flags
      .option_as("-o,--out", options->out, "The folder to write; it appears whole or not at all",
                 "HALFBYTE_QUANTIZE_OUT")
      ->required();
  flags.option("--recipe", options->recipe, recipe_help)->capture_default_str();
  flags.option("--shard-size", options->shard_size, "Most bytes of one weight file, e.g. 5GB (the default)");
  flags.option("--threads", options->threads, "Threads (default: the physical cores this process may use)")
      ->check(whole_number(0, 4096));
  flags.flag("--force", options->force, "Replace a folder that halfbyte quantize wrote");
  flags.flag("--json", options->json, "One JSON object instead of text");
  flags.flag("-q,--quiet", options->quiet, "No line for each tensor");
  return [options] { return run(*options); };
}

}  // namespace halfbyte::tools
