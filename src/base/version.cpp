#include "halfbyte/version.h"

#include "build_facts.h"  // made by cmake/WriteBuildFacts.cmake

namespace halfbyte {

const char* version() {
  return HALFBYTE_VERSION;
}
const char* build_commit() {
  return HALFBYTE_COMMIT;
}

std::string build_compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

}  // namespace halfbyte
