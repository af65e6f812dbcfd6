# One helper each for a library, a test and a fuzz target, so that every folder's list stays short.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(HALFBYTE_CCACHE ccache)
if(HALFBYTE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HALFBYTE_CCACHE})
endif()

# Options that every target of the project gets, and nobody who links it.
add_library(halfbyte_options INTERFACE)
target_compile_options(halfbyte_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
  # The numerics contract (docs/numerics.md) fixes every rounding: the compiler may not fuse a*b+c on its own.
  -ffp-contract=off
  # GCC's false alarms on std::optional depend on the inlining of the day.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  # GCC 12 at -O3 takes "text" + std::string for an overlapping copy (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict>)
if(HALFBYTE_WERROR)
  target_compile_options(halfbyte_options INTERFACE -Werror)
endif()
if(HALFBYTE_SANITIZE)
  target_compile_options(halfbyte_options INTERFACE -fsanitize=${HALFBYTE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(halfbyte_options INTERFACE -fsanitize=${HALFBYTE_SANITIZE})
  if(HALFBYTE_SANITIZE MATCHES "undefined")
    target_compile_options(halfbyte_options INTERFACE -fno-sanitize-recover=all)
  endif()
endif()

# hb_library(NAME SRCS ... DEPS ... SYSTEM_DEPS ...): library hb_NAME of the folder src/NAME.
# DEPS are names of folders. The layers are checked by tests/layers/include_table_test.py, not by the linker.
function(hb_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;SYSTEM_DEPS" ${ARGN})
  add_library(hb_${name} STATIC ${ARG_SRCS})
  add_library(halfbyte::${name} ALIAS hb_${name})
  target_include_directories(hb_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(hb_${name} PRIVATE halfbyte_options ${ARG_SYSTEM_DEPS})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(hb_${name} PUBLIC halfbyte::${dep})
  endforeach()
endfunction()

# hb_test(NAME SRCS ... DEPS ... SYSTEM_DEPS ... LABELS ...): a GoogleTest program registered with ctest as one test.
# The label `release` also puts it into hb_release_tests: what scripts/test builds and runs as it is shipped, besides `dev`;
# `device` and `cuda-host` into hb_device_tests; with `device` ctest calls the program skipped when all of its cases are.
add_custom_target(hb_release_tests)
add_custom_target(hb_device_tests)
function(hb_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;SYSTEM_DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE halfbyte_options GTest::gtest GTest::gmock GTest::gtest_main ${ARG_SYSTEM_DEPS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE halfbyte::${dep})
  endforeach()
  target_compile_definitions(${name} PRIVATE
    HALFBYTE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" HALFBYTE_TEST_TMP="${PROJECT_BINARY_DIR}/test_tmp/${name}")
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/test_tmp/${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if("release" IN_LIST ARG_LABELS)
    add_dependencies(hb_release_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if("device" IN_LIST ARG_LABELS)
    add_dependencies(hb_device_tests ${name})
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/device_main.cpp)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  if("cuda-host" IN_LIST ARG_LABELS)
    add_dependencies(hb_device_tests ${name})
  endif()
endfunction()

# The interpreter of the Python tests: -DHALFBYTE_PYTHON, the environment's HALFBYTE_PYTHON, what scripts/setup made, or
# the system's.
if(NOT HALFBYTE_PYTHON)
  if(DEFINED ENV{HALFBYTE_PYTHON})
    set(HALFBYTE_PYTHON "$ENV{HALFBYTE_PYTHON}")
  elseif(EXISTS ${PROJECT_SOURCE_DIR}/build/.venv/bin/python)
    set(HALFBYTE_PYTHON ${PROJECT_SOURCE_DIR}/build/.venv/bin/python)
  else()
    set(HALFBYTE_PYTHON python3)
  endif()
endif()

# hb_pytest(NAME PATHS ... LABELS ... TIMEOUT n ENVIRONMENT NAME=VALUE ...): files and folders of this folder run by pytest as one ctest test, whose
# cases scripts/test counts one by one. The tests find the built programs in the folder that the environment's HALFBYTE_BIN
# names, and may write below HALFBYTE_TEST_TMP.
function(hb_pytest name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "PATHS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  list(TRANSFORM ARG_PATHS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_test(NAME ${name} COMMAND ${HALFBYTE_PYTHON} ${PROJECT_SOURCE_DIR}/tests/support/run_pytest.py ${ARG_PATHS})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/test_tmp/${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "HALFBYTE_TEST_NAME=${name};HALFBYTE_BIN=${PROJECT_BINARY_DIR}/bin;HALFBYTE_TEST_TMP=${PROJECT_BINARY_DIR}/test_tmp/${name};HALFBYTE_SANITIZE=${HALFBYTE_SANITIZE};${ARG_ENVIRONMENT}")
endfunction()

# hb_fuzz(NAME SRCS ... DEPS ...): a libFuzzer target in the `fuzz` preset; elsewhere NAME_smoke, a test that runs the
# corpus fuzz/corpus/NAME and changed forms of it through the same code. Keep the corpus small: inputs below 4 KB.
function(hb_fuzz name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;SYSTEM_DEPS" ${ARGN})
  if(HALFBYTE_FUZZ)
    set(target ${name})
    add_executable(${target} ${ARG_SRCS})
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    set(target ${name}_smoke)
    add_executable(${target} ${ARG_SRCS} ${PROJECT_SOURCE_DIR}/fuzz/smoke_main.cpp)
    target_link_libraries(${target} PRIVATE halfbyte::base)
    add_test(NAME ${target} COMMAND ${target} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(${target} PROPERTIES LABELS fuzz-smoke TIMEOUT 300)
  endif()
  target_link_libraries(${target} PRIVATE halfbyte_options ${ARG_SYSTEM_DEPS})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PRIVATE halfbyte::${dep})
  endforeach()
endfunction()
