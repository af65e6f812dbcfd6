#include "quantize/exporter.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "formats/bf16.h"
#include "halfbyte/plan.h"
#include "io/load_linear.h"
#include "io/model_source.h"
#include "quantize/output_folder.h"
#include "support/expect_status.h"
#include "support/gguf_file.h"
#include "support/temp_folder.h"
#include "support/tiny_folder.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
using testing::expect_failure;
using testing::read_file;
using testing::TempFolder;
using testing::TinyModel;
using testing::write_tiny_folder;

Recipe recipe(const char* name) {
  return *recipe_named(name);
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    out[entry.path().filename().string()] = read_file(entry.path().string());
  return out;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.insert(entry.path().filename().string());
  return out;
}

// Every linear of `written` equals a direct rounding of the same linear of `original`, in every byte; the rest is BF16.
void expect_rtn_of(const ModelSource& original, const ModelSource& written) {
  ThreadPool pool(1);
  size_t linears = 0;
  for (const TensorInfo& tensor : original.tensors->tensors()) {
    const TensorInfo* now = written.tensors->find(tensor.name);
    ASSERT_NE(now, nullptr) << tensor.name;
    HB_ASSERT_OK(const std::vector<float> before, read_all(*original.tensors, tensor));
    if (now->dtype != DType::kU8) {
      EXPECT_EQ(now->dtype, DType::kBF16) << tensor.name;
      HB_ASSERT_OK(const std::vector<float> after, read_all(*written.tensors, *now));
      for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], BF16::round(before[i])) << tensor.name << " " << i;
      continue;
    }
    ++linears;
    const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
    std::vector<std::string> warnings;
    HB_ASSERT_OK(const QuantLinear loaded, load_quant_linear(*written.tensors, written.quant, module, &warnings));
    EXPECT_TRUE(warnings.empty()) << warnings.front();
    // The group's amax, recovered from its members in the original.
    float amax = 0;
    const std::string parent = module.substr(0, module.rfind('.'));
    const std::string last = module.substr(module.rfind('.') + 1);
    std::vector<std::string> group = {last};
    if (last == "q_proj" || last == "k_proj" || last == "v_proj") group = {"q_proj", "k_proj", "v_proj"};
    if (last == "gate_proj" || last == "up_proj") group = {"gate_proj", "up_proj"};
    for (const std::string& member : group) {
      HB_ASSERT_OK(const std::vector<float> w,
                   read_all(*original.tensors, *original.tensors->find(parent + "." + member + ".weight")));
      for (const float v : w) amax = std::max(amax, std::abs(v));
    }
    const WeightSource source = weight_source(module, before.data(), tensor.shape[0], tensor.shape[1]);
    HB_ASSERT_OK(const QuantLinear expected,
                 quantize_weight(source, {.format = WeightFormat::kNVFP4, .amax = amax}, pool));
    EXPECT_EQ(loaded.tensor_scale, expected.tensor_scale) << module;
    EXPECT_EQ(loaded.input_scale, std::nullopt);
    const auto equal = [](const Buffer& a, const Buffer& b) { return std::ranges::equal(a.bytes(), b.bytes()); };
    EXPECT_TRUE(equal(loaded.codes, expected.codes)) << module;
    EXPECT_TRUE(equal(loaded.block_scales, expected.block_scales)) << module;
  }
  EXPECT_EQ(linears, static_cast<size_t>(7 * original.config.num_layers));
}

class Export : public ::testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(Export, RtnOfAFolderReadsBackEqual) {
  TinyModel m;
  m.arch = "qwen3";
  m.qk_norm = true;
  m.tied = false;
  write_tiny_folder(folder_, "model", m);
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", folder_ / "out", recipe("rtn")));
  HB_ASSERT_OK(const ModelSource original, open_model_source(folder_ / "model"));
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  EXPECT_EQ(written.kind(), "ModelOpt W4A16_NVFP4 folder");
  expect_rtn_of(original, written);
  EXPECT_EQ(report.tensors.size(), original.tensors->tensors().size());
  EXPECT_EQ(report.files,
            (std::vector<std::string>{"LICENSE", "chat_template.jinja", "config.json", "generation_config.json",
                                      "halfbyte_plan.json", "hf_quant_config.json", "model.safetensors",
                                      "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(std::vector<std::string>(report.files), [&] {
    const auto names = names_in(folder_ / "out");
    return std::vector<std::string>(names.begin(), names.end());
  }());
  // Copies are copies; the model card described the original.
  for (const char* name :
       {"LICENSE", "chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_file(folder_ / "out" + "/" + name), read_file(folder_ / "model" + "/" + name)) << name;
  }
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"model", "out"}));
}

