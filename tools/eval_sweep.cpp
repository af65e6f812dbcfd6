// halfbyte eval sweep: several plans on several tasks, and one report of what each costs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>

#include "base/quote.h"
#include "base/quote_path.h"
#include "eval_commands.h"
#include "eval_report.h"
#include "halfbyte/version.h"
#include "output_target.h"
#include "text/tokenizer.h"

namespace halfbyte::tools {
namespace {

// Of the reference's logits that are kept while the plans are compared with them.
constexpr size_t kScoreBytes = size_t{1} << 30;

struct SweepFlags {
  EvalFlags eval;
  std::string plans = "bf16,w4a16,w4a8,w4a4", tasks, folder, title;
  int forced = 20;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// What one row of the report is: a plan, and the policy that its tokens are drawn by.
struct Variant {
  std::string name;  // as it was written
  std::string plan;
  std::string policy;  // "": that of --policy
  bool has_policy() const { return !policy.empty(); }
};

// "bf16,w4a4,kv=nvfp4,w4a4@reset" is three: a part with "=" belongs to the one before it.
Result<std::vector<Variant>> variants_of(const std::string& text) {
  std::vector<Variant> variants;
  for (const std::string& part : split(text, ',')) {
    if (part.find('=') != std::string::npos && !variants.empty()) {
      variants.back().name += "," + part;
    } else {
      variants.push_back({.name = part, .plan = {}, .policy = {}});
    }
  }
  for (Variant& v : variants) {
    const size_t at = v.name.find('@');
    v.plan = v.name.substr(0, at);
    HB_TRY(parse_plan(v.plan).status().with_context("--plans"));
    if (const auto same = std::ranges::count(variants, v.name, &Variant::name); same > 1)
      return invalid_argument(fmt::format("--plans: {} stands there {} times, expected once", quote(v.name), same));
    if (at == std::string::npos) continue;
    v.policy = v.name.substr(at + 1);
    HB_TRY(parse_temperature_rule(v.policy).status().with_context("--plans " + v.name));
  }
  return variants;
}

struct Task {
  std::string name;  // of a task of the model's folder, or of a question file without its folder and ending
  std::vector<int64_t> levels;
  std::string file;  // "" for a task of the model's folder

  bool of_folder() const { return file.empty(); }
  // Whether both have a question, which would count twice, or the same results file.
  bool overlaps(const Task& other) const {
    if (name != other.name) return false;
    const auto has = [&](int64_t level) { return std::ranges::find(other.levels, level) != other.levels.end(); };
    return file != other.file || levels.empty() || other.levels.empty() || std::ranges::any_of(levels, has);
  }
};

// "word:3+4": levels 3 and 4.
Result<std::vector<Task>> tasks_of(const std::string& text) {
  std::vector<Task> tasks;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    Task task{part.substr(0, colon), {}, ""};
    if (task.name.ends_with(".jsonl")) {
      task.file = task.name;
      task.name = std::filesystem::path(task.file).stem().string();
    }
    if (task.name.empty())
      return invalid_argument(
          fmt::format("--tasks: {} names no task; expected e.g. word:3+4 or aime.jsonl, with commas between them",
                      part.empty() ? quote(text) + " has a part that" : quote(part)));
    if (colon != std::string::npos) {
      for (const std::string& level : split(part.substr(colon + 1), '+')) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(level.data(), level.data() + level.size(), value);
        if (error != std::errc() || end != level.data() + level.size())
          return invalid_argument(
              fmt::format("--tasks: the level {} of {} is no number", quote(level), quote(task.name)));
        if (std::ranges::find(task.levels, value) != task.levels.end())
          return invalid_argument(fmt::format("--tasks: {} names level {} twice, expected once", quote(part), value));
        task.levels.push_back(value);
      }
    }
    if (const auto same = std::ranges::find_if(tasks, [&](const Task& t) { return t.overlaps(task); });
        same != tasks.end())
      return invalid_argument(
          same->file == task.file
              ? fmt::format("--tasks: questions of {} stand there twice, expected once", quote(part))
              : fmt::format("--tasks: {} and another file have the same name, which that of their results is made of; "
                            "give one of them another name",
                            quote(part)));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

// "w4a4,kv=nvfp4@reset" -> "w4a4_kv-nvfp4_reset", for a file's name.
std::string file_part(std::string text) {
  for (char& c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!plain) c = c == '=' ? '-' : '_';
  }
  return text;
}

// Whole or not at all.
Status write_file(const std::filesystem::path& path, const std::string& text) {
  HB_ASSIGN(const auto out, OutputTarget::open(path.string(), "-o"));
  return out->write(text);
}

// A folder with its parents, which go away again, those that were not there, where nothing comes into them.
class MadeFolder {
 public:
  MadeFolder() = default;
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;
  ~MadeFolder() {
    std::error_code failure;
    for (const auto& path : made_)
      if (!std::filesystem::remove(path, failure)) return;  // it holds something
  }

