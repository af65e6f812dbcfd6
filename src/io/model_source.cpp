#include "io/model_source.h"

#include <utility>

#include "io/gguf.h"
#include "io/locate.h"
#include "io/message.h"

namespace halfbyte {

std::string ModelSource::kind() const {
  if (folder.empty()) return tensors->describe();
  if (quant.quantised) {
    const bool named = !quant.algorithm.empty() && quant.algorithm != quant.scheme;
    return quant.scheme + (named ? " " + shown(quant.algorithm) : "") + " folder";
  }
  return "Hugging Face folder";
}

Result<ModelSource> open_model_source(const std::string& path) {
  HB_ASSIGN(const Location location, locate(path));
  ModelSource source;
  source.path = path;
  if (location.kind == Location::Kind::kGguf) {
    HB_ASSIGN(GgufModel model, open_gguf(location.files.front()));
    source.tensors = std::move(model.tensors);
    source.config = std::move(model.config);
    source.generation = std::move(model.generation);
    return source;
  }
  source.folder = location.folder;
  // The configuration first: "this architecture is not supported" is the more useful message when both are wrong.
  if (location.kind != Location::Kind::kConfigOnly) {
    HB_ASSIGN(source.config, read_hf_config(location.folder));
  }
  HB_ASSIGN(source.tensors, open_tensor_source(path));
  HB_ASSIGN(source.generation, read_generation_config(location.folder));
  HB_ASSIGN(source.quant, read_quant_config(location.folder));
  return source;
}

}  // namespace halfbyte