// checkpoint-formats.md section 8: what other engines need.
TEST_F(Export, ConfigurationFiles) {
  write_tiny_folder(folder_, "model");
  ASSERT_TRUE(export_model(folder_ / "model", folder_ / "out", recipe("rtn")).ok());
  const auto files = contents(folder_ / "out");
  const std::string& config = files.at("config.json");
  for (const char* part : {"\"quant_method\": \"modelopt\"", "\"quant_algo\": \"W4A16_NVFP4\"",
                           "\"kv_cache_scheme\": null", "\"ignore\": [\n      \"lm_head\"", "\"group_size\": 16",
                           "\"torch_dtype\": \"bfloat16\"", "\"made_by\": \"a test\""}) {
    EXPECT_THAT(config, ::testing::HasSubstr(part));
  }
  EXPECT_THAT(config, ::testing::Not(::testing::HasSubstr("input_activations")));
  const std::string& hf = files.at("hf_quant_config.json");
  for (const char* part : {"\"quant_algo\": \"W4A16_NVFP4\"", "\"kv_cache_quant_algo\": null", "\"group_size\": 16",
                           "\"exclude_modules\""})
    EXPECT_THAT(hf, ::testing::HasSubstr(part));
  // The two files agree, each alone says the same.
  HB_ASSERT_OK(const QuantConfig both, parse_quant_config(config, hf));
  EXPECT_TRUE(both.warnings.empty());
  for (const auto& alone : {parse_quant_config(config, ""), parse_quant_config("", hf)}) {
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(alone->for_module("model.layers.0.mlp.up_proj"), ModuleQuant::kNVFP4W4A16);
    EXPECT_EQ(alone->for_module("lm_head"), ModuleQuant::kNone);
  }
  HB_ASSERT_OK(const PrecisionPlan plan, plan_from_json(files.at("halfbyte_plan.json"), "halfbyte_plan.json"));
  EXPECT_EQ(plan, *plan_preset("w4a16"));
  // Tensors: ModelOpt's names, scalars without dimensions, scales in 0x01..0x7E, q/k/v and gate/up share a tensor
  // scale.
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  const auto scale2 = [&](const std::string& module) {
    const TensorInfo* t = written.tensors->find("model.layers.1." + module + ".weight_scale_2");
    EXPECT_EQ(t->dtype, DType::kF32);
    EXPECT_EQ(t->shape.rank(), 0u);
    return read_all(*written.tensors, *t)->at(0);
  };
  EXPECT_EQ(scale2("self_attn.q_proj"), scale2("self_attn.k_proj"));
  EXPECT_EQ(scale2("self_attn.q_proj"), scale2("self_attn.v_proj"));
  EXPECT_EQ(scale2("mlp.gate_proj"), scale2("mlp.up_proj"));
  for (const TensorInfo& t : written.tensors->tensors()) {
    EXPECT_FALSE(t.name.ends_with(".input_scale"));
    if (!t.name.ends_with(".weight_scale")) continue;
    EXPECT_EQ(t.dtype, DType::kF8E4M3);
    HB_ASSERT_OK(const auto bytes, written.tensors->bytes(t));
    for (const std::byte b : bytes) ASSERT_TRUE(b >= std::byte{1} && b <= std::byte{0x7E}) << t.name;
  }
}

TEST_F(Export, SameBytesWithAnyNumberOfThreads) {
  write_tiny_folder(folder_, "model");
  std::map<std::string, std::string> first;
  for (const int threads : {1, 2, 3}) {
    ExportOptions options;
    options.threads = threads;
    const std::string out = folder_ / ("out" + std::to_string(threads));
    HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", out, recipe("rtn"), options));
    if (first.empty()) first = contents(out);
    EXPECT_EQ(contents(out), first) << threads;
  }
}

