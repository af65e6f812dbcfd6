// Everything a model's folder or GGUF file says, opened in one call.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "io/hf_config.h"
#include "io/quant_config.h"
#include "io/tensor_source.h"
#include "io/tokenizer_source.h"

namespace halfbyte {

struct ModelSource {
  std::string path;    // as given
  std::string folder;  // where the files lie ("" for a GGUF file)
  std::shared_ptr<const TensorSource> tensors;
  HfConfig config;
  GenerationConfig generation;
  QuantConfig quant;
  std::string kind() const;  // "Hugging Face folder", "ModelOpt NVFP4 folder", "GGUF v3"
};

// The tokenizer is opened apart (open_tokenizer_source), so that a folder without one can still be inspected.
Result<ModelSource> open_model_source(const std::string& path);

}  // namespace halfbyte
