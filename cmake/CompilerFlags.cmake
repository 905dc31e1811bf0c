# Flags of the whole project. Only ggml is built for the CPU at hand; here no file gets -march=native, and only
# the ISA folders of src/kernels get instruction sets beyond the architecture's baseline.
include(CheckCXXSourceCompiles)

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
# A test suite on unoptimized kernels takes minutes; -O1 keeps backtraces usable.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")

# -ffp-contract=off: no silent fused multiply-add, so that float results do not depend on the compiler. Kernels
# that want it call it by name.
add_compile_options(-ffp-contract=off -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wcast-align -Wdouble-promotion -Wformat=2 -Wimplicit-fallthrough -Wswitch-enum
  -Werror=return-type -Werror=switch -Werror=unused-result -Werror=uninitialized)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # -Werror=uninitialized takes this along, which g++ 12 reports where std::expected moves a string out.
  add_compile_options(-Wno-error=maybe-uninitialized)
endif()

# std::expected is in libstdc++ 12, for compilers that report the concepts of 2020: g++ 12, clang 19.
set(CMAKE_REQUIRED_FLAGS "-std=c++23")
check_cxx_source_compiles("#include <expected>
  std::expected<int, int> F() { return 1; }
  int main() { return *F() - 1; }" TURBOQUANT_HAS_EXPECTED)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT TURBOQUANT_HAS_EXPECTED)
  message(FATAL_ERROR "TurboQuant needs std::expected: g++ 12 or newer, or clang 19 or newer "
    "(this is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION})")
endif()

# Designated initializers leave members at their defaults; that is what they are for.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wno-missing-designated-field-initializers)
  set(TURBOQUANT_NO_VECTORIZE -fno-vectorize -fno-slp-vectorize)
else()
  add_compile_options(-Wno-missing-field-initializers)
  set(TURBOQUANT_NO_VECTORIZE -fno-tree-vectorize -fno-tree-slp-vectorize)
endif()

# Flags of the ISA folders under src/kernels. A folder that is not named here gets none.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(TURBOQUANT_X86_AVX512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma
    -mf16c)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Its own AVX-512 header starts from uninitialized registers (GCC bug 105593).
    list(APPEND TURBOQUANT_X86_AVX512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set(TURBOQUANT_ISA_FOLDERS scalar avx2 avx512 avx512bf16)
  set(TURBOQUANT_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(TURBOQUANT_ISA_FLAGS_avx512 ${TURBOQUANT_X86_AVX512})
  set(TURBOQUANT_ISA_FLAGS_avx512bf16 ${TURBOQUANT_X86_AVX512} -mavx512bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(TURBOQUANT_ISA_FOLDERS scalar neon neondotprod neoni8mm)
  set(TURBOQUANT_ISA_FLAGS_neon "")  # Advanced SIMD is in the baseline
  set(TURBOQUANT_ISA_FLAGS_neondotprod -march=armv8.2-a+dotprod)
  set(TURBOQUANT_ISA_FLAGS_neoni8mm -march=armv8.2-a+dotprod+i8mm)
else()
  set(TURBOQUANT_ISA_FOLDERS scalar)
endif()
set(TURBOQUANT_ISA_FLAGS_scalar ${TURBOQUANT_NO_VECTORIZE})

find_program(TURBOQUANT_MOLD NAMES mold)
if(TURBOQUANT_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()

if(TURBOQUANT_SANITIZE MATCHES "thread")
  # A test replaces operator new to count allocations; clang's TSan runtime has strong ones of its own.
  add_link_options(-Wl,--allow-multiple-definition)
endif()
if(TURBOQUANT_SANITIZE)
  add_compile_options(-fsanitize=${TURBOQUANT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TURBOQUANT_SANITIZE})
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
if(TURBOQUANT_POISON_FREED)
  add_compile_definitions(TURBOQUANT_POISON_FREED=1)
endif()
if(TURBOQUANT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TURBOQUANT_FUZZ needs clang")
  endif()
  # Coverage counters everywhere; the targets themselves link with -fsanitize=fuzzer (turboquant_fuzzer).
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
