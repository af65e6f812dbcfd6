# Finds the libraries that Halfbyte stands on, as the distribution packages them; nothing is fetched. Targets:
#   fmt::fmt  CLI11::CLI11  nlohmann_json::nlohmann_json  simdjson::simdjson  Threads::Threads
#   halfbyte::pcre2  halfbyte::utf8proc  halfbyte::libedit   (these three come with pkg-config files only)
# tests and bench look for GTest and benchmark with hb_require themselves.

# hb_require(NAME PACKAGE): find_package(NAME), or an error that says which Debian package to install.
macro(hb_require name debian_package)
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "Halfbyte needs ${name}. On Debian and Ubuntu: apt-get install ${debian_package} (or run scripts/setup for everything)")
  endif()
endmacro()

# hb_require_library(TARGET HEADER LIBRARY PACKAGE): the same for a library without CMake files.
function(hb_require_library target header library debian_package)
  string(TOUPPER HALFBYTE_${target} prefix)
  find_path(${prefix}_INCLUDE ${header})
  find_library(${prefix}_LIBRARY ${library})
  mark_as_advanced(${prefix}_INCLUDE ${prefix}_LIBRARY)
  if(NOT ${prefix}_INCLUDE OR NOT ${prefix}_LIBRARY)
    message(FATAL_ERROR "Halfbyte needs ${target} (${header}, lib${library}). On Debian and Ubuntu: apt-get install ${debian_package} (or run scripts/setup for everything)")
  endif()
  add_library(halfbyte_${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(halfbyte_${target} PROPERTIES IMPORTED_LOCATION ${${prefix}_LIBRARY})
  # The system's own include folder must stay where the compiler puts it: as -isystem it breaks #include_next.
  if(NOT ${prefix}_INCLUDE IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    target_include_directories(halfbyte_${target} SYSTEM INTERFACE ${${prefix}_INCLUDE})
  endif()
  add_library(halfbyte::${target} ALIAS halfbyte_${target})
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
hb_require(fmt libfmt-dev)
hb_require(CLI11 libcli11-dev)
hb_require(nlohmann_json nlohmann-json3-dev)
hb_require(simdjson libsimdjson-dev)
hb_require_library(pcre2 pcre2.h pcre2-8 libpcre2-dev)
hb_require_library(utf8proc utf8proc.h utf8proc libutf8proc-dev)
hb_require_library(libedit editline/readline.h edit libedit-dev)
set_target_properties(halfbyte_pcre2 PROPERTIES INTERFACE_COMPILE_DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8)
