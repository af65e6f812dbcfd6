// Reads two texts as hexadecimal UTF-8 in a line and prints their ratio as a double's bits: what sequence_ratio_test.py compares.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "eval/sequence_ratio.h"

namespace {

std::string bytes_of(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) return 2;
    const double ratio = halfbyte::sequence_ratio(bytes_of(line.substr(0, tab)), bytes_of(line.substr(tab + 1)));
    uint64_t bits = 0;
    std::memcpy(&bits, &ratio, sizeof bits);
    std::printf("%016" PRIx64 "\n", bits);
  }
}
