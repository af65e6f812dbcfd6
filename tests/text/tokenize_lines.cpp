// The tokenizer as a program that the Python tests and bench/tokenizer talk to. A message is a 32-bit count (little
// endian) and as many bytes of UTF-8, or as many 32-bit ids. Reads messages from standard input until it ends and
// answers each.
//
//   tokenize_lines tokenizer.json [--no-special] [--add-bos]   text in, ids out
//   tokenize_lines tokenizer.json --decode [--skip-special]    ids in, text out
//   tokenize_lines tokenizer.json --time ROUNDS                text in; prints the processor seconds of loading and,
//   for
//                                                              each round, of encoding all messages; the number of ids
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace {

using halfbyte::Tokenizer;

struct Settings {
  std::string path;
  halfbyte::EncodeOptions options;
  bool decode = false;
  bool skip_special = false;
  int rounds = 0;
};

template <class T>
bool read_message(std::vector<T>& message) {
  uint32_t count = 0;
  if (std::fread(&count, sizeof count, 1, stdin) != 1) return false;
  message.resize(count);
  if (count == 0) return true;
  return std::fread(message.data(), sizeof(T), count, stdin) == count;
}

void write_message(const void* data, size_t count, size_t size) {
  const auto n = static_cast<uint32_t>(count);
  std::fwrite(&n, sizeof n, 1, stdout);
  if (count > 0) std::fwrite(data, size, count, stdout);
}

int fail(const halfbyte::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 2;
}

// Processor time of this one-threaded program: what else runs on the machine does not count.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

int encode_all(const Tokenizer& tokenizer, const Settings& settings) {
  std::vector<char> text;
  std::vector<int32_t> ids;
  while (read_message(text)) {
    ids.clear();
    const halfbyte::Status status = tokenizer.encode({text.data(), text.size()}, settings.options, ids);
    if (!status.ok()) return fail(status);
    write_message(ids.data(), ids.size(), sizeof(int32_t));
  }
  return 0;
}

int decode_all(const Tokenizer& tokenizer, const Settings& settings) {
  std::vector<int32_t> ids;
  while (read_message(ids)) {
    const std::string text = halfbyte::detokenize(tokenizer, ids, settings.skip_special);
    write_message(text.data(), text.size(), 1);
  }
  return 0;
}

int time_all(const Tokenizer& tokenizer, const Settings& settings, double load_seconds) {
  std::vector<std::string> texts;
  for (std::vector<char> text; read_message(text);) texts.emplace_back(text.begin(), text.end());
  std::printf("%.6f", load_seconds);
  size_t total = 0;
  for (int round = 0; round < settings.rounds; ++round) {
    total = 0;
    const double start = cpu_seconds();
    for (const std::string& text : texts) {
      const auto ids = tokenizer.encode(text, settings.options);
      if (!ids.ok()) return fail(ids.status());
      total += ids->size();
    }
    std::printf(" %.6f", cpu_seconds() - start);
  }
  std::printf(" %zu\n", total);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--no-special") {
      settings.options.special_tokens = false;
    } else if (argument == "--add-bos") {
      settings.options.add_bos = true;
    } else if (argument == "--decode") {
      settings.decode = true;
    } else if (argument == "--skip-special") {
      settings.skip_special = true;
    } else if (argument == "--time" && i + 1 < argc) {
      settings.rounds = std::atoi(argv[++i]);
    } else {
      settings.path = argument;
    }
  }
  const double start = cpu_seconds();
  std::ifstream file(settings.path, std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  const auto tokenizer = Tokenizer::from_tokenizer_json(json, settings.path);
  if (!tokenizer.ok()) return fail(tokenizer.status());
  if (settings.rounds > 0) return time_all(**tokenizer, settings, cpu_seconds() - start);
  return settings.decode ? decode_all(**tokenizer, settings) : encode_all(**tokenizer, settings);
}
