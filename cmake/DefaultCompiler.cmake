# Chooses clang 19 when nobody chose a compiler: its kernels are 25 to 55 % faster than g++ 12's
# (docs/decisions/001). -DCMAKE_CXX_COMPILER=g++ or CXX=g++ chooses otherwise.
if(NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX} AND NOT DEFINED CMAKE_TOOLCHAIN_FILE)
  find_program(TURBOQUANT_CLANGXX NAMES clang++-19 clang++-20 clang++-21)
  if(TURBOQUANT_CLANGXX)
    set(CMAKE_CXX_COMPILER "${TURBOQUANT_CLANGXX}")
  endif()
endif()
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(TURBOQUANT_CCACHE NAMES ccache)
  if(TURBOQUANT_CCACHE)
    # CCACHE_BASEDIR: a second clone finds what the first one compiled. CCACHE_SLOPPINESS: as its manual asks for
    # precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${CMAKE_SOURCE_DIR};CCACHE_SLOPPINESS=pch_defines,time_macros;${TURBOQUANT_CCACHE}")
  endif()
endif()
if(NOT DEFINED CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release")
endif()
