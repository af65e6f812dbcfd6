#include "quantize/exporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/cpu_topology.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "formats/bf16.h"
#include "halfbyte/plan.h"
#include "io/message.h"
#include "io/model_source.h"
#include "io/read_file.h"
#include "quantize/export_config.h"
#include "quantize/export_tokenizer.h"
#include "quantize/exported_names.h"
#include "quantize/output_folder.h"
#include "quantize/safetensors_writer.h"

namespace halfbyte {
namespace fs = std::filesystem;
namespace {

// Modules of a decoder layer that are quantised; those with the same group share one tensor scale (they read the same
// input, and other engines fuse them).
struct LinearPart {
  std::string_view suffix;
  std::string_view group;
};
constexpr std::array<LinearPart, 7> kLinearParts = {{{"self_attn.q_proj", "qkv"},
                                                     {"self_attn.k_proj", "qkv"},
                                                     {"self_attn.v_proj", "qkv"},
                                                     {"self_attn.o_proj", "o"},
                                                     {"mlp.gate_proj", "gate_up"},
                                                     {"mlp.up_proj", "gate_up"},
                                                     {"mlp.down_proj", "down"}}};

struct Job {
  const TensorInfo* tensor = nullptr;
  bool quantise = false;
  std::string module;  // the tensor's name without ".weight"
  std::string group;   // the layer and the group's name
};

// The module and group of a decoder layer's linear weight, or nothing.
std::optional<Job> linear_job(const TensorInfo& tensor) {
  constexpr std::string_view kPrefix = "model.layers.", kWeight = ".weight";
  const std::string_view name = tensor.name;
  if (!name.starts_with(kPrefix) || !name.ends_with(kWeight)) return std::nullopt;
  const size_t dot = name.find('.', kPrefix.size());
  const std::string_view module = name.substr(0, name.size() - kWeight.size());
  for (const LinearPart& part : kLinearParts) {
    if (dot + 1 + part.suffix.size() != module.size() || !module.ends_with(part.suffix)) continue;
    return Job{&tensor, true, std::string(module), std::string(name.substr(0, dot + 1)) + std::string(part.group)};
  }
  return std::nullopt;
}

// Measures sum w^2 and sum (w - w')^2 by rows; summed in row order, so that threads change nothing.
class ErrorMeter {
 public:
  explicit ErrorMeter(int64_t rows) : signal_(static_cast<size_t>(rows)), noise_(static_cast<size_t>(rows)) {}

  void add_row(int64_t row, std::span<const float> before, std::span<const float> after) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const double difference = static_cast<double>(before[i]) - static_cast<double>(after[i]);
      signal += static_cast<double>(before[i]) * static_cast<double>(before[i]);
      noise += difference * difference;
    }
    signal_[static_cast<size_t>(row)] = signal;
    noise_[static_cast<size_t>(row)] = noise;
  }
  double snr_db() const {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < signal_.size(); ++i) {
      signal += signal_[i];
      noise += noise_[i];
    }
    return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
  }

 private:
  std::vector<double> signal_, noise_;
};

// Runs body(row, thread) over all rows in parallel; the first failure in row order is returned.
template <class Body>
Status for_rows(ThreadPool& pool, int64_t rows, const Body& body) {
  std::vector<Status> failures(static_cast<size_t>(pool.threads()));
  std::vector<int64_t> failed_row(failures.size(), rows);
  pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int thread) {
    const auto t = static_cast<size_t>(thread);
    for (int64_t row = begin; row < end && row < failed_row[t]; ++row) {
      if (Status status = body(row, t); !status.ok()) {
        failures[t] = std::move(status);
        failed_row[t] = row;
      }
    }
  });
  const auto first = std::min_element(failed_row.begin(), failed_row.end()) - failed_row.begin();
  return failed_row[static_cast<size_t>(first)] < rows ? failures[static_cast<size_t>(first)] : Status();
}

class Exporter {
 public:
  Exporter(ModelSource source, const Recipe& recipe, const ExportOptions& options)
      : source_(std::move(source)),
        recipe_(recipe),
        options_(options),
        pool_(options.threads > 0 ? options.threads : default_thread_count()) {}

  Result<ExportReport> run(const std::string& out);

 private:
  void plan_jobs();
  Status check_disk(const std::string& out) const;
  Status write_weights(OutputFolder& folder);
  Status write_group(const std::vector<const Job*>& group, SafetensorsWriter& writer);
  Status write_quantised(const Job& job, float amax, SafetensorsWriter& writer);
  Status write_plain(const Job& job, SafetensorsWriter& writer);
  Status write_files(OutputFolder& folder);
  Status report_tensor(TensorReport report, uint64_t elements);
  WeightSource weight(const Job& job) const;

