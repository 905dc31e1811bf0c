# Toolchain: Linux on AArch64 from another machine (preset aarch64). clang 19 with the headers and libraries of
# g++-12-aarch64-linux-gnu, or that compiler itself (CXX=aarch64-linux-gnu-g++-12). tools/setup.sh --with-cross installs
# what this needs. Programs are static, so that qemu-user runs them without a root folder of that architecture.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(TURBOQUANT_CROSS_CLANGXX NAMES clang++-19 clang++-20 clang++-21)
  if(TURBOQUANT_CROSS_CLANGXX)
    set(CMAKE_CXX_COMPILER "${TURBOQUANT_CROSS_CLANGXX}")
  else()
    set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
  endif()
endif()
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)  # read by clang alone
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
# Libraries of that architecture only, programs of this one.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# Tests run on an emulated CPU with all that our kernels use.
find_program(TURBOQUANT_QEMU NAMES qemu-aarch64)
if(TURBOQUANT_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${TURBOQUANT_QEMU};-cpu;neoverse-n1")
endif()
