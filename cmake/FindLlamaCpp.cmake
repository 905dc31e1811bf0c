# Target turboquant_llama: libllama and ggml.
# Looked for in this order:
#   1. TURBOQUANT_DEPS_DIR (cache variable or environment), an installation prefix
#   2. the cache folder that tools/setup.sh fills for this CPU (not with TURBOQUANT_SYSTEM_LLAMA=ON)
#   3. the system: find_package(llama CONFIG) with CMake's usual search (CMAKE_PREFIX_PATH, llama_DIR, ggml_DIR)
set(TURBOQUANT_DEPS_DIR "$ENV{TURBOQUANT_DEPS_DIR}" CACHE PATH
  "Prefix that holds ggml and libllama (default: the cache folder of tools/setup.sh)")
set(_prefix "${TURBOQUANT_DEPS_DIR}")
if(NOT _prefix AND NOT TURBOQUANT_SYSTEM_LLAMA)
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/tools/setup.sh" --print-deps-dir
    OUTPUT_VARIABLE _prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(_prefix AND EXISTS "${_prefix}/lib/cmake/llama/llama-config.cmake")
  # A build folder may hold the result for another CPU's or version's prefix.
  if(NOT llama_DIR MATCHES "^${_prefix}/")
    unset(llama_DIR CACHE)
    unset(ggml_DIR CACHE)
    get_cmake_property(_cached CACHE_VARIABLES)
    foreach(_name IN LISTS _cached)
      if(_name MATCHES "^(llama|GGML)_?.*(LIBRARY|INCLUDE_DIR)$")
        unset(${_name} CACHE)
      endif()
    endforeach()
  endif()
  list(PREPEND CMAKE_PREFIX_PATH "${_prefix}")
endif()
find_package(llama CONFIG QUIET)
if(NOT llama_FOUND)
  message(FATAL_ERROR
    "ggml and libllama were not found. Run tools/setup.sh (it builds them into ${_prefix}), or name an "
    "installation with -DTURBOQUANT_DEPS_DIR=PREFIX, or build without the engine: -DTURBOQUANT_CORE_ONLY=ON")
endif()
message(STATUS "ggml and libllama: ${llama_DIR}")
add_library(turboquant_llama INTERFACE)
target_link_libraries(turboquant_llama INTERFACE llama ggml::ggml)
