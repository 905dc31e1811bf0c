# What the core links, made of headers and sources that no architecture has a part in: for a cross build, where the
# libraries of this machine do not link. The same targets as find_package gives: fmt::fmt, spdlog::spdlog,
# turboquant_xxhash, and with tests GTest::gtest, GTest::gtest_main and GTest::gmock.

# The headers lie beside those of this machine's C library, which must stay out of sight: links to them alone.
set(_headers "${PROJECT_BINARY_DIR}/headers")
file(MAKE_DIRECTORY "${_headers}")
foreach(_name fmt spdlog nlohmann xxhash.h)
  find_path(_folder "${_name}" PATHS /usr/local/include /usr/include NO_CACHE REQUIRED
    NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  file(CREATE_LINK "${_folder}/${_name}" "${_headers}/${_name}" SYMBOLIC)
  unset(_folder)
endforeach()

function(_turboquant_header_target name)
  string(REPLACE "::" "_" plain "${name}_headers")
  add_library(${plain} INTERFACE)
  target_include_directories(${plain} SYSTEM INTERFACE "${_headers}")
  target_compile_definitions(${plain} INTERFACE ${ARGN})
  add_library(${name} ALIAS ${plain})
endfunction()
_turboquant_header_target(fmt::fmt FMT_HEADER_ONLY=1)
_turboquant_header_target(spdlog::spdlog SPDLOG_FMT_EXTERNAL=1 FMT_HEADER_ONLY=1)
_turboquant_header_target(turboquant_xxhash XXH_INLINE_ALL=1)

# Debian's package googletest.
set(_googletest /usr/src/googletest)
if(TURBOQUANT_TESTS AND EXISTS "${_googletest}/googlemock/src/gmock-all.cc")
  add_library(turboquant_googletest STATIC EXCLUDE_FROM_ALL "${_googletest}/googletest/src/gtest-all.cc"
    "${_googletest}/googlemock/src/gmock-all.cc" "${_googletest}/googlemock/src/gmock_main.cc")
  target_include_directories(turboquant_googletest SYSTEM PUBLIC "${_googletest}/googletest/include"
    "${_googletest}/googlemock/include" PRIVATE "${_googletest}/googletest" "${_googletest}/googlemock")
  target_compile_options(turboquant_googletest PRIVATE -w)
  target_link_libraries(turboquant_googletest PUBLIC Threads::Threads)
  foreach(_name gtest gtest_main gmock)
    add_library(GTest::${_name} ALIAS turboquant_googletest)
  endforeach()
  set(GTest_FOUND TRUE)
endif()