TEST_F(Export, Bf16) {
  write_tiny_folder(folder_, "model", {}, "F32");
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", folder_ / "out", recipe("bf16")));
  HB_ASSERT_OK(const ModelSource original, open_model_source(folder_ / "model"));
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  EXPECT_EQ(written.kind(), "Hugging Face folder");
  EXPECT_EQ(names_in(folder_ / "out").count("hf_quant_config.json"), 0u);
  EXPECT_EQ(*plan_from_json(read_file(folder_ / "out/halfbyte_plan.json"), "p"), *plan_preset("bf16"));
  for (const TensorInfo& t : original.tensors->tensors()) {
    HB_ASSERT_OK(const auto before, read_all(*original.tensors, t));
    HB_ASSERT_OK(const auto after, read_all(*written.tensors, *written.tensors->find(t.name)));
    for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], BF16::round(before[i]));
  }
  for (const TensorReport& t : report.tensors) {
    EXPECT_EQ(t.format, "BF16");
    EXPECT_GT(t.snr_db, 45.0) << t.name;  // 8 significant bits
    EXPECT_LT(t.snr_db, 65.0) << t.name;
  }
  // From BF16 nothing changes.
  write_tiny_folder(folder_, "half");
  HB_ASSERT_OK(const ExportReport exact, export_model(folder_ / "half", folder_ / "out2", recipe("bf16")));
  for (const TensorReport& t : exact.tensors) EXPECT_TRUE(std::isinf(t.snr_db)) << t.name;
}

TEST_F(Export, ErrorIsThatOfRounding) {
  write_tiny_folder(folder_, "model");
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", folder_ / "out", recipe("rtn")));
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  HB_ASSERT_OK(const ModelSource original, open_model_source(folder_ / "model"));
  size_t quantised = 0;
  for (const TensorReport& t : report.tensors) {
    if (t.format != "NVFP4") continue;
    ++quantised;
    const std::string module = t.name.substr(0, t.name.size() - 7);
    HB_ASSERT_OK(const auto before, read_all(*original.tensors, *original.tensors->find(t.name)));
    HB_ASSERT_OK(const QuantLinear w, load_quant_linear(*written.tensors, written.quant, module));
    double signal = 0, noise = 0;
    std::vector<float> row(static_cast<size_t>(w.k));
    for (int64_t n = 0; n < w.n; ++n) {
      dequantize_row(w, n, row);
      for (int64_t k = 0; k < w.k; ++k) {
        const double x = before[static_cast<size_t>(n * w.k + k)];
        signal += x * x;
        noise += (x - row[static_cast<size_t>(k)]) * (x - row[static_cast<size_t>(k)]);
      }
    }
    EXPECT_NEAR(t.snr_db, 10 * std::log10(signal / noise), 1e-9) << t.name;
    EXPECT_GT(t.snr_db, 18.0);  // uniform values are about 21 dB
  }
  EXPECT_EQ(quantised, 14u);
}

// SmolLM2's width 576 fits; others do not: they stay BF16, the lists and the plan say so.
TEST_F(Export, WidthsThatAreNoMultipleOf16) {
  TinyModel m;
  m.hidden = 40;
  write_tiny_folder(folder_, "model", m);
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", folder_ / "out", recipe("rtn")));
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  ASSERT_EQ(report.warnings.size(), 10u);  // q, k, v, gate, up of two layers read 40 values
  EXPECT_THAT(report.warnings.front(), ::testing::HasSubstr("stays BF16, its width 40 is no multiple of 16"));
  HB_ASSERT_OK(const PrecisionPlan plan, plan_from_json(read_file(folder_ / "out/halfbyte_plan.json"), "p"));
  for (const auto& [module, quant] :
       std::initializer_list<std::pair<const char*, ModuleQuant>>{{"self_attn.q_proj", ModuleQuant::kNone},
                                                                  {"mlp.up_proj", ModuleQuant::kNone},
                                                                  {"self_attn.o_proj", ModuleQuant::kNVFP4W4A16},
                                                                  {"mlp.down_proj", ModuleQuant::kNVFP4W4A16}}) {
    std::vector<std::string> warnings;
    const std::string name = std::string("layers.1.") + module;
    HB_ASSERT_OK(const LinearFacts facts, linear_facts(*written.tensors, written.quant, "model." + name, &warnings));
    EXPECT_EQ(facts.quant, quant) << module;
    EXPECT_TRUE(warnings.empty());
    EXPECT_EQ(plan.linear_for(name).weights, quant == ModuleQuant::kNone ? WeightKind::kBF16 : WeightKind::kNVFP4)
        << module;
  }
}

