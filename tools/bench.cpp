// halfbyte bench: tokens per second of prompt and decode, beside how fast this machine reads memory in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/progress.h"
#include "base/size_text.h"
#include "base/thread_pool.h"
#include "bench_cuda.h"
#include "bench_race.h"
#include "bench_support.h"
#include "engine/cuda_supported.h"
#include "halfbyte/version.h"
#include "json_text.h"
#include "kernels/read_bandwidth.h"
#include "model/config.h"
#include "model/plan_fields.h"
#include "model/synthetic.h"
#include "model_options.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  ModelOptions model;
  std::string synthetic, prompt, tokens = "64", batch = "1", context = "16", svg;
  int repeat = 5, warmup = 1;
  bool json = false, roofline = false, stepped = false, policy_cost = false, race = false, stages = false,
       host_gap = false;
};

constexpr int64_t kPromptTokens = 512;  // unless --prompt-tokens says otherwise

struct Sizes {
  int64_t prompt = kPromptTokens, tokens = 0, batch = 0, context = 0, chunk = 0;
};

struct Case {
  std::string name;
  std::vector<double> rates;      // tokens per second of each sample
  double bytes_per_token = 0;     // weight bytes that must be read for a token
  int64_t samples = 0;            // prompts, or steps
  std::vector<StageTime> stages;  // of all samples; empty without --stages
};

// Adds what a sample took: the engine's times since `before`.
void add_sample(const std::vector<StageTime>& before, const std::vector<StageTime>& after, Case& out) {
  ++out.samples;
  if (out.stages.empty())
    for (const StageTime& t : after) out.stages.push_back({t.stage, 0});
  for (size_t i = 0; i < after.size(); ++i) out.stages[i].seconds += after[i].seconds - before[i].seconds;
}

class Bench {
 public:
  Bench(Engine& engine, const Sizes& sizes) : engine_(engine), sizes_(sizes) {
    const ModelSummary& s = engine.model().summary();
    const auto chunks = static_cast<double>((sizes.prompt + sizes.chunk - 1) / sizes.chunk);
    // All weights are read once for each chunk of a prompt and each decode step.
    prompt_.name = fmt::format("prompt {}", sizes.prompt);
    prompt_.bytes_per_token =
        static_cast<double>(s.decode_bytes_per_token) * chunks / static_cast<double>(sizes.prompt);
    decode_.name = fmt::format("decode batch {} at {}", sizes.batch, sizes.context);
    decode_.bytes_per_token = static_cast<double>(s.decode_bytes_per_token) / static_cast<double>(sizes.batch);
  }

  // One round: a prompt alone, then `batch` sequences that decode together. Kept unless it warms up.
  Status round(int64_t number, bool keep) {
    HB_TRY(time_prompt(number, keep));
    return time_decode(number, keep);
  }

  std::vector<Case> cases() const { return {prompt_, decode_}; }

