# Short names for what cmake, ctest and tools/setup.sh do. `make help` lists them.
.DEFAULT_GOAL := all
SHELL := /bin/bash

JOBS ?= $(shell nproc)
PROMPT ?= Explain in two sentences why the sky is blue.
ARGS ?= --kv-cache-dtype int8 --max-tokens 96
FUZZ_SECONDS ?= 60

setup = tools/setup.sh
configure = cmake --preset $(1) $(CMAKE_ARGS) >/dev/null
build = cmake --build --preset $(1) -j $(JOBS) $(2) -- --quiet >&2
test = ctest --preset $(1) -j $(JOBS) --no-tests=error --progress $(CTEST_ARGS)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / /' | awk '{n=$$1; $$1=""; printf "make %-10s%s\n", n, $$0}'

.PHONY: all
all: ## install what is missing, build the release binary build/turboquant
	@$(setup)
	@[ -e build/build.ninja ] || $(call configure,release)
	@$(call build,release,--target turboquant)

.PHONY: run
run: all ## the same, then generate text from the default model (PROMPT=..., ARGS=...)
	@build/turboquant run -p "$(PROMPT)" $(ARGS)

.PHONY: test
test: ## install what is missing, build, run all fast tests
	@$(setup) --with-tests --with-texts
	@$(call configure,release)
	@$(call build,release)
	@$(call test,fast)

.PHONY: slow
slow: ## tests that take minutes
	@$(setup) --with-tests --with-texts
	@$(call configure,release)
	@$(call build,release)
	@$(call test,slow)

.PHONY: dev asan tsan
dev asan tsan: ## fast tests: assertions (dev), address and undefined (asan), threads (tsan)
	@$(setup) --with-tests --with-texts
	@$(call configure,$@)
	@$(call build,$@)
	@$(call test,$@)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_SECONDS seconds
	@$(setup) --with-tests
	@$(call configure,fuzz)
	@$(call build,fuzz)
	@tools/run_fuzzers.sh build-fuzz/fuzz $(FUZZ_SECONDS)

.PHONY: format lint
format: ## clang-format on every source file
	@$(setup) --with-lint
	@git ls-files -co --exclude-standard '*.cc' '*.h' | xargs -r clang-format-19 -i
lint: ## formatting, clang-tidy, size ratchet, include order
	@$(setup) --with-lint --with-tests
	@git ls-files -co --exclude-standard '*.cc' '*.h' | xargs -r clang-format-19 --dry-run -Werror
	@$(call configure,release)
	@git ls-files -co --exclude-standard 'src/*.cc' | xargs -r -P $(JOBS) -n 4 clang-tidy-19 -p build --quiet
	@/usr/bin/python3 tools/check_size.py
	@/usr/bin/python3 tools/check_includes.py

.PHONY: clean
clean: ## remove the build folders (not the cache folder)
	@rm -rf build build-dev build-asan build-tsan build-fuzz build-aarch64
