// Where files lie that can be made anew.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace halfbyte {

// $XDG_CACHE_HOME/halfbyte, else ~/.cache/halfbyte; empty when neither variable is set.
inline std::filesystem::path user_cache() {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::filesystem::path(value) : std::filesystem::path();
  };
  if (const auto cache = value_of("XDG_CACHE_HOME"); !cache.empty()) return cache / "halfbyte";
  const auto home = value_of("HOME");
  return home.empty() ? home : home / ".cache" / "halfbyte";
}

}  // namespace halfbyte
