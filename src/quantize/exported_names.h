// What a folder written by export_model holds, and how it is told from one that somebody else made. Private to
// src/quantize.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace halfbyte {

// Files of the original folder that are taken over as they are.
inline constexpr std::array<std::string_view, 14> kCopiedFiles = {"tokenizer.json",
                                                                  "tokenizer_config.json",
                                                                  "special_tokens_map.json",
                                                                  "added_tokens.json",
                                                                  "vocab.json",
                                                                  "merges.txt",
                                                                  "tokenizer.model",
                                                                  "chat_template.jinja",
                                                                  "chat_template.json",
                                                                  "generation_config.json",
                                                                  "LICENSE",
                                                                  "LICENSE.txt",
                                                                  "NOTICE",
                                                                  "USE_POLICY.md"};

// How the header of each safetensors file begins. Readers ignore what they do not know in it; `format` is what
// transformers refuses files without.
inline constexpr std::string_view kOwnHeader = R"({"__metadata__":{"format":"pt","producer":"halfbyte"})";

inline bool is_exported_name(std::string_view name) {
  constexpr std::array<std::string_view, 5> kWritten = {"config.json", "generation_config.json", "halfbyte_plan.json",
                                                        "hf_quant_config.json", "model.safetensors.index.json"};
  const auto among = [name](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return among(kWritten) || among(kCopiedFiles) || (name.starts_with("model") && name.ends_with(".safetensors"));
}

}  // namespace halfbyte