TEST_F(Export, FromGguf) {
  TinyModel m;
  m.qkv_bias = true;
  folder_.write("m.gguf", testing::tiny_gguf(m));
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "m.gguf", folder_ / "out", recipe("rtn")));
  HB_ASSERT_OK(const ModelSource original, open_model_source(folder_ / "m.gguf"));
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  expect_rtn_of(original, written);
  const HfConfig &a = original.config, &b = written.config;
  EXPECT_EQ(a.architectures, b.architectures);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.num_heads, b.num_heads);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.attention_bias, b.attention_bias);
  EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
  EXPECT_EQ(a.eos_token_ids, b.eos_token_ids);
  EXPECT_EQ(b.dtype, "bfloat16");
  EXPECT_EQ(original.generation.eos_token_ids, written.generation.eos_token_ids);
  HB_ASSERT_OK(const TokenizerSource tokenizer, open_tokenizer_source(folder_ / "out"));
  EXPECT_EQ(tokenizer.eos_token, "<|end|>");
  ASSERT_EQ(tokenizer.added_tokens.size(), 1u);
  EXPECT_TRUE(tokenizer.added_tokens[0].special);
}

TEST_F(Export, Shards) {
  write_tiny_folder(folder_, "model");
  ExportOptions options;
  options.shard_bytes = 4000;
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", folder_ / "out", recipe("rtn"), options));
  HB_ASSERT_OK(const ModelSource original, open_model_source(folder_ / "model"));
  HB_ASSERT_OK(const ModelSource written, open_model_source(folder_ / "out"));
  expect_rtn_of(original, written);
  const auto names = names_in(folder_ / "out");
  EXPECT_EQ(names.count("model.safetensors"), 0u);
  EXPECT_EQ(names.count("model.safetensors.index.json"), 1u);
  size_t shards = 0;
  for (const std::string& name : names) shards += name.ends_with(".safetensors") ? 1 : 0;
  EXPECT_GT(shards, 3u);
  EXPECT_EQ(written.tensors->describe(), "Hugging Face folder, " + std::to_string(shards) + " safetensors files");
}

TEST_F(Export, ProgressCoversTheModel) {
  write_tiny_folder(folder_, "model");
  ExportOptions options;
  std::vector<uint64_t> done;
  std::vector<std::string> tensors;
  uint64_t total = 0;
  options.progress = [&](const ExportProgress& p) {
    done.push_back(p.done);
    total = p.total;
    if (p.tensor != nullptr) tensors.push_back(p.tensor->name);
    return true;
  };
  HB_ASSERT_OK(const ExportReport report, export_model(folder_ / "model", folder_ / "out", recipe("rtn"), options));
  EXPECT_EQ(done.front(), 0u);
  EXPECT_EQ(done.back(), total);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(tensors.size(), report.tensors.size());
}

// Stopped anywhere, nothing is left.
TEST_F(Export, Cancellation) {
  write_tiny_folder(folder_, "model");
  for (int stop = 0; stop <= 20; stop += 2) {  // 20 tensors and the start
    ExportOptions options;
    int calls = 0;
    options.progress = [&](const ExportProgress&) { return calls++ < stop; };
    expect_failure(export_model(folder_ / "model", folder_ / "out", recipe("rtn"), options), StatusCode::kCancelled,
                   {"stopped"});
    EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"model"}) << stop;
  }
}

