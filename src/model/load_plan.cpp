#include "model/load_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "base/quote.h"
#include "io/message.h"
#include "io/read_file.h"
#include "model/plan_fields.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens";
constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kFinalNorm = "model.norm.weight";

std::string layer_prefix(int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

// "model.layers.0.mlp.up_proj" -> "layers.0.mlp.up_proj", as plans name it.
std::string_view plan_name(std::string_view module) {
  constexpr std::string_view kPrefix = "model.";
  return module.starts_with(kPrefix) ? module.substr(kPrefix.size()) : module;
}

// Of weights that are rounded to integers and then kept as BF16; 0: they are not.
int integer_bits(WeightKind kind) {
  return kind == WeightKind::kInt4 ? 4 : kind == WeightKind::kInt3 ? 3 : 0;
}

std::string stored_name(const LinearFacts& facts) {
  const auto packed = facts.packed_format();
  return !packed ? name_of(facts.quant) : *packed == WeightFormat::kNVFP4 ? "NVFP4" : "MXFP4";
}

// Checks names, shapes and plans, and collects what is used, so that what is left over can be named.
class Planner {
 public:
  Planner(const ModelSource& source, LoadPlan& out) : source_(source), out_(out) {}

  Status run() {
    const ModelConfig& c = out_.config;
    HB_TRY(plan_embedding());
    HB_ASSIGN(out_.final_norm, vector(std::string(kFinalNorm), c.hidden));
    out_.layers.resize(static_cast<size_t>(c.layers));
    for (int64_t i = 0; i < c.layers; ++i) HB_TRY(plan_layer(i, out_.layers[static_cast<size_t>(i)]));
    HB_TRY(plan_head());
    note_contradictions();
    HB_TRY(refuse_patterns_without_linear());
    HB_TRY(refuse_unknown_tensors());
    note_rounding();
    return {};
  }

 private:
  const TensorSource& tensors() const { return *source_.tensors; }

  Result<const TensorInfo*> vector(const std::string& name, int64_t length) {
    const TensorInfo* t = tensors().find(name);
    if (t == nullptr) return missing(name);
    HB_TRY(tensors().check_readable(*t));
    if (t->shape.dims != std::vector<int64_t>{length})
      return tensors().error(*t, "shape " + t->shape.text() + ", expected [" + std::to_string(length) +
                                     "] from the configuration in " + out_.config_file);
    use(t);
    out_.footprint.small += static_cast<uint64_t>(length) * sizeof(float);
    out_.parameters += length;
    return t;
  }

  Status missing(const std::string& name) const {
    const std::string what = tensors().path() + ": no tensor " + quote(name) + ", which a " + out_.config.architecture +
                             " model of " + std::to_string(out_.config.layers) + " layers must have; ";
    // The same tensor under another prefix: what a base class or a multimodal one saves.
    const std::string_view tail = plan_name(name);
    for (const TensorInfo& t : tensors().tensors())
      if (t.name == tail || t.name.ends_with("." + std::string(tail)))
        return not_found(what + "it is called " + quote(t.name) + " here: save the model from its ForCausalLM class");
    return not_found(what + "the download may be incomplete");
  }

  void use(const TensorInfo* t) {
    used_.insert(t->name);
    out_.source_bytes += t->bytes;
  }

  Status plan_embedding() {
    const ModelConfig& c = out_.config;
    const std::string name = std::string(kEmbedding) + ".weight";
    const TensorInfo* t = tensors().find(name);
    if (t == nullptr) return missing(name);
    HB_TRY(tensors().check_readable(*t));
    if (t->shape.dims != std::vector<int64_t>{c.vocab, c.hidden})
      return tensors().error(*t, "shape " + t->shape.text() + ", expected " + Shape{{c.vocab, c.hidden}}.text() +
                                     " from the configuration in " + out_.config_file);
    use(t);
    out_.embedding = t;
    const uint64_t elements = static_cast<uint64_t>(c.vocab) * static_cast<uint64_t>(c.hidden);
    const uint64_t rounded_bytes = elements * (out_.plan.embedding == WeightKind::kF32 ? 4 : 2);
    // Kept as it is stored where that takes no more memory and rounding a row when it is read gives the same numbers.
    out_.embedding_as_stored = t->bytes <= rounded_bytes && tensors().bytes(*t).ok();
    out_.footprint.embedding = out_.embedding_as_stored ? t->bytes : rounded_bytes;
    out_.footprint.thread_staging = rounding_bytes(WeightFormat::kF32, c.hidden, /*run_rows=*/0);
    out_.parameters += static_cast<int64_t>(elements);
    return {};
  }

  Status plan_layer(int64_t index, LayerTask& layer) {
    const ModelConfig& c = out_.config;
    const std::string prefix = layer_prefix(index);
    HB_ASSIGN(layer.attention_norm, vector(prefix + "input_layernorm.weight", c.hidden));
    HB_ASSIGN(layer.mlp_norm, vector(prefix + "post_attention_layernorm.weight", c.hidden));
    if (c.qk_norm) {
      HB_ASSIGN(layer.q_norm, vector(prefix + "self_attn.q_norm.weight", c.head_dim));
      HB_ASSIGN(layer.k_norm, vector(prefix + "self_attn.k_norm.weight", c.head_dim));
    }
    HB_TRY(linear(prefix + "self_attn.q_proj", c.q_width(), c.hidden, c.qkv_bias, layer.q));
    HB_TRY(linear(prefix + "self_attn.k_proj", c.kv_width(), c.hidden, c.qkv_bias, layer.k));
    HB_TRY(linear(prefix + "self_attn.v_proj", c.kv_width(), c.hidden, c.qkv_bias, layer.v));
    HB_TRY(linear(prefix + "self_attn.o_proj", c.hidden, c.q_width(), c.o_bias, layer.o));
    HB_TRY(linear(prefix + "mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias, layer.gate));
    HB_TRY(linear(prefix + "mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias, layer.up));
    HB_TRY(linear(prefix + "mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias, layer.down));
    measure_input({&layer.q, &layer.k, &layer.v});
    measure_input({&layer.o});
    measure_input({&layer.gate, &layer.up});
    measure_input({&layer.down});
    layer.key_scale = kv_scale(prefix, "k");
    layer.value_scale = kv_scale(prefix, "v");
    return {};
  }

  // "k" or "v": its scale, if the plan's cache has one. ModelOpt and compressed-tensors put it in different places.
  const TensorInfo* kv_scale(const std::string& prefix, const std::string& part) {
    const bool wanted = scaled_kv() && out_.plan.kv_scale == KvScale::kCheckpoint;
    const TensorInfo* found = nullptr;
    for (const std::string& owner : {part + "_proj.", std::string(), std::string("attn.")}) {
      const TensorInfo* t = tensors().find(prefix + "self_attn." + owner + part + "_scale");
      if (t == nullptr) continue;
      used_.insert(t->name);
      if (found == nullptr) found = t;
    }
    if (wanted && found == nullptr) ++missing_kv_scales_;
    return wanted ? found : nullptr;
  }

  bool scaled_kv() const { return out_.plan.kv != KvKind::kF32 && out_.plan.kv != KvKind::kBF16; }

  Status plan_head() {
    const ModelConfig& c = out_.config;
    const bool stored = has_linear(tensors(), kHead);
    if (!c.tied_head && !stored) out_.notes.push_back("the model has no lm_head; the embedding is used in its place");
    out_.tied_head = !stored || (c.tied_head && head_is_copy());
    if (c.tied_head && !out_.tied_head)
      out_.notes.push_back(
          "tie_word_embeddings is true, but the stored lm_head is not the embedding; using the stored lm_head");
    if (out_.tied_head)  // a tied file may hold the copy
      for (const TensorInfo& t : tensors().tensors())
        if (t.name.starts_with(std::string(kHead) + ".")) used_.insert(t.name);
    HB_TRY(
        linear(std::string(out_.tied_head ? kEmbedding : kHead), c.vocab, c.hidden, /*bias=*/false, out_.head, kHead));
    measure_input({&out_.head});
    return {};
  }

  // Whether the stored head is the embedding once more. What the tensors are decides, as in transformers 5.
  bool head_is_copy() const {
    const TensorInfo* head = tensors().find(std::string(kHead) + ".weight");
    if (head == nullptr || head->dtype != out_.embedding->dtype || head->shape != out_.embedding->shape) return false;
    const auto one = tensors().bytes(*head), other = tensors().bytes(*out_.embedding);
    return one.ok() && other.ok() && one->size() == other->size() &&
           std::memcmp(one->data(), other->data(), one->size()) == 0;  // hundreds of megabytes
  }

  // One line for all linears of which the same is to be said: 36 layers have 252 of them.
  void note_contradictions() {
    for (const auto& [text, modules] : contradictions_) {
      const std::string more = modules.size() == 1 ? "" : " and " + std::to_string(modules.size() - 1) + " more";
      out_.notes.push_back(modules.front() + more + ": " + text);
    }
  }

  Status linear(const std::string& module, int64_t n, int64_t k, bool bias, LinearTask& task,
                std::string_view name_in_plan = {}) {
    task.module = module;
    HB_ASSIGN(task.facts, linear_facts(tensors(), source_.quant, module));
    const LinearFacts& facts = task.facts;
    // A description is of linears; that it does not leave out the embedding says nothing.
    if (!facts.contradiction.empty() && module != kEmbedding) contradictions_[facts.contradiction].push_back(module);
    if (facts.n != n || facts.k != k)
      return tensors().error(*facts.weight, "a linear of shape " + Shape{{facts.n, facts.k}}.text() + ", expected " +
                                                Shape{{n, k}}.text() + " from the configuration in " +
                                                out_.config_file);
    if (bias != (facts.bias != nullptr))
      return tensors().error(*facts.weight,
                             bias ? "its bias is missing, expected one from the configuration in " + out_.config_file
                                  : "it has a bias, expected none from the configuration in " + out_.config_file);
    if (facts.bias != nullptr && facts.bias->shape.dims != std::vector<int64_t>{n})
      return tensors().error(*facts.bias,
                             "shape " + facts.bias->shape.text() + ", expected [" + std::to_string(n) + "]");
    for (const TensorInfo* t : facts.stored) use(t);

    const std::string_view name = name_in_plan.empty() ? plan_name(module) : name_in_plan;
    task.plan = out_.plan.linear_for(name);
    for (const LinearOverride& change : out_.plan.overrides)
      if (change.matches(name)) matched_.insert(change.pattern);
    HB_TRY(check_linear_plan(task.plan).with_context("plan for " + std::string(name)));
    const WeightFormat format = weight_format_of(task.plan.weights);
    const ActivationMode mode = activation_mode_of(task.plan.activations);
    HB_ASSIGN(task.kernel, find_linear_kernel(format, mode, out_.isa));
    HB_ASSIGN(task.prompt_kernel, find_linear_kernel(format, mode, out_.isa, RowRole::kPrompt));
    measure(task, name == kHead);
    return {};
  }

  // A misspelt pattern would leave the plan as it was, and nobody would see it.
  Status refuse_patterns_without_linear() const {
    for (const LinearOverride& change : out_.plan.overrides) {
      if (matched_.contains(change.pattern)) continue;
      return invalid_argument("plan pattern " + quote(change.pattern) +
                              " matches no linear of the model, whose names are " +
                              "layers.0.self_attn.q_proj to layers." + std::to_string(out_.config.layers - 1) +
                              ".mlp.down_proj, and lm_head");
    }
    return {};
  }

  // What io/load_linear.cpp may make of the whole weight.
  uint64_t shared_staging(const LinearFacts& facts) const {
    const auto packed = facts.packed_format();
    if (!packed && facts.block_scales != nullptr)  // FP8's scales, as FP32
      return facts.block_scales->shape.elements().value_or(0) * sizeof(float);
    if (!packed) {
      if (facts.weight->dtype != DType::kBF16) return 0;
      const auto bytes = tensors().bytes(*facts.weight);
      const bool unaligned = bytes.ok() && reinterpret_cast<uintptr_t>(bytes->data()) % sizeof(uint16_t) != 0;
      return unaligned ? facts.weight->bytes : 0;
    }
    const auto scales = static_cast<uint64_t>(facts.n * scale_bytes_per_row(*packed, facts.k));
    uint64_t made = scales;  // a copy of damaged ones
    if (facts.quant == ModuleQuant::kNVFP4Wide) made += scales;
    // GGUF's blocks are put into the normal form.
    if (facts.block_scales == nullptr)
      made += scales + static_cast<uint64_t>(facts.n * code_bytes_per_row(*packed, facts.k));
    return made;
  }

  void measure(LinearTask& task, bool is_head) {
    const LinearFacts& facts = task.facts;
    const WeightFormat target = task.kernel->weights;
    const auto packed = facts.packed_format();
    // Rows that the source reorders (q and k of a llama GGUF file) have no stored bytes to pack.
    const auto stored_bf16 = [&] { return facts.weight->dtype == DType::kBF16 && tensors().bytes(*facts.weight).ok(); };
    task.stored_as_planned =
        facts.quant != ModuleQuant::kNone ? packed == target : target == WeightFormat::kBF16 && stored_bf16();
    task.integer_bits = integer_bits(task.plan.weights);
    if (task.integer_bits > 0) task.stored_as_planned = false;
    task.packed_bytes = task.kernel->packed_bytes(facts.n, facts.k);
    if (!task.stored_as_planned) task.thread_staging = rounding_bytes(target, facts.k, task.kernel->row_tile);
    task.shared_staging = shared_staging(facts);
    WeightFootprint& f = out_.footprint;
    f.linears += task.packed_bytes;
    if (is_head) f.head = task.packed_bytes;
    f.shared_staging = std::max(f.shared_staging, task.shared_staging);
    f.thread_staging = std::max(f.thread_staging, task.thread_staging);
    if (facts.bias != nullptr) f.small += static_cast<uint64_t>(facts.n) * sizeof(float);
    if (facts.pre_scale != nullptr) {
      f.small += static_cast<uint64_t>(facts.k) * sizeof(float);
      out_.pre_scaled_width = std::max(out_.pre_scaled_width, facts.k);
    }
    if (!is_head || !out_.tied_head) out_.parameters += facts.n * facts.k;
    if (facts.bias != nullptr) out_.parameters += facts.n;
  }

  // Of linears that share an input. Each may round it in its own way: their scales are not read yet.
  void measure_input(std::initializer_list<const LinearTask*> tasks) {
    size_t bytes = 0;
    for (const LinearTask* t : tasks)
      bytes += std::max(t->kernel->activation_bytes(t->facts.k), t->prompt_kernel->activation_bytes(t->facts.k));
    out_.rounded_row_bytes = std::max(out_.rounded_row_bytes, bytes);
  }

  Status refuse_unknown_tensors() const {
    const TensorInfo* first = nullptr;
    int64_t count = 0;
    for (const TensorInfo& t : tensors().tensors()) {
      const std::string_view name = t.name;
      // Tables that older exporters stored; the configuration says the same.
      if (used_.contains(t.name) || name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight") continue;
      if (count++ == 0) first = &t;
    }
    if (first == nullptr) return {};
    const std::string more = count > 1 ? " (and " + std::to_string(count - 1) + " more)" : "";
    return tensors().error(*first, "this tensor" + more + " belongs to no part of a " + out_.config.architecture +
                                       " model of " + std::to_string(out_.config.layers) +
                                       " layers; the files and the configuration may be of different models");
  }

  void note_rounding() {
    std::map<std::string, int64_t> converted;  // by the stored format
    int64_t rounded = 0, plain = 0;
    const auto count = [&](const LinearTask& task) {
      if (task.facts.quant != ModuleQuant::kNone && !task.stored_as_planned) ++converted[stored_name(task.facts)];
      const bool fp4 = task.kernel->weights == WeightFormat::kNVFP4 || task.kernel->weights == WeightFormat::kMXFP4;
      if (task.facts.quant == ModuleQuant::kNone && fp4) ++rounded;
      if (task.plan.activation_scale == ActivationScale::kStatic && task.facts.input_scale == nullptr &&
          task.kernel->activations != ActivationMode::kA16 && task.kernel->activations != ActivationMode::kF32)
        ++plain;
    };
    for (const LayerTask& l : out_.layers)
      for (const LinearTask* task : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) count(*task);
    count(out_.head);
    for (const auto& [name, count_of] : converted)
      out_.notes.push_back(std::to_string(count_of) + " linears are stored in " + name +
                           " and were converted to the plan's formats");
    if (source_.quant.quantised && rounded > 0)
      out_.notes.push_back(
          std::to_string(rounded) +
          " linears that the checkpoint keeps in higher precision were rounded to FP4, as the plan says");
    if (missing_kv_scales_ > 0 && missing_kv_scales_ < 2 * out_.config.layers)
      out_.notes.push_back(std::to_string(missing_kv_scales_) +
                           " layers' keys or values have no scale for the cache in the checkpoint; theirs is 1");
    if (plain > 0)
      out_.notes.push_back(
          std::to_string(plain) +
          " linears have no input scale in the checkpoint; their activation scales are made per token");
  }

  const ModelSource& source_;
  LoadPlan& out_;
  std::set<std::string, std::less<>> used_;
  int64_t missing_kv_scales_ = 0;
  std::map<std::string, std::vector<std::string>> contradictions_;  // what is said, of which linears
  std::set<std::string, std::less<>> matched_;                      // patterns of the plan that a linear has
};

// The plan's kind of weights that keeps what is stored: FP8 has none of its own and becomes BF16.
WeightKind kept_kind(const LinearFacts& facts) {
  const auto packed = facts.packed_format();
  if (!packed) return WeightKind::kBF16;
  return *packed == WeightFormat::kMXFP4 ? WeightKind::kMXFP4 : WeightKind::kNVFP4;
}

constexpr const char* kLinears[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

// A plan for linears that are stored in 4 bits: each keeps its format, and what is stored in more bits stays BF16.
// A kind of linear that is the same in every layer is one pattern. `kinds`: [layers][kLinears].
Status keep_formats(const std::vector<std::array<WeightKind, std::size(kLinears)>>& kinds, PrecisionPlan& plan) {
  int64_t mxfp4 = 0, nvfp4 = 0;
  for (const auto& layer : kinds) {
    mxfp4 += std::count(layer.begin(), layer.end(), WeightKind::kMXFP4);
    nvfp4 += std::count(layer.begin(), layer.end(), WeightKind::kNVFP4);
  }
  const char* preset = mxfp4 + nvfp4 == 0 ? "bf16" : mxfp4 > nvfp4 ? "w4a16-mxfp4" : "w4a16";
  HB_ASSIGN(plan, plan_preset(preset));
  const auto keep = [&](std::string pattern, WeightKind kind) {
    plan.overrides.push_back({std::move(pattern), {"weights"}, LinearPlan{kind}});
  };
  for (size_t part = 0; part < std::size(kLinears); ++part) {
    const WeightKind first = kinds.front()[part];
    const bool same = std::all_of(kinds.begin(), kinds.end(), [&](const auto& layer) { return layer[part] == first; });
    if (same && first != plan.linear.weights) keep(std::string("layers.*.") + kLinears[part], first);
    for (size_t i = 0; !same && i < kinds.size(); ++i)
      if (kinds[i][part] != plan.linear.weights)
        keep("layers." + std::to_string(i) + "." + kLinears[part], kinds[i][part]);
  }
  return {};
}

// The folder's own plan, if it has one.
Result<std::optional<PrecisionPlan>> folder_plan(const ModelSource& source) {
  if (source.folder.empty()) return std::optional<PrecisionPlan>();
  const std::string path = join_path(source.folder, "halfbyte_plan.json");
  HB_ASSIGN(const std::optional<std::string> text, read_small_file(path));
  if (!text) return std::optional<PrecisionPlan>();
  HB_ASSIGN(PrecisionPlan plan, plan_from_json(*text, shown(path)));
  return std::optional(std::move(plan));
}

// Calibrated values hold for one plan: asked for by name or taken from the folder, it keeps them. Returns the text of the
// folder's plan where that is another one with values; else "".
std::string keep_calibrated(const ModelSource& source, PrecisionPlan& plan) {
  const auto own = folder_plan(source);
  if (plan.reset || !own.ok() || !*own || !(*own)->reset) return "";
  PrecisionPlan with_values = plan;
  with_values.reset = (*own)->reset;
  if (!(with_values == **own)) return plan_to_text(**own);
  plan.reset = with_values.reset;
  return "";
}

}  // namespace

WeightFormat weight_format_of(WeightKind kind) {
  switch (kind) {
    case WeightKind::kF32: return WeightFormat::kF32;
    case WeightKind::kBF16: return WeightFormat::kBF16;
    case WeightKind::kFP8: return WeightFormat::kFP8;
    case WeightKind::kNVFP4: return WeightFormat::kNVFP4;
    case WeightKind::kMXFP4: return WeightFormat::kMXFP4;
    case WeightKind::kInt4:
    case WeightKind::kInt3: return WeightFormat::kBF16;
  }
  return WeightFormat::kBF16;
}

ActivationMode activation_mode_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kF32: return ActivationMode::kF32;
    case ActivationKind::kBF16: return ActivationMode::kA16;
    case ActivationKind::kFP8: return ActivationMode::kA8;
    case ActivationKind::kFP4: return ActivationMode::kA4;
  }
  return ActivationMode::kA16;
}

Result<PrecisionPlan> default_plan(const ModelSource& source, const ModelConfig& config) {
  HB_ASSIGN(std::optional<PrecisionPlan> own, folder_plan(source));
  if (own) return *std::move(own);
  HB_ASSIGN(PrecisionPlan plan, plan_preset("w4a16"));
  // A GGUF file has no description but its tensors' types.
  const auto tensors = source.tensors->tensors();
  const bool quantised = source.quant.quantised || std::any_of(tensors.begin(), tensors.end(), [](const TensorInfo& t) {
                           return t.dtype == DType::kGgufNVFP4 || t.dtype == DType::kGgufMXFP4 ||
                                  t.dtype == DType::kU8 || t.dtype == DType::kF8E4M3;
                         });
  if (!quantised) return plan;
  std::vector<std::array<WeightKind, std::size(kLinears)>> kinds(static_cast<size_t>(config.layers));
  for (int64_t i = 0; i < config.layers; ++i) {
    for (size_t part = 0; part < std::size(kLinears); ++part) {
      HB_ASSIGN(const LinearFacts facts, linear_facts(*source.tensors, source.quant, layer_prefix(i) + kLinears[part]));
      kinds[static_cast<size_t>(i)][part] = kept_kind(facts);
    }
  }
  HB_TRY(keep_formats(kinds, plan));
  if (has_linear(*source.tensors, kHead)) {
    HB_ASSIGN(const LinearFacts head, linear_facts(*source.tensors, source.quant, kHead));
    if (head.packed_format()) plan.head.weights = kept_kind(head);
  }
  return plan;
}

Result<LoadPlan> make_load_plan(const ModelSource& source, const std::optional<PrecisionPlan>& plan, Isa isa,
                                std::optional<KvKind> kv) {
  LoadPlan out;
  HB_ASSIGN(out.config, make_model_config(source.config, source.generation));
  out.config_file = source.config.file;
  out.isa = isa;
  if (plan) {
    out.plan = *plan;
  } else {
    HB_ASSIGN(out.plan, default_plan(source, out.config));
  }
  if (kv) out.plan.kv = *kv;
  if (plan) out.calibrated_plan = keep_calibrated(source, out.plan);
  out.notes = source.quant.warnings;
  const std::string from = source.folder.empty() ? source.path : join_path(source.folder, "generation_config.json");
  for (std::string& note : config_notes(source.config, source.generation, shown(from)))
    out.notes.push_back(std::move(note));
  HB_TRY(Planner(source, out).run());
  return out;
}

}  // namespace halfbyte
