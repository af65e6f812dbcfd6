#include "halfbyte/model.h"

#include "base/clock.h"
#include "base/cpu_topology.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "io/dequantize.h"
#include "io/model_source.h"
#include "model/kv_cache.h"
#include "model/load.h"
#include "model/model_build.h"
#include "model/model_impl.h"
#include "model/synthetic.h"

namespace halfbyte {

void EmbeddingWeights::read(int32_t token, float* out) const {
  const std::span values(out, static_cast<size_t>(hidden));
  const uint64_t row_bytes = rows.size() / static_cast<uint64_t>(vocab);
  dequantize_row(stored, rows.bytes().subspan(static_cast<uint64_t>(token) * row_bytes, row_bytes), values);
  if (kind == WeightKind::kBF16 && stored != DType::kBF16)
    for (float& v : values) v = BF16::round(v);
}

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;
const ModelConfig& Model::config() const {
  return impl_->config;
}
const PrecisionPlan& Model::plan() const {
  return impl_->plan;
}
const ModelSummary& Model::summary() const {
  return impl_->summary;
}

Result<std::shared_ptr<Model>> Model::load(const std::string& path, const LoadOptions& options) {
  HB_ASSIGN(const ModelSource source, open_model_source(path));
  return from_source(source, options);
}

Result<std::shared_ptr<Model>> Model::synthetic(const std::string& shape, const LoadOptions& options) {
  HB_ASSIGN(const ModelSource source, synthetic_source(shape));
  return from_source(source, options);
}

Result<std::shared_ptr<Model>> Model::from_source(const ModelSource& source, const LoadOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads)
    return invalid_argument("threads is " + std::to_string(options.threads) + ", expected 0 to " +
                            std::to_string(kMaxThreads));
  const Stopwatch clock;
  HB_ASSIGN(const Isa isa, choose_isa(options.kernels));
  HB_ASSIGN(const LoadPlan load_plan, make_load_plan(source, options.plan, isa, options.kv));
  const WeightKind weights_in_plan = load_plan.plan.linear.weights;
  const bool four_bits = weights_in_plan == WeightKind::kNVFP4 || weights_in_plan == WeightKind::kMXFP4;
  const int threads = options.threads > 0 ? options.threads : default_thread_count();
  HB_TRY(
      check_memory(load_plan.footprint.peak(threads), source.path + " in plan " + load_plan.plan.preset,
                   four_bits ? "choose a smaller model" : "choose a plan with fewer bits (w4a16) or a smaller model"));
  ThreadPool pool(threads);
  HB_TRY(check_threads(pool, options.threads));
  HB_ASSIGN(ModelWeights weights, load_weights(source, load_plan, options, pool));

  std::shared_ptr<Model> model(new Model);
  Impl& impl = *model->impl_;
  static_cast<ModelFacts&>(impl) = load_plan;
  impl.config.tied_head = load_plan.tied_head;
  impl.weights = std::move(weights);
  impl.rope = Rope(impl.config.rope, impl.config.head_dim, impl.config.context);
  impl.summary = summarize(source, load_plan);
  impl.summary.load_seconds = clock.seconds();
  return model;
}

ModelSummary summarize(const ModelSource& source, const LoadPlan& plan) {
  ModelSummary s;
  s.path = source.path;
  s.source = source.kind();
  s.architecture = plan.config.architecture;
  s.parameters = plan.parameters;
  s.context = plan.config.context;
  s.vocab = plan.config.vocab;
  s.weight_bytes = plan.footprint.resident();
  s.kv_bytes_per_token = kv_bytes_per_token(plan.config, plan.plan);
  s.decode_bytes_per_token = plan.footprint.linears;
  s.kernels = isa_name(plan.isa);
  s.calibrated_plan = plan.calibrated_plan;
  s.notes = plan.notes;
  return s;
}

uint64_t kv_bytes_per_token(const ModelConfig& config, const PrecisionPlan& plan) {
  return kv_shape(config, plan.kv, /*page_tokens=*/1).page_bytes();
}

}  // namespace halfbyte