TEST_F(Export, ExistingFolders) {
  write_tiny_folder(folder_, "model");
  const auto invalid = StatusCode::kInvalidArgument;
  ExportOptions force;
  force.force = true;
  const std::string out = folder_ / "out";
  fs::create_directory(out);
  EXPECT_TRUE(export_model(folder_ / "model", out + "/", recipe("rtn")).ok());  // empty: used
  expect_failure(export_model(folder_ / "model", out, recipe("rtn")), invalid,
                 {out, "exists and is not empty", "--force"});
  EXPECT_TRUE(export_model(folder_ / "model", out, recipe("bf16"), force).ok());
  EXPECT_EQ(names_in(out).count("hf_quant_config.json"), 0u);
  EXPECT_TRUE(export_model(folder_ / "model", out, recipe("rtn"), force).ok());
  // What Halfbyte did not write is never removed.
  folder_.write("out/thesis.txt", "years of work");
  expect_failure(export_model(folder_ / "model", out, recipe("rtn"), force), invalid,
                 {out, "thesis.txt", "not replaced"});
  fs::remove(out + "/thesis.txt");
  fs::create_directory(out + "/sub");
  expect_failure(export_model(folder_ / "model", out, recipe("rtn"), force), invalid, {out, "sub", "not replaced"});
  fs::remove(out + "/sub");
  fs::create_directory(folder_ / "mine");
  folder_.write("mine/thesis.txt", "years of work");
  expect_failure(export_model(folder_ / "model", folder_ / "mine", recipe("rtn"), force), invalid,
                 {"thesis.txt", "not replaced"});
  // A downloaded model in which `halfbyte calibrate` has put a plan is not its own either.
  write_tiny_folder(folder_, "downloaded");
  fs::remove(folder_ / "downloaded/README.md");
  folder_.write("downloaded/halfbyte_plan.json", "{}");
  const auto downloaded = contents(folder_ / "downloaded");
  expect_failure(export_model(folder_ / "model", folder_ / "downloaded", recipe("rtn"), force), invalid,
                 {"model.safetensors", "was not written by Halfbyte", "not replaced"});
  EXPECT_EQ(contents(folder_ / "downloaded"), downloaded);
  fs::remove(folder_ / "downloaded/model.safetensors");
  expect_failure(export_model(folder_ / "model", folder_ / "downloaded", recipe("rtn"), force), invalid,
                 {"no weights that Halfbyte wrote"});
  fs::remove_all(folder_ / "downloaded");
  EXPECT_EQ(read_file(folder_ / "mine/thesis.txt"), "years of work");
  folder_.write("file", "x");
  expect_failure(export_model(folder_ / "model", folder_ / "file", recipe("rtn"), force), invalid, {"is not a folder"});
  fs::create_directory_symlink(out, folder_ / "link");
  expect_failure(export_model(folder_ / "model", folder_ / "link", recipe("rtn"), force), invalid, {"is not a folder"});
  expect_failure(export_model(folder_ / "model", "", recipe("rtn")), invalid, {"no name"});
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"file", "link", "mine", "model", "out"}));
}

TEST_F(Export, NeverTouchesTheModel) {
  write_tiny_folder(folder_, "model");
  folder_.write("model/halfbyte_plan.json", "{}");
  const auto before = contents(folder_ / "model");
  ExportOptions force;
  force.force = true;
  const auto invalid = StatusCode::kInvalidArgument;
  expect_failure(export_model(folder_ / "model", folder_ / "model", recipe("rtn"), force), invalid,
                 {"the model's own folder"});
  expect_failure(export_model(folder_ / "model", folder_ / "model/../model/", recipe("rtn"), force), invalid,
                 {"the model's own folder"});
  expect_failure(export_model(folder_ / "model", folder_ / "model/out", recipe("rtn")), invalid,
                 {"lies in the model's own folder"});
  expect_failure(export_model(folder_ / "model", folder_.path(), recipe("rtn"), force), invalid, {"holds the model"});
  EXPECT_EQ(contents(folder_ / "model"), before);
}

TEST_F(Export, MakesParentFolders) {
  write_tiny_folder(folder_, "model");
  EXPECT_TRUE(export_model(folder_ / "model", folder_ / "a/b/out", recipe("bf16")).ok());
  EXPECT_TRUE(open_model_source(folder_ / "a/b/out").ok());
}

TEST_F(Export, Refusals) {
  write_tiny_folder(folder_, "model");
  ASSERT_TRUE(export_model(folder_ / "model", folder_ / "out", recipe("rtn")).ok());
  expect_failure(export_model(folder_ / "out", folder_ / "again", recipe("rtn")), StatusCode::kUnsupported,
                 {"already quantised (W4A16_NVFP4", "start from the BF16 model"});
  expect_failure(export_model(folder_ / "none", folder_ / "again", recipe("rtn")), StatusCode::kNotFound, {"none"});
  expect_failure(recipe_named("gptq"), StatusCode::kInvalidArgument, {"'gptq'", "bf16, rtn"});
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"model", "out"}));
}