  Status make(const std::filesystem::path& folder) {
    std::error_code failure;
    const auto whole = std::filesystem::absolute(folder).lexically_normal();
    for (auto path = whole.has_filename() ? whole : whole.parent_path();
         !std::filesystem::exists(path, failure) && path.has_relative_path(); path = path.parent_path())
      made_.push_back(path);
    std::filesystem::create_directories(folder, failure);
    if (!failure) return {};
    return invalid_argument(fmt::format("{}: cannot be made: {}", quote_path(folder.string()), failure.message()));
  }

 private:
  std::vector<std::filesystem::path> made_;  // the innermost first
};

// What the answers were computed by, on which they depend.
std::string hardware_text(const EvalSetup& setup) {
  return fmt::format("device {} ({}), kernels {}", setup.place.device, setup.place.name, setup.place.kernels);
}

std::vector<bool> symbols_of(const Tokenizer& tokenizer) {
  std::vector<bool> out(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    out[static_cast<size_t>(id)] = !tokenizer.is_special(id) && is_symbol(tokenizer.token_bytes(id));
  return out;
}

class Sweep {
 public:
  Sweep(const CLI::App& app, const SweepFlags& flags) : app_(app), flags_(flags) {}

  Result<SweepReport> run() {
    HB_ASSIGN(const auto variants, variants_of(flags_.plans));
    HB_ASSIGN(const auto tasks, tasks_of(flags_.tasks));
    HB_TRY(refuse_unused_flags(variants, tasks));
    policies_ = std::ranges::any_of(variants, &Variant::has_policy);
    of_folder_ = std::ranges::any_of(tasks, &Task::of_folder);
    HB_TRY(check_questions(tasks, variants.front()));
    MadeFolder folder;
    HB_TRY(folder.make(flags_.folder));
    SweepReport report;
    for (const Task& task : tasks) {
      HB_TRY(run_task(task, variants, report));
      HB_TRY(write(report));  // what there is, after each task
    }
    if (tasks.size() > 1) report.tasks.push_back(all_tasks(variants));
    HB_TRY(write(report));
    return report;
  }

 private:
  Status refuse_unused_flags(const std::vector<Variant>& variants, const std::vector<Task>& tasks) const {
    HB_TRY(refuse_unused(app_, "in a sweep, which takes its plans from --plans", {"--plan"}));
    if (std::ranges::all_of(variants, &Variant::has_policy))
      HB_TRY(refuse_unused(app_, "where each of --plans names a policy", {"--temperature", "--policy"}));
    if (std::ranges::none_of(tasks, &Task::of_folder))
      HB_TRY(refuse_unused(app_, "where all of --tasks are files", {"--split"}));
    return refuse_unused_code_flags(app_, flags_.eval);
  }

  // Every question file, before the first of many models is loaded: what is wrong in the last must not come out at its end.
  // Opens the sandbox where code is to be graded.
  Status check_questions(const std::vector<Task>& tasks, const Variant& variant) {
    HB_ASSIGN(const std::string path, model_path(flags_.eval.model.model));
    HB_TRY(check_model_exists(path));
    for (const Task& task : tasks) {
      const auto chosen = choose_questions(flags_for(task, variant).questions, path);
      HB_TRY(chosen.status().with_context("--tasks"));
      HB_ASSIGN(SharedSandbox sandbox, code_sandbox(flags_.eval, chosen->questions, sandbox_));
      if (sandbox) sandbox_ = std::move(sandbox);
    }
    return {};
  }

  EvalFlags flags_for(const Task& task, const Variant& variant) const {
    EvalFlags f = flags_.eval;
    // Beside rows with a policy, its flags are theirs, and --temperature is the others'.
    if (!variant.policy.empty()) {
      f.policy.rule = variant.policy;
      f.temperature.reset();
    } else if (policies_ && f.policy.rule == "fixed") {
      f.policy = {};
    }
    (task.file.empty() ? f.questions.task : f.questions.questions) = task.file.empty() ? task.name : task.file;
    f.questions.levels = task.levels;
    f.questions.in_sweep = true;
    f.model.plan = variant.plan;
    std::string name = task.name;
    for (const int64_t level : task.levels) name += "-" + std::to_string(level);
    f.out = (std::filesystem::path(flags_.folder) / (name + "." + file_part(variant.name) + ".jsonl")).string();
    return f;
  }

  static std::string title_of(const Task& task, const EvalSetup& setup) {
    std::string out = task.name;
    for (size_t i = 0; i < task.levels.size(); ++i)
      out += (i == 0 ? (task.levels.size() > 1 ? ", levels " : ", level ") : " and ") + std::to_string(task.levels[i]);
    return out + ": " + counted(setup.questions.size(), "question") + " x " + counted(setup.options.samples, "sample");
  }

  Status run_task(const Task& task, const std::vector<Variant>& variants, SweepReport& report) {
    EvalFlags first = flags_for(task, variants.front());
    first.keep_tokens = flags_.forced > 0;
    HB_ASSIGN(EvalSetup reference, prepare_eval(first, sandbox_));
    HB_TRY(check_token_ids(first, reference, variants.front()));
    hardware_ = hardware_text(reference);
    HB_ASSIGN(const EvalRun texts, run_eval(first, reference, label(task, variants.front())));
    report.tasks.push_back({title_of(task, reference), {}});
    results_.emplace_back();
    forced_.emplace_back();
    HB_ASSIGN(const std::vector<Text> forced, texts_of(reference, texts.results->results()));
    ReferenceScores scores([&](size_t i) { return score_text(*reference.engine, forced[i].tokens, forced[i].prompt); },
                           kScoreBytes);
    for (const Variant& variant : variants) {
      PlanResult row;
      row.plan = variant.name;
      std::vector<SampleResult> own = texts.results->results();
      std::optional<EvalSetup> setup;
      if (&variant == &variants.front()) {
        row.tokens_per_s = texts.tokens_per_s;
      } else {
        const EvalFlags f = flags_for(task, variant);
        HB_ASSIGN(setup, prepare_eval(f, sandbox_));
        HB_ASSIGN(const EvalRun run, run_eval(f, *setup, label(task, variant)));
        row.tokens_per_s = run.tokens_per_s;
        own = run.results->results();
        HB_ASSIGN(row.versus, compare_results(texts.results->results(), own));
        row.serving_penalty = serving_penalty(*row.versus, texts.tokens_per_s, row.tokens_per_s);
      }
      note_sampling(variant, setup ? *setup : reference);
      row.own = summarise(own, flags_.eval.samples);
      for (const SampleResult& r : own) row.lengths.push_back(r.reasoning_tokens);
      std::vector<ForcedToken> tokens;
      if (flags_.forced > 0) {
        HB_TRY(force(reference, setup ? &*setup : nullptr, forced, scores, tokens));
        summarise_texts(tokens, row);
      }
      report.tasks.back().plans.push_back(std::move(row));
      results_.back().push_back(std::move(own));
      forced_.back().push_back(std::move(tokens));
    }
    return {};
  }

  // Teacher forcing reads the token ids of the reference, which results lack that were made for another plan's comparison.
  Status check_token_ids(const EvalFlags& first, const EvalSetup& reference, const Variant& variant) const {
    std::error_code failure;
    if (!first.keep_tokens || !std::filesystem::exists(first.out, failure)) return {};
    const auto there = read_results(first.out);
    EvalFlags without = first;
    without.keep_tokens = false;
    // What else may be wrong with the file is said where it is opened.
    if (!there.ok() || there->settings_json != settings_json(without, reference)) return {};
    return invalid_argument(
        fmt::format("{}: has no token ids, which --forced {} reads of the reference, {}, the first of --plans; begin "
                    "--plans with the plan that was first when the folder was begun, give --forced 0, or name another "
                    "folder",
                    quote_path(first.out), flags_.forced, quote(variant.name)));
  }

  std::string label(const Task& task, const Variant& variant) const { return task.name + " " + variant.name; }

  // A text of the reference: the first sample of some question, tokens of the prompt first.
  struct Text {
    std::vector<int32_t> tokens;
    int64_t prompt = 0;
  };

  Result<std::vector<Text>> texts_of(const EvalSetup& reference, std::span<const SampleResult> results) const {
    const auto samples = static_cast<size_t>(flags_.eval.samples);
    const size_t count = reference.questions.size();
    std::vector<Text> texts(std::min(count, static_cast<size_t>(flags_.forced)));
    for (size_t i = 0; i < texts.size(); ++i) {
      const size_t question = i * count / texts.size();  // spread, as --limit does
      HB_ASSIGN(Prompt prompt,
                question_prompt(reference.text, reference.questions[question], reference.options.render));
      texts[i].prompt = static_cast<int64_t>(prompt.tokens.size());
      texts[i].tokens = std::move(prompt.tokens);
      const auto& own = results[question * samples].token_ids;
      texts[i].tokens.insert(texts[i].tokens.end(), own.begin(), own.end());
    }
    return texts;
  }

  // The texts with the plan's scores of them beside the reference's. `plan` null: the reference itself.
  Status force(const EvalSetup& reference, const EvalSetup* plan, std::span<const Text> texts, ReferenceScores& scores,
               std::vector<ForcedToken>& tokens) {
    const std::vector<bool> symbols = symbols_of(*reference.text.tokenizer);
    const EvalSetup& own = plan != nullptr ? *plan : reference;
    const ForcedContext context{*reference.text.step_classes, symbols, own.options.sampling.policy};
    for (size_t i = 0; i < texts.size(); ++i) {
      HB_ASSIGN(const auto before, scores.of(i));
      if (plan == nullptr) {
        compare_text(*before, *before, texts[i].tokens, texts[i].prompt, context, tokens);
      } else {
        HB_ASSIGN(const ScoreResult after, score_text(*plan->engine, texts[i].tokens, texts[i].prompt));
        compare_text(*before, after, texts[i].tokens, texts[i].prompt, context, tokens);
      }
      if (interrupted()) return cancelled("the sweep was interrupted; what is done is kept");
    }
    return {};
  }

  // How a row's tokens are drawn, for the report; rows that are drawn alike stand together.
  void note_sampling(const Variant& variant, const EvalSetup& setup) {
    const SamplingParams& p = setup.options.sampling;
    const std::string text = drawing_text(p, setup.policy_source);
    auto at = std::ranges::find(sampling_, text, &Drawn::text);
    if (at == sampling_.end()) at = sampling_.insert(at, {text, {}});
    if (std::ranges::find(at->rows, variant.name) == at->rows.end()) at->rows.push_back(variant.name);
  }

  static void summarise_texts(std::span<const ForcedToken> tokens, PlanResult& row) {
    row.forced = summarise_forced(tokens);
    row.entropy_histogram.assign(std::size(kEntropyEdges), 0);
    for (const ForcedToken& t : tokens) {
      const auto above =
          std::upper_bound(std::begin(kEntropyEdges), std::end(kEntropyEdges), std::max(t.entropy, 0.0f));
      ++row.entropy_histogram[static_cast<size_t>(above - std::begin(kEntropyEdges)) - 1];
    }
  }

  // Every question counts once; CTIR is the plain mean over tasks.
  TaskResults all_tasks(const std::vector<Variant>& variants) const {
    TaskResults all{"all tasks together (accuracy over all questions, CTIR the plain mean over tasks)", {}};
    std::vector<SampleResult> first;
    for (size_t p = 0; p < variants.size(); ++p) {
      std::vector<SampleResult> pooled;
      std::vector<ForcedToken> tokens;
      for (size_t t = 0; t < results_.size(); ++t) {
        for (SampleResult r : results_[t][p]) {
          r.id = fmt::format("{}/{}", t, r.id);  // two files may name their questions alike
          pooled.push_back(std::move(r));
        }
      }
      for (const auto& task : forced_) tokens.insert(tokens.end(), task[p].begin(), task[p].end());
      PlanResult row;
      row.plan = variants[p].name;
      if (flags_.forced > 0) summarise_texts(tokens, row);
      row.own = summarise(pooled, flags_.eval.samples);
      for (const SampleResult& r : pooled) row.lengths.push_back(r.reasoning_tokens);
      if (p == 0) {
        first = pooled;
      } else if (auto versus = compare_results(first, pooled); versus.ok()) {
        std::vector<TaskFiles> files;
        for (const auto& task : results_) files.push_back({task[0], task[p]});
        if (const auto ctir = mean_ctir(files); ctir.ok() && versus->ctir) versus->ctir = *ctir;
        row.versus = std::move(*versus);
      }
      all.plans.push_back(std::move(row));
    }
    return all;
  }

  Status write(SweepReport& report) const {
    HB_ASSIGN(const std::string path, model_path(flags_.eval.model.model));
    report.title = flags_.title;
    report.facts = {fmt::format("model {}, halfbyte {}, commit {}", quote_path(path), version(), build_commit()),
                    hardware_,
                    fmt::format("plans: {}; the first is the reference of every change and ratio", flags_.plans),
                    fmt::format("{}{} a question, seed {}, longest answer {}",
                                of_folder_ ? "split " + flags_.eval.questions.split + ", " : "",
                                counted(flags_.eval.samples, "sample"), flags_.eval.seed,
                                flags_.eval.max_tokens.empty() ? "1K tokens, or what the context leaves"
                                                               : flags_.eval.max_tokens + " tokens"),
                    "intervals: 95%, from 10,000 resamplings of the questions, paired"};
    for (const Drawn& drawn : sampling_)
      report.facts.push_back(fmt::format("{}: {}", fmt::join(drawn.rows, "; "), drawn.text));
    if (!flags_.eval.system.empty()) report.facts.push_back("system message: " + quote(flags_.eval.system, 200));
    if (!flags_.eval.prompt_suffix.empty())
      report.facts.push_back("behind every question: " + quote(flags_.eval.prompt_suffix, 200));
    if (sandbox_) report.facts.push_back("code of answers ran in a sandbox: " + sandbox_->isolation());
    const std::filesystem::path folder(flags_.folder);
    HB_TRY(write_file(folder / "report.md", report_markdown(report)));
    HB_TRY(write_file(folder / "report.html", report_html(report)));
    return write_file(folder / "report.json", report_json(report));
  }

  const CLI::App& app_;
  SweepFlags flags_;
  struct Drawn {
    std::string text;
    std::vector<std::string> rows;
  };
  std::vector<Drawn> sampling_;
  std::string hardware_;
  SharedSandbox sandbox_;                                        // where some question is answered by code
  bool of_folder_ = false;                                       // some task is one of the model's folder
  bool policies_ = false;                                        // some variant names one
  std::vector<std::vector<std::vector<SampleResult>>> results_;  // [task][variant]
  std::vector<std::vector<std::vector<ForcedToken>>> forced_;    // likewise
};

int run(const CLI::App& app, const SweepFlags& flags) {
  auto report = Sweep(app, flags).run();
  if (!report.ok()) return interrupted() ? end_interrupted() : fail(report.status());
  const std::string text = flags.eval.json ? report_json(*report) : report_markdown(*report);
  return write_out(text) ? kDone : fail_output();
}

}  // namespace

Command add_eval_sweep(CLI::App& app) {
  auto o = std::make_shared<SweepFlags>();
  Flags flags(app);
  add_model_argument(flags, o->eval.model);
  flags
      .option(
          "--plans", o->plans,
          "Precision plans; the first is the reference, e.g. bf16,w4a4,w4a4,kv=nvfp4,w4a4@reset: with that --policy")
      ->capture_default_str();
  flags
      .option("--tasks", o->tasks,
              "Tasks of the model's folder, with levels or without, or question files: word:3+4,arithmetic,aime.jsonl")
      ->required();
  flags
      .option_as("-o,--out", o->folder,
                 "Folder for results and report; a sweep that was stopped goes on where it ended", "HALFBYTE_SWEEP_OUT")
      ->required();
  flags.option("--forced", o->forced, "Texts a task that every plan scores with teacher forcing; 0: none")
      ->check(whole_number(0, 100'000))
      ->capture_default_str();
  o->title = "What each plan costs";
  flags.option("--title", o->title, "Of the report")->capture_default_str();
  flags.option("--limit", o->eval.questions.limit, "At most this many questions a task, spread over its file")
      ->check(whole_number(1, 1'000'000'000));
  add_split_flag(flags, o->eval);
  add_drawing_flags(flags, o->eval);
  add_machine_flags(flags, o->eval);
  add_code_flags(flags, o->eval);
  flags.flag("--json", o->eval.json, "The report as JSON instead of Markdown");
  return [o, &app] { return run(app, *o); };
}

}  // namespace halfbyte::tools
