# One static library per folder of src/, and one GoogleTest program for the *_test.cc files beside its code.
#
#   turboquant_library(NAME cache LINK xxhash)     src/cache -> library turboquant_cache
#     PRECOMPILE <x.hpp>                           headers of others that most of its files include: read once
#   turboquant_kernels()                           src/kernels, each ISA folder with its own flags
#   turboquant_binary(NAME turboquant MAIN src/cli/main.cc)
#   turboquant_test(NAME x SOURCES a_test.cc [LINK ...] [LABEL fast] [TIMEOUT 120] [FIXTURES tiny_models]
#     [DEFINITIONS X=1] [ENVIRONMENT X=1])
#   turboquant_fuzzer(NAME x SOURCES x_fuzz.cc [LINK ...])   libFuzzer in the fuzz build, else a test on its seeds
#
# File names decide what becomes of a file in src/:
#   *_test.cc       unit test, label fast          *_slow_test.cc  test of minutes, label slow
#   main.cc, *_main.cc  a program's main file, not in the library
#   everything else     library
# Layers: every library links all libraries defined before it, so the order of the calls is the order of the layers.
# tools/check_includes.py holds the code to it. A folder without sources is passed over.

set_property(GLOBAL PROPERTY TURBOQUANT_LAYERS "")

# Sorts the .cc files of src/<folder> into <prefix>_LIB, <prefix>_TESTS and <prefix>_SLOW_TESTS.
function(_turboquant_sources folder prefix)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.cc")
  set(lib ${files})
  list(FILTER lib EXCLUDE REGEX "(_test|_main|/main)\\.cc$")
  set(slow ${files})
  list(FILTER slow INCLUDE REGEX "_slow_test\\.cc$")
  set(tests ${files})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER tests EXCLUDE REGEX "_slow_test\\.cc$")
  set(${prefix}_LIB ${lib} PARENT_SCOPE)
  set(${prefix}_TESTS ${tests} PARENT_SCOPE)
  set(${prefix}_SLOW_TESTS ${slow} PARENT_SCOPE)
endfunction()

