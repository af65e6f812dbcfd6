// Encodes texts for the Python tests: reads messages from standard input, each a 32-bit length (little endian) and as
// many bytes of UTF-8; writes for each the 32-bit count of ids and the ids. Stops at the end of the input.
//
//   tokenize_lines tokenizer.json [--no-special] [--add-bos]
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "text/tokenizer.h"

int main(int argc, char** argv) {
  halfbyte::EncodeOptions options;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-special") == 0) {
      options.special_tokens = false;
    } else if (std::strcmp(argv[i], "--add-bos") == 0) {
      options.add_bos = true;
    } else {
      path = argv[i];
    }
  }
  std::ifstream file(path, std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  const auto tokenizer = halfbyte::Tokenizer::from_tokenizer_json(json, path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 2;
  }
  uint32_t length = 0;
  std::string text;
  std::vector<int32_t> ids;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    text.resize(length);
    if (std::fread(text.data(), 1, length, stdin) != length) return 2;
    ids.clear();
    if (const halfbyte::Status status = (*tokenizer)->encode(text, options, ids); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      return 2;
    }
    const auto count = static_cast<uint32_t>(ids.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}