 private:
  Result<uint64_t> submit(int64_t prompt, int64_t max_tokens, int64_t salt) {
    GenerateRequest request;
    request.prompt = made_up_prompt(prompt, engine_.model().config().vocab, salt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    return engine_.submit(std::move(request));
  }

  Status time_prompt(int64_t number, bool keep) {
    const std::vector<StageTime> before = engine_.stage_times();
    const Stopwatch clock;
    HB_TRY(submit(sizes_.prompt, 1, number).status());
    while (engine_.busy()) HB_TRY(measured_step(engine_).status());
    if (!keep) return {};
    prompt_.rates.push_back(static_cast<double>(sizes_.prompt) / clock.seconds());
    add_sample(before, engine_.stage_times(), prompt_);
    return {};
  }

  // Steps in which all sequences decode, each one sample; those that still read a prompt do not count.
  Status time_decode(int64_t number, bool keep) {
    for (int64_t b = 0; b < sizes_.batch; ++b) {
      HB_TRY(submit(sizes_.context, sizes_.tokens + 1, number * sizes_.batch + b).status());
    }
    bool all_decode = false;
    while (engine_.busy()) {
      const std::vector<StageTime> before = engine_.stage_times();
      const Stopwatch clock;
      HB_ASSIGN(const std::vector<TokenEvent> events, measured_step(engine_));
      const double seconds = clock.seconds();
      int64_t tokens = 0;
      for (const TokenEvent& e : events) tokens += e.token >= 0;
      if (all_decode && tokens == sizes_.batch && keep) {
        decode_.rates.push_back(static_cast<double>(tokens) / seconds);
        add_sample(before, engine_.stage_times(), decode_);
      }
      all_decode = all_decode || tokens == sizes_.batch;
    }
    return {};
  }

  Engine& engine_;
  Sizes sizes_;
  Case prompt_, decode_;
};

Json case_json(const Case& c, double read_gbps) {
  const double median = percentile(c.rates, 0.5);
  const double gbps = median * c.bytes_per_token / 1e9;
  Json out{{"name", c.name},
           {"tokens_per_s", median},
           {"p10", percentile(c.rates, 0.1)},
           {"p90", percentile(c.rates, 0.9)},
           {"GBps", gbps},
           {"share_of_read", gbps / read_gbps}};
  for (const StageTime& t : c.stages) out["stages_us"][t.stage] = 1e6 * t.seconds / static_cast<double>(c.samples);
  return out;
}

// A row a stage, a column a case: mean time of a prompt, or of a step, and its share.
std::string stages_text(const std::vector<Case>& cases) {
  if (cases.empty() || cases[0].stages.empty()) return "";
  std::string out = fmt::format("\n{:<12}", "mean us");
  for (const Case& c : cases) out += fmt::format(" {:>24}", c.name);
  for (size_t i = 0; i < cases[0].stages.size(); ++i) {
    out += fmt::format("\n{:<12}", cases[0].stages[i].stage);
    for (const Case& c : cases) {
      if (c.stages.empty()) continue;
      double all = 0;
      for (const StageTime& t : c.stages) all += t.seconds;
      const double own = c.stages[i].seconds;
      out += fmt::format(" {:>17.1f} {:>5.1f}%", 1e6 * own / static_cast<double>(c.samples), 100 * own / all);
    }
  }
  return out + "\n";
}

std::string report_text(const Model& model, const std::vector<Case>& cases, double read_gbps, int threads) {
  std::string out = fmt::format("{}, {}, reads {:.2f} GB/s\n{}, plan {}, kernels {}\n\n", cpu_model_name(),
                                counted(static_cast<uint64_t>(threads), "thread"), read_gbps, model.summary().path,
                                plan_text(model.plan()), model.summary().kernels);
  size_t width = 18;
  for (const Case& c : cases) width = std::max(width, c.name.size());
  out += fmt::format("{:<{}} {:>9} {:>9} {:>9} {:>8} {:>9}\n", "", width, "tokens/s", "p10", "p90", "GB/s", "of read");
  for (const Case& c : cases) {
    const Json j = case_json(c, read_gbps);
    out += fmt::format("{:<{}} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.2f} {:>8.1f}%\n", c.name, width,
                       j["tokens_per_s"].get<double>(), j["p10"].get<double>(), j["p90"].get<double>(),
                       j["GBps"].get<double>(), 100 * j["share_of_read"].get<double>());
  }
  return out + stages_text(cases);
}

std::string report_json(const Model& model, const std::vector<Case>& cases, double read_gbps, int threads) {
  Json rows = Json::array();
  for (const Case& c : cases) rows.push_back(case_json(c, read_gbps));
  const Json out{{"machine", {{"cpu", cpu_model_name()}, {"threads", threads}, {"read_GBps", read_gbps}}},
                 {"version", version()},
                 {"commit", build_commit()},
                 {"plan", plan_to_text(model.plan())},
                 {"kernels", model.summary().kernels},
                 {"cases", rows}};
  return json_text(out);
}

Result<Sizes> read_sizes(const BenchOptions& options) {
  Sizes sizes;
  HB_TRY(read_size(options.prompt, "--prompt-tokens", sizes.prompt));
  HB_TRY(read_size(options.tokens, "--tokens", sizes.tokens));
  HB_TRY(read_size(options.batch, "--batch", sizes.batch));
  HB_TRY(read_size(options.context, "--context", sizes.context));
  HB_ASSIGN(sizes.chunk, prefill_chunk_of(options.model, "cpu"));
  return sizes;
}

Status check_batch(int64_t batch, int64_t most, std::string_view where) {
  if (batch <= most) return {};
  return invalid_argument(fmt::format("--batch is {}, expected 1 to {} {}", batch, most, where));
}

// The sizes against the room that a sequence has. A prompt whose length nobody named takes what fits. `decoded`: tokens that
// come behind --context.
Status fit_sizes(const BenchOptions& options, int64_t room, int64_t decoded, Sizes& sizes) {
  if (options.prompt.empty()) sizes.prompt = std::min(kPromptTokens, room - 1);
  if (sizes.prompt + 1 > room)
    return invalid_argument(fmt::format("--prompt-tokens is {}, expected at most {}: the context is {} tokens",
                                        sizes.prompt, room - 1, room));
  if (sizes.context > room - 1 - decoded)
    return invalid_argument(fmt::format("--context {} and {} to decode are more than the context of {} tokens holds",
                                        sizes.context, counted(static_cast<uint64_t>(decoded), "token"), room));
  return {};
}

// What each form would pass over in silence.
Status check_form(const BenchOptions& options, const CLI::App& app) {
  if (options.roofline)
    return refuse_unused(
        app, "with --roofline",
        {"MODEL", "--synthetic", "--stepped", "--policy-cost", "--host-gap", "--stages", "--prompt-tokens", "--tokens",
         "--batch", "--context", "--warmup", "--plan", "--kv", "--ctx", "--device", "--race", "--prefill-chunk"});
  if (!options.svg.empty()) return invalid_argument("--svg goes with --roofline");
  if (options.stepped)
    return refuse_unused(app, "with --stepped",
                         {"--policy-cost", "--stages", "--prompt-tokens", "--tokens", "--batch", "--context",
                          "--repeat", "--warmup", "--json", "--ctx", "--race", "--host-gap", "--prefill-chunk"});
  if (options.race)
    return refuse_unused(app, "with --race",
                         {"--host-gap", "--policy-cost", "--repeat", "--prompt-tokens", "--prefill-chunk"});
  return {};
}

Status exclude_model(const BenchOptions& options) {
  return options.synthetic.empty() || options.model.model.empty()
             ? Status()
             : invalid_argument("--synthetic and a MODEL exclude each other");
}

Result<std::shared_ptr<Model>> open_model(const BenchOptions& options) {
  if (options.synthetic.empty()) {
    HB_ASSIGN(const std::string path, model_path(options.model.model));
    return load_model(path, options.model);
  }
  HB_TRY(exclude_model(options));
  HB_ASSIGN(LoadOptions load, load_options(options.model));
  ProgressBar bar("making " + options.synthetic);
  load.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return true;
  };
  return Model::synthetic(options.synthetic, load);
}