function(_turboquant_finish_library name)
  cmake_parse_arguments(A "" "" "LINK;LINK_PRIVATE;TESTS;SLOW_TESTS" ${ARGN})
  get_property(layers GLOBAL PROPERTY TURBOQUANT_LAYERS)
  list(REVERSE layers)
  target_include_directories(turboquant_${name} PUBLIC
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(turboquant_${name} PUBLIC ${layers} ${A_LINK} PRIVATE ${A_LINK_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY TURBOQUANT_LAYERS turboquant_${name})
  if(TURBOQUANT_TESTS AND A_TESTS)
    turboquant_test(NAME ${name}_test SOURCES ${A_TESTS} LINK turboquant_${name} ${A_LINK_PRIVATE})
  endif()
  if(TURBOQUANT_TESTS AND A_SLOW_TESTS)
    turboquant_test(NAME ${name}_slow_test SOURCES ${A_SLOW_TESTS} LINK turboquant_${name} ${A_LINK_PRIVATE}
      LABEL slow TIMEOUT 1800)
  endif()
endfunction()

function(turboquant_library)
  cmake_parse_arguments(A "" "NAME" "LINK;LINK_PRIVATE;PRECOMPILE" ${ARGN})
  _turboquant_sources(${A_NAME} S)
  if(NOT S_LIB)
    message(STATUS "src/${A_NAME}: no sources yet")
    return()
  endif()
  add_library(turboquant_${A_NAME} STATIC ${S_LIB})
  if(A_PRECOMPILE)
    target_precompile_headers(turboquant_${A_NAME} PRIVATE ${A_PRECOMPILE})
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # else ccache keeps none of its files
      target_compile_options(turboquant_${A_NAME} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
  _turboquant_finish_library(${A_NAME} LINK ${A_LINK} LINK_PRIVATE ${A_LINK_PRIVATE}
    TESTS ${S_TESTS} SLOW_TESTS ${S_SLOW_TESTS})
endfunction()

# src/kernels: files in an ISA folder become an object library with that folder's flags; a folder of another
# architecture is left out. The macro TURBOQUANT_HAVE_<ISA> tells dispatch which folders are in.
function(turboquant_kernels)
  _turboquant_sources(kernels S)
  if(NOT S_LIB)
    message(STATUS "src/kernels: no sources yet")
    return()
  endif()
  set(plain ${S_LIB})
  list(FILTER plain EXCLUDE REGEX "/src/kernels/(scalar|avx2|avx512|avx512bf16|neon|neondotprod|neoni8mm)/")
  set(objects "")
  set(definitions "")
  foreach(isa IN LISTS TURBOQUANT_ISA_FOLDERS)
    set(sources ${S_LIB})
    list(FILTER sources INCLUDE REGEX "/src/kernels/${isa}/")
    if(sources)
      add_library(turboquant_kernels_${isa} OBJECT ${sources})
      target_include_directories(turboquant_kernels_${isa} PRIVATE
        "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
      target_compile_options(turboquant_kernels_${isa} PRIVATE ${TURBOQUANT_ISA_FLAGS_${isa}})
      list(APPEND objects $<TARGET_OBJECTS:turboquant_kernels_${isa}>)
      string(TOUPPER ${isa} upper)
      list(APPEND definitions TURBOQUANT_HAVE_${upper}=1)
    endif()
  endforeach()
  add_library(turboquant_kernels STATIC ${plain} ${objects})
  set_target_properties(turboquant_kernels PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_definitions(turboquant_kernels PUBLIC ${definitions})
  _turboquant_finish_library(kernels TESTS ${S_TESTS} SLOW_TESTS ${S_SLOW_TESTS})
endfunction()

# A program with its main file; links every layer defined so far.
function(turboquant_binary)
  cmake_parse_arguments(A "" "NAME;MAIN" "LINK" ${ARGN})
  file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${A_MAIN}")
  if(NOT found)
    message(STATUS "${A_MAIN}: not there yet")
    return()
  endif()
  get_property(layers GLOBAL PROPERTY TURBOQUANT_LAYERS)
  list(REVERSE layers)
  add_executable(${A_NAME} ${A_MAIN})
  target_include_directories(${A_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${A_NAME} PRIVATE ${layers} ${A_LINK})
  set_target_properties(${A_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
endfunction()

function(turboquant_test)
  cmake_parse_arguments(A "" "NAME;LABEL;TIMEOUT" "SOURCES;LINK;FIXTURES;DEFINITIONS;ENVIRONMENT" ${ARGN})
  if(NOT A_LABEL)
    set(A_LABEL fast)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING)  # under emulation
    math(EXPR A_TIMEOUT "10 * ${A_TIMEOUT}")
  endif()
  add_executable(${A_NAME} ${A_SOURCES})
  target_link_libraries(${A_NAME} PRIVATE ${A_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${A_NAME} PRIVATE
    TURBOQUANT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ${A_DEFINITIONS})
  set_target_properties(${A_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  set(properties LABELS ${A_LABEL} TIMEOUT ${A_TIMEOUT})
  if(A_FIXTURES)
    list(APPEND properties FIXTURES_REQUIRED ${A_FIXTURES})
  endif()
  if(A_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${A_ENVIRONMENT}")
  endif()
  # PRE_TEST: listing the tests runs the program, which a build for another CPU could not do.
  gtest_discover_tests(${A_NAME} TEST_PREFIX "${A_NAME}/" DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES ${properties})
endfunction()

function(turboquant_fuzzer)
  cmake_parse_arguments(A "" "NAME" "SOURCES;LINK" ${ARGN})
  add_executable(${A_NAME} ${A_SOURCES})
  target_link_libraries(${A_NAME} PRIVATE ${A_LINK})
  set_target_properties(${A_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  if(TURBOQUANT_FUZZ)
    target_link_options(${A_NAME} PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  # Without the fuzzer: a fast test that runs the seeds.
  target_sources(${A_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc")
  target_link_libraries(${A_NAME} PRIVATE turboquant_base)
  add_test(NAME fuzz_seeds/${A_NAME} COMMAND ${A_NAME} "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${A_NAME}")
  set_tests_properties(fuzz_seeds/${A_NAME} PROPERTIES LABELS fast TIMEOUT 300)
endfunction()
