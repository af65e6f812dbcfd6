// The exporter as a program, for test_export.py.
//   export_tool model MODEL OUT RECIPE [SHARD_BYTES]   prints "name format shape snr_db" a line
//   export_tool tokenizer GGUF OUT.json
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "quantize/export_tokenizer.h"
#include "quantize/exporter.h"

namespace {

int fail(const halfbyte::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 2;
}

int export_one(const std::string& model, const std::string& out, const char* recipe_name, uint64_t shard_bytes) {
  const auto recipe = halfbyte::recipe_named(recipe_name);
  if (!recipe.ok()) return fail(recipe.status());
  halfbyte::ExportOptions options;
  if (shard_bytes > 0) options.shard_bytes = shard_bytes;
  const auto report = halfbyte::export_model(model, out, *recipe, options);
  if (!report.ok()) return fail(report.status());
  for (const auto& tensor : report->tensors) {
    std::printf("%s\t%s\t%s\t%.6f\n", tensor.name.c_str(), tensor.format.c_str(), tensor.shape.c_str(), tensor.snr_db);
  }
  return 0;
}

int write_tokenizer(const std::string& gguf, const std::string& out) {
  const auto source = halfbyte::open_tokenizer_source(gguf);
  if (!source.ok()) return fail(source.status());
  const auto json = halfbyte::make_tokenizer_json(*source->vocab);
  if (!json.ok()) return fail(json.status());
  std::ofstream(out, std::ios::binary) << *json;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "model" && (argc == 5 || argc == 6)) {
    return export_one(argv[2], argv[3], argv[4], argc == 6 ? std::strtoull(argv[5], nullptr, 10) : 0);
  }
  if (mode == "tokenizer" && argc == 4) return write_tokenizer(argv[2], argv[3]);
  std::fprintf(stderr, "usage: see export_tool.cpp\n");
  return 2;
}