  ModelSource source_;
  const Recipe& recipe_;
  const ExportOptions& options_;
  ThreadPool pool_;
  std::vector<Job> jobs_;  // in the source's order
  std::vector<OutputTensor> outputs_;
  ExportedQuantization quantization_;
  ExportReport report_;
  uint64_t done_ = 0, total_ = 0;
};

void Exporter::plan_jobs() {
  quantization_.quantised = recipe_.round != nullptr;
  quantization_.exclude = {"lm_head"};
  for (const TensorInfo& tensor : source_.tensors->tensors()) {
    if (tensor.name.ends_with(".rotary_emb.inv_freq")) continue;  // old checkpoints store what config.json says
    Job job;
    if (auto linear = recipe_.round ? linear_job(tensor) : std::nullopt) {
      job = std::move(*linear);
      const bool fits = tensor.shape.rank() == 2 && tensor.shape[1] % 16 == 0;
      if (!fits) {
        job.quantise = false;
        quantization_.exclude.push_back(job.module);
        report_.warnings.push_back(job.module + ": stays BF16, its width " +
                                   (tensor.shape.rank() == 2 ? std::to_string(tensor.shape[1]) : tensor.shape.text()) +
                                   " is no multiple of 16");
      }
    }
    job.tensor = &tensor;
    const uint64_t elements = tensor.shape.elements().value_or(0);
    total_ += elements;
    report_.source_bytes += tensor.bytes;
    if (job.quantise) {
      const int64_t n = tensor.shape[0], k = tensor.shape[1];
      outputs_.push_back({job.module + ".weight", DType::kU8, {{n, k / 2}}, elements / 2});
      outputs_.push_back({job.module + ".weight_scale", DType::kF8E4M3, {{n, k / 16}}, elements / 16});
      outputs_.push_back({job.module + ".weight_scale_2", DType::kF32, {}, 4});
    } else {
      outputs_.push_back({tensor.name, DType::kBF16, tensor.shape, 2 * elements});
    }
    jobs_.push_back(std::move(job));
  }
  for (const OutputTensor& output : outputs_) report_.bytes += output.bytes;
}

Status Exporter::check_disk(const std::string& out) const {
  std::error_code failure;
  fs::path at = fs::absolute(out, failure).parent_path();
  while (!at.empty() && !fs::exists(at, failure) && at != at.parent_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, failure);
  constexpr uint64_t kSlack = 64 << 20;  // headers and the tokenizer
  if (failure || space.available >= report_.bytes + kSlack) return {};
  return resource_exhausted(shown(out) + ": needs " + format_bytes(report_.bytes + kSlack) + " of disk space, " +
                            shown(at.string()) + " has " + format_bytes(space.available) + " free");
}

WeightSource Exporter::weight(const Job& job) const {
  const TensorSource& tensors = *source_.tensors;
  const TensorInfo& tensor = *job.tensor;
  return {job.module, tensor.shape[0], tensor.shape[1],
          [&tensors, &tensor](int64_t first, int64_t rows, std::span<float> out) {
            return tensors.read_rows(tensor, first, rows, out);
          },
          [&tensors, &tensor](int64_t first, int64_t rows) { return largest_of_rows(tensors, tensor, first, rows); }};
}

Status Exporter::report_tensor(TensorReport report, uint64_t elements) {
  done_ += elements;
  report_.tensors.push_back(std::move(report));
  if (options_.progress && !options_.progress({done_, total_, &report_.tensors.back()})) {
    return cancelled("stopped after " + std::to_string(report_.tensors.size()) + " of " + std::to_string(jobs_.size()) +
                     " tensors; nothing was left behind");
  }
  return {};
}