// Decode loop and prompt on a CUDA device; --tokens steps and --repeat prompts count. Every argument is checked here, before
// anybody asks whether there is a device.
Result<CudaDecodeOptions> cuda_options(const BenchOptions& options, Sizes sizes, const CLI::App& app) {
  constexpr std::string_view kWhere = "on a CUDA device";
  constexpr int64_t kMostBatch = 64, kMostSteps = 1 << 20;
  HB_TRY(exclude_model(options));
  if (options.synthetic.empty())
    return unsupported(
        "bench --device cuda measures --synthetic shapes; halfbyte run -v --device cuda shows a model's rates");
  HB_TRY(refuse_unused(
      app, options.model.device == "auto" ? "on a CUDA device, which --device auto chose" : "with --device cuda",
      {"--stepped", "--stages", "--warmup", "--threads", "--ctx"}));
  HB_TRY(check_batch(sizes.batch, kMostBatch, kWhere));
  if (sizes.tokens < 2 || sizes.tokens > kMostSteps)
    return invalid_argument(fmt::format("--tokens is {}, expected 2 to {} {}", sizes.tokens, kMostSteps, kWhere));
  HB_ASSIGN(const ModelSource source, synthetic_source(options.synthetic));
  HB_ASSIGN(const ModelConfig config, make_model_config(source.config, source.generation));
  HB_TRY(fit_sizes(options, config.context, sizes.tokens, sizes));
  CudaDecodeOptions decode;
  decode.shape = options.synthetic;
  decode.batch = static_cast<int>(sizes.batch);
  decode.steps = static_cast<int>(sizes.tokens);
  decode.context = sizes.context;
  decode.prompt = options.race ? 0 : sizes.prompt;
  decode.prompt_rounds = options.repeat;
  decode.policy = options.policy_cost;
  decode.gap = options.host_gap;
  if (!options.race && !options.model.prefill_chunk.empty()) {  // a race reads no prompt
    HB_ASSIGN(decode.prefill_chunk, prefill_chunk_of(options.model, "cuda"));
  }
  HB_ASSIGN(decode.plan, parse_plan(options.model.plan.empty() ? "w4a16" : options.model.plan));
  if (!options.model.kv.empty()) {
    HB_ASSIGN(decode.plan.kv, parse_kv(options.model.kv));
  }
  HB_TRY(check_cuda_kv(decode.plan.kv));
  return decode;
}

