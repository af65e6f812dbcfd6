// Runs a fuzz target without libFuzzer: every file of a corpus folder, then the same bytes cut short and changed in
// fixed ways. So each parser sees hostile input in every test run, with any compiler; the real fuzzing is the `fuzz`
// preset.
//
// usage: NAME_smoke FOLDER
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr uint64_t kCuts = 64;
constexpr uint64_t kChanges = 256;

void run(const std::string& bytes) {
  // A copy of exactly this size, so that a sanitizer sees a read past the end.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

// One to four random bytes of `bytes` replaced by edge values or random ones.
std::string changed(std::string bytes, uint64_t number) {
  constexpr uint8_t kEdges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '[', '{'};
  const uint64_t changes = 1 + number % 4;
  for (uint64_t i = 0; i < changes; ++i) {
    const uint64_t draw = halfbyte::philox_draw(number, 0, i);
    const auto value = static_cast<uint8_t>(draw >> 32);
    bytes[draw % bytes.size()] = static_cast<char>((draw >> 60) < 8 ? kEdges[value % std::size(kEdges)] : value);
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "%s holds no files\n", argv[1]);
    return 2;
  }
  size_t runs = 0;
  run("");
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    run(bytes);
    ++runs;
    if (bytes.empty()) continue;
    for (uint64_t i = 0; i < kCuts; ++i, ++runs) run(bytes.substr(0, bytes.size() * i / kCuts));
    for (uint64_t i = 0; i < kChanges; ++i, ++runs) run(changed(bytes, i));
  }
  std::printf("%zu inputs from %zu files\n", runs, files.size());
  return 0;
}