Status Exporter::write_plain(const Job& job, SafetensorsWriter& writer) {
  const TensorInfo& tensor = *job.tensor;
  const size_t rank = tensor.shape.rank();
  const int64_t rows = rank == 2 ? tensor.shape[0] : 1;
  const int64_t columns = rank == 0 ? 1 : tensor.shape[rank - 1];
  // Whole rows, about 16 MiB of FP32 at a time.
  const int64_t chunk = std::max<int64_t>(1, (int64_t{4} << 20) / std::max<int64_t>(columns, 1));
  std::vector<float> values(static_cast<size_t>(std::min(chunk, rows) * columns)),
      rounded(static_cast<size_t>(columns) * static_cast<size_t>(pool_.threads()));
  std::vector<uint16_t> codes(values.size());
  ErrorMeter meter(rows);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const size_t size = static_cast<size_t>(count * columns);
    HB_TRY(source_.tensors->read_rows(tensor, first, count, std::span(values.data(), size)));
    HB_TRY(for_rows(pool_, count, [&](int64_t row, size_t thread) -> Status {
      const std::span<const float> before(values.data() + row * columns, static_cast<size_t>(columns));
      const std::span<float> after(rounded.data() + thread * static_cast<size_t>(columns),
                                   static_cast<size_t>(columns));
      for (int64_t i = 0; i < columns; ++i) {
        const uint16_t code = BF16::encode(before[i]);
        codes[static_cast<size_t>(row * columns + i)] = code;
        after[i] = BF16::decode(code);
        if (!std::isfinite(after[i])) {
          return source_.tensors->error(tensor, "has the value " + std::to_string(before[i]) + " in row " +
                                                    std::to_string(first + row) + ", column " + std::to_string(i) +
                                                    ", expected numbers that BF16 can hold; the checkpoint is damaged");
        }
      }
      meter.add_row(first + row, before, after);
      return {};
    }));
    HB_TRY(writer.write(tensor.name, static_cast<uint64_t>(first * columns) * 2,
                        std::as_bytes(std::span(codes.data(), size))));
  }
  return report_tensor(
      {tensor.name, "BF16", tensor.shape.text(), 2 * tensor.shape.elements().value_or(0), meter.snr_db()},
      tensor.shape.elements().value_or(0));
}

Status Exporter::write_quantised(const Job& job, float amax, SafetensorsWriter& writer) {
  const WeightSource source = weight(job);
  HB_ASSIGN(const QuantLinear rounded, recipe_.round(source, amax, pool_));
  if (rounded.format != WeightFormat::kNVFP4 || rounded.n != source.n || rounded.k != source.k) {
    return internal_error("the recipe " + quote(recipe_.name) + " gave " + quote(job.module) +
                          " another shape or format");
  }
  const auto columns = static_cast<size_t>(source.k);
  ErrorMeter meter(source.n);
  std::vector<float> buffers(2 * columns * static_cast<size_t>(pool_.threads()));
  HB_TRY(for_rows(pool_, source.n, [&](int64_t row, size_t thread) -> Status {
    const std::span<float> before(buffers.data() + 2 * columns * thread, columns);
    const std::span<float> after(before.data() + columns, columns);
    if (Status status = source.read(row, 1, before); !status.ok()) return status;
    dequantize_row(rounded, row, after);
    meter.add_row(row, before, after);
    return {};
  }));
  const float scale = rounded.tensor_scale;
  HB_TRY(writer.write(job.module + ".weight", 0, rounded.codes.bytes()));
  HB_TRY(writer.write(job.module + ".weight_scale", 0, rounded.block_scales.bytes()));
  HB_TRY(writer.write(job.module + ".weight_scale_2", 0, std::as_bytes(std::span(&scale, 1))));
  const uint64_t bytes = rounded.codes.size() + rounded.block_scales.size() + 4;
  return report_tensor({job.tensor->name, "NVFP4", job.tensor->shape.text(), bytes, meter.snr_db()},
                       job.tensor->shape.elements().value_or(0));
}

Status Exporter::write_group(const std::vector<const Job*>& group, SafetensorsWriter& writer) {
  float amax = 0;
  for (const Job* job : group) {
    HB_ASSIGN(const float own, weight_amax(weight(*job), pool_));
    amax = std::max(amax, own);
  }
  for (const Job* job : group) HB_TRY(write_quantised(*job, amax, writer));
  return {};
}

Status Exporter::write_weights(OutputFolder& folder) {
  HB_ASSIGN(const auto writer, SafetensorsWriter::create(folder, outputs_, options_.shard_bytes));
  std::map<std::string, std::vector<const Job*>> groups;
  for (const Job& job : jobs_) {
    if (job.quantise) groups[job.group].push_back(&job);
  }
  for (const Job& job : jobs_) {
    if (!job.quantise) {
      HB_TRY(write_plain(job, *writer));
    } else if (const auto& group = groups[job.group]; group.front() == &job) {
      HB_TRY(write_group(group, *writer));
    }
  }
  return writer->finish(folder);
}

