// Writes a model as a Hugging Face folder with ModelOpt NVFP4 tensors, which Halfbyte, vLLM, SGLang and TensorRT-LLM
// read.
//
//   HB_ASSIGN(Recipe recipe, recipe_named("rtn"));
//   HB_ASSIGN(ExportReport report, export_model("Qwen3-0.6B", "Qwen3-0.6B-NVFP4", recipe, {}));
//
// Contents: safetensors shards (with an index if there are several), config.json, hf_quant_config.json when something
// is quantised, generation_config.json, the tokenizer's files (made from the vocabulary for a GGUF input), licence
// files, and halfbyte_plan.json. The same input gives the same bytes, whatever the number of threads.
//
// Quantised: q, k, v, o, gate, up and down of every layer whose width is a multiple of 16; everything else is BF16.
// Without calibration data there are no input scales, so the files say W4A16_NVFP4.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quantize/recipe.h"

namespace halfbyte {

// What happened to one tensor (for a linear: its weight).
struct TensorReport {
  std::string name;    // "model.layers.0.mlp.up_proj.weight"
  std::string format;  // "NVFP4", "BF16"
  std::string shape;   // "[1536, 576]"
  uint64_t bytes = 0;  // in the new files, scales included
  // Signal over error, 10 log10(sum w^2 / sum (w - w')^2), against the source's values; +infinity when nothing changed.
  double snr_db = 0;
};

struct ExportProgress {
  uint64_t done = 0;  // elements of the model written so far, and in total
  uint64_t total = 0;
  const TensorReport* tensor = nullptr;  // the one just written; null at the start
};

struct ExportOptions {
  // Replace an existing folder. Only one that export_model wrote and that nothing was added to.
  bool force = false;
  uint64_t shard_bytes = 5'000'000'000;
  int threads = 0;  // 0: the physical cores this process may use
  // Called from the calling thread. Return false to stop: kCancelled, and nothing is left behind.
  std::function<bool(const ExportProgress&)> progress;
};

struct ExportReport {
  std::string folder;
  std::vector<std::string> files;  // names in the folder, sorted
  std::vector<TensorReport> tensors;
  uint64_t bytes = 0;         // of the weights written
  uint64_t source_bytes = 0;  // of the weights read
  std::vector<std::string> warnings;
};

// `model`: a Hugging Face folder or a .gguf file. `out` must not exist or be empty, unless options.force. All is
// written to a folder OUT.partial-halfbyte beside it, flushed, and renamed at the end; on any failure that folder is
// removed. kInvalidArgument: out exists, lies in the model's folder, or is being written by another process;
// kResourceExhausted: not enough disk space (says how much).
Result<ExportReport> export_model(const std::string& model, const std::string& out, const Recipe& recipe,
                                  const ExportOptions& options = {});

}  // namespace halfbyte