// A NaN in the weights: where it is, and nothing half-written.
TEST_F(Export, NaNWeights) {
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
    write_tiny_folder(folder_, "model");
    const std::string path = folder_ / "model/model.safetensors";
    HB_ASSERT_OK(const auto source, open_tensor_source(path));
    HB_ASSERT_OK(const auto bytes, source->bytes(*source->find(name)));
    std::string file = read_file(path);
    HB_ASSERT_OK(const auto first, source->bytes(*source->find("model.embed_tokens.weight")));
    // The embedding is the first tensor of the file.
    const size_t data = file.size() - [&] {
      size_t total = 0;
      for (const auto& t : source->tensors()) total += t.bytes;
      return total;
    }();
    const size_t at = data + static_cast<size_t>(bytes.data() - first.data()) + 2 * 5;
    file[at] = '\xC0';
    file[at + 1] = '\x7F';
    folder_.write("model/model.safetensors", file);
    expect_failure(export_model(folder_ / "model", folder_ / "out", recipe("rtn")), StatusCode::kInvalidData,
                   {std::string(name).substr(0, std::string(name).size() - 7), "row 0", "column 5"});
    EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"model"});
  }
}

// Of two that write one folder the second is refused before its work; what a killed one left is in nobody's way.
TEST_F(Export, TwoAtOnceAndWhatAKilledOneLeft) {
  write_tiny_folder(folder_, "model");
  const std::string model = folder_ / "model", out = folder_ / "out", partial = out + ".partial-halfbyte";
  HB_ASSERT_OK(auto first, OutputFolder::create(out, /*force=*/false));
  ASSERT_TRUE(first->write_text("model.safetensors", "half a file").ok());
  for (const bool force : {false, true}) {
    ExportOptions options;
    options.force = force;
    expect_failure(export_model(model, out, recipe("rtn"), options), StatusCode::kInvalidArgument,
                   {out, "another halfbyte quantize is writing it", partial});
    EXPECT_EQ(read_file(partial + "/model.safetensors"), "half a file");
  }
  ASSERT_TRUE(first->commit().ok());
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"model", "out"}));
  expect_failure(export_model(model, out, recipe("rtn")), StatusCode::kInvalidArgument, {out, "not empty"});
  fs::remove_all(out);
  // A folder that nobody holds: ours is cleared, anything else stays.
  fs::create_directory(partial);
  folder_.write("out.partial-halfbyte/model-00001-of-00002.safetensors", "half a file");
  folder_.write("out.partial-halfbyte/thesis.txt", "x");
  expect_failure(export_model(model, out, recipe("rtn")), StatusCode::kInvalidArgument, {partial, "thesis.txt"});
  EXPECT_EQ(names_in(partial), (std::set<std::string>{"model-00001-of-00002.safetensors", "thesis.txt"}));
  fs::remove(partial + "/thesis.txt");
  HB_ASSERT_OK(const ExportReport report, export_model(model, out, recipe("rtn")));
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"model", "out"}));
  EXPECT_FALSE(names_in(out).contains("model-00001-of-00002.safetensors"));
}

// Exports under a limit on file sizes; exit code 0 when that fails and nothing is left.
[[noreturn]] void export_with_little_space(const std::string& folder) {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {6000, 6000};
  setrlimit(RLIMIT_FSIZE, &limit);
  ExportOptions options;
  options.threads = 1;
  const auto report = export_model(folder + "/model", folder + "/out", recipe("rtn"), options);
  const bool clean = names_in(folder) == std::set<std::string>{"model"};
  std::fprintf(stderr, "%s", report.status().message().c_str());
  std::exit(report.ok() ? 1 : clean ? 0 : 2);
}

// A disk that fills up leaves nothing behind.
TEST_F(Export, WriteErrors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  write_tiny_folder(folder_, "model");
  EXPECT_EXIT(export_with_little_space(folder_.path()), ::testing::ExitedWithCode(0),
              "model.safetensors: cannot be written: File too large");
}

}  // namespace
}  // namespace halfbyte