Status Exporter::write_files(OutputFolder& folder) {
  if (source_.folder.empty()) {
    HB_ASSIGN(const std::string config, make_config(source_.config, quantization_));
    HB_TRY(folder.write_text("config.json", config));
    HB_TRY(folder.write_text("generation_config.json", make_generation_config(source_.generation)));
    HB_ASSIGN(const TokenizerSource tokenizer, open_tokenizer_source(source_.path));
    auto json = make_tokenizer_json(*tokenizer.vocab);
    if (!json.ok()) return json.status().with_context(shown(source_.path));
    HB_TRY(folder.write_text("tokenizer.json", *json));
    HB_TRY(folder.write_text("tokenizer_config.json",
                             make_tokenizer_config(tokenizer, source_.config.max_position_embeddings)));
  } else {
    HB_ASSIGN(const auto before, read_small_file(source_.folder + "/config.json"));
    if (!before) return not_found(shown(source_.folder) + "/config.json: vanished while the model was written");
    HB_ASSIGN(const std::string config, rewrite_config(*before, quantization_));
    HB_TRY(folder.write_text("config.json", config));
    for (const std::string_view name : kCopiedFiles) {
      const std::string from = source_.folder + "/" + std::string(name);
      std::error_code failure;
      if (fs::is_regular_file(from, failure)) HB_TRY(folder.copy_file(from, std::string(name)));
    }
  }
  if (quantization_.quantised) HB_TRY(folder.write_text("hf_quant_config.json", make_hf_quant_config(quantization_)));
  HB_ASSIGN(PrecisionPlan plan, plan_preset(quantization_.quantised ? "w4a16" : "bf16"));
  for (const Job& job : jobs_) {
    if (job.module.empty() || job.quantise) continue;
    // A linear that does not fit the format: the plan must not round it at load.
    constexpr std::string_view kPrefix = "model.";
    plan.overrides.push_back({job.module.substr(kPrefix.size()), {"weights"}, {.weights = WeightKind::kBF16}});
  }
  return folder.write_text("halfbyte_plan.json", plan_to_json(plan));
}

Result<ExportReport> Exporter::run(const std::string& out) {
  HB_TRY(check_threads(pool_, options_.threads));
  plan_jobs();
  HB_TRY(check_disk(out));
  HB_ASSIGN(const auto folder, OutputFolder::create(out, options_.force));
  if (options_.progress && !options_.progress({0, total_, nullptr}))
    return cancelled("stopped before the first tensor");
  HB_TRY(write_weights(*folder));
  HB_TRY(write_files(*folder));
  std::error_code failure;
  for (fs::directory_iterator it(folder->partial_path(), failure), end; !failure && it != end; it.increment(failure)) {
    report_.files.push_back(it->path().filename().string());
  }
  std::sort(report_.files.begin(), report_.files.end());
  HB_TRY(folder->commit());
  report_.folder = out;
  return std::move(report_);
}

// `out` must not be the model's folder, nor lie in it, nor hold it.
Status check_apart(const ModelSource& source, const std::string& out) {
  std::error_code failure;
  const fs::path target = fs::weakly_canonical(out, failure);
  if (failure) return invalid_argument(shown(out) + ": cannot be made: " + failure.message());
  fs::path model = fs::weakly_canonical(source.folder.empty() ? source.path : source.folder, failure);
  if (source.folder.empty()) model = model.parent_path();
  const auto holds = [](const fs::path& folder, const fs::path& inner) {
    const auto [a, b] = std::mismatch(folder.begin(), folder.end(), inner.begin(), inner.end());
    return a == folder.end();
  };
  if (target == model) return invalid_argument(shown(out) + ": is the model's own folder; name another folder");
  if (!source.folder.empty() && holds(model, target))
    return invalid_argument(shown(out) + ": lies in the model's own folder; name another folder");
  if (holds(target, model))
    return invalid_argument(shown(out) + ": holds the model " + shown(source.path) + "; name another folder");
  return {};
}

}  // namespace

Result<ExportReport> export_model(const std::string& model, const std::string& out, const Recipe& recipe,
                                  const ExportOptions& options) {
  if (out.empty()) return invalid_argument("the output folder has no name; give one with -o");
  HB_ASSIGN(ModelSource source, open_model_source(model));
  if (source.quant.quantised) {
    return unsupported(shown(model) + ": is already quantised (" + source.quant.algorithm + ", says " +
                       source.quant.file + "); start from the BF16 model");
  }
  HB_TRY(check_apart(source, out));
  Exporter exporter(std::move(source), recipe, options);
  return exporter.run(out);
}

}  // namespace halfbyte