int run_cuda(const BenchOptions& options, const CudaDecodeOptions& decode) {
  if (options.race) return run_race(decode, /*same_cache=*/!options.model.kv.empty(), options.json);
  const auto report = measure_cuda_decode(decode);
  if (!report.ok()) return fail(report.status());
  return write_out(cuda_decode_text(decode, *report, options.json)) ? kDone : fail_output();
}

// What --race and --host-gap need; what --device auto means is settled where only one thing can be meant.
Status settle_device(BenchOptions& options) {
  std::string& device = options.model.device;
  for (const auto& [flag, given] : {std::pair("--race", options.race), std::pair("--host-gap", options.host_gap)}) {
    if (!given) continue;
    if (options.synthetic.empty() || device == "cpu")
      return invalid_argument(fmt::format("{} needs --device cuda and --synthetic", flag));
    device = "cuda";
  }
  // A device measures --synthetic shapes only; whoever leaves the choice gets what can be measured.
  if (device == "auto" && options.synthetic.empty()) device = "cpu";
  return {};
}

int run(BenchOptions options, const CLI::App& app) {
  if (const Status s = check_form(options, app); !s.ok()) return fail(s);
  const int threads = options.model.threads > 0 ? options.model.threads : default_thread_count();
  if (options.roofline)
    return run_roofline({options.model.kernels, threads, options.repeat, options.json, options.svg});
  auto sizes = read_sizes(options);
  if (!sizes.ok()) return fail(sizes.status());
  if (const Status s = settle_device(options); !s.ok()) return fail(s);
  const auto decode = options.model.device == "cpu" ? Result<CudaDecodeOptions>(CudaDecodeOptions())
                                                    : cuda_options(options, *sizes, app);
  if (options.model.device == "cuda" && !decode.ok()) return fail(decode.status());
  const auto device = chosen_device(options.model);
  if (!device.ok()) return fail(device.status());
  if (*device == "cuda") return decode.ok() ? run_cuda(options, *decode) : fail(decode.status());
  if (const Status s = check_batch(sizes->batch, /*most=*/256, "on the CPU"); !s.ok()) return fail(s);
  if (options.policy_cost) {
    const Status beside =
        refuse_unused(app, "with --policy-cost",
                      {"--stages", "--prompt-tokens", "--batch", "--repeat", "--warmup", "--prefill-chunk"});
    if (!beside.ok()) return fail(beside);
  }
  const auto model = open_model(options);
  if (!model.ok()) return fail(model.status());
  if (options.stepped) return run_stepped(*model, threads);
  ModelOptions engine_options = options.model;
  int64_t room = (*model)->config().context;
  if (const Status s = read_size(engine_options.ctx, "--ctx", room); !s.ok()) return fail(s);
  const int64_t decoded = options.policy_cost ? 1 : sizes->tokens;
  if (const Status s = fit_sizes(options, std::min(room, (*model)->config().context), decoded, *sizes); !s.ok())
    return fail(s);
  if (engine_options.ctx.empty()) {
    const int64_t needed = std::max(sizes->prompt + 1, sizes->context + sizes->tokens + 1);
    engine_options.ctx = fmt::format("{}", std::min(needed + 31, (*model)->config().context));
  }
  if (options.policy_cost) return run_policy_cost(*model, engine_options, sizes->context, sizes->tokens, options.json);
  auto engine = make_engine(*model, engine_options, static_cast<int>(sizes->batch), options.stages);
  if (!engine.ok()) return fail(engine.status());

  ThreadPool pool(threads);
  ReadSpeed read(pool);
  Bench bench(**engine, *sizes);
  read.measure();
  const int rounds = options.warmup + options.repeat;
  ProgressBar bar("measuring, round");
  for (int i = 0; i < rounds; ++i) {
    bar.step(static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(rounds));
    if (const Status s = bench.round(i, /*keep=*/i >= options.warmup); !s.ok()) return fail(s);
    read.measure();
  }
  bar.finish();
  const std::string text = options.json ? report_json(**model, bench.cases(), read.gbps(), threads)
                                        : report_text(**model, bench.cases(), read.gbps(), threads);
  return write_out(text) ? kDone : fail_output();
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  Flags flags(app);
  add_model_argument(flags, options->model);
  flags.option("--synthetic", options->synthetic,
               "Random weights of a known shape instead of a model, e.g. qwen2.5-1.5b");
  flags.option("--prompt-tokens", options->prompt,
               fmt::format("Length of the prompt (default: {}, or what the context has room for)", kPromptTokens));
  flags.option("--tokens", options->tokens, "Tokens that each sequence decodes")->capture_default_str();
  flags.option("--batch", options->batch, "Sequences that decode together")->capture_default_str();
  flags.option("--context", options->context, "Tokens that each has read before")->capture_default_str();
  options->model.device = "cpu";
  add_device_flag(flags, options->model,
                  "cpu, cuda (a --synthetic shape; decode with tokens fed back on the device), or auto: cuda for a "
                  "shape where it can be used");
  flags.option("--repeat", options->repeat, "Rounds that count")
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000));
  flags.option("--warmup", options->warmup, "Rounds before them that do not")
      ->capture_default_str()
      ->check(whole_number(0, 1'000'000));
  flags.flag("--roofline", options->roofline,
             "No model: every linear kernel beside the memory bandwidth and its own peak");
  flags.option("--svg", options->svg, "With --roofline: write a picture to this file");
  flags.flag("--stepped", options->stepped,
             "Measure when a line on stdin asks: 'prompt TOKENS', 'decode ROWS CONTEXT STEPS', 'read'");
  flags.flag("--stages", options->stages, "Also where the time goes: linears, attention, rounding, norms, ...");
  flags.flag("--policy-cost", options->policy_cost,
             "What ReSET adds to a decode step: --tokens pairs of steps, with it and without, in turn");
  flags.flag(
      "--race", options->race,
      "On a CUDA device: --tokens steps in BF16 and in --plan, each with its own KV cache or both with --kv's, then "
      "side by side as fast as they were");
  flags.flag("--host-gap", options->host_gap,
             "On a CUDA device: what it waits for between two steps of the engine, running ahead and not");
  flags.flag("--json", options->json, "One JSON object instead of a table");
  add_load_flags(flags, options->model);
  add_context_flag(flags, options->model);
  add_prefill_flag(flags, options->model, "512; on a CUDA device 4096");
  return [options, &app] { return run(*options, app); };
}

}  // namespace halfbyte::tools
