# make quickstart   set up everything from nothing and train a small Llama beside eager
# make build        build what changed (build/dev; the extension goes into thunder/)
# make layer LAYER=ir   build one layer and run its C++ tests
# make test         everything that CI checks
PYTHON ?= python3.11
VENV := .venv
JOBS ?= $(shell nproc)
LAYER ?= ir
TARGET ?= all
SANITIZE ?= address

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
ifndef STARTED
export STARTED := $(shell date +%s)
endif
export PYTHONDONTWRITEBYTECODE = 1

# $(call step,3/8,what) announces a step with the time of day and the seconds since `make` began.
step = @printf '\n\033[1m[%s] %s (+%ss) %s\033[0m\n' '$(1)' "$$(date +%H:%M:%S)" "$$(($$(date +%s) - $(STARTED)))" '$(2)'
# One build of a folder at a time, whoever starts it.
locked = mkdir -p build && flock build/$(1).lock
quiet = --no-print-directory

.PHONY: wheels quickstart build layer configure test ctest pytest kernels lint format docs notebooks benchmarks sanitize clean

quickstart:
	$(call step,1/3,Python environment in $(VENV): PyTorch and the build tools)
	@$(MAKE) $(quiet) $(VENV)/.ready
	$(call step,2/3,Building the extension)
	@$(MAKE) $(quiet) build TARGET=thunder_bindings
	$(call step,3/3,Training a small Llama through thunder.jit beside eager)
	@python examples/quickstart.py

$(VENV)/.ready: $(wildcard requirements/*.txt)
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV) || \
	  { echo 'Needed: $(PYTHON) with venv. On Debian: apt-get install python3.11-venv python3.11-dev g++'; exit 1; }
	python -m pip install --progress-bar off -r requirements/dev.txt
	@python -m pip install --progress-bar off --no-deps -r requirements/litgpt.txt || \
	  echo 'LitGPT could not be installed: the tests that need it will be skipped.'
	@python -m pip install --progress-bar off --no-deps -r requirements/integrations.txt || \
	  echo 'The libraries of examples/integrations could not be installed: the tests that need them will be skipped.'
	@python -m pip install --progress-bar off --no-deps -r requirements/cuda.txt || \
	  echo 'NVRTC could not be installed: tests do not compile CUDA kernels for GPUs.'
	@touch $@

# The editable install; the extension is built by CMake below, into the source tree.
$(VENV)/.installed: $(VENV)/.ready pyproject.toml
	python -m pip install --quiet --no-build-isolation --no-deps -C wheel.cmake=false -e .
	@touch $@

configure: $(VENV)/.ready
	@$(call locked,dev) cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python \
	  -DTHUNDER_INPLACE=ON -DTHUNDER_TESTS=ON

build: $(VENV)/.installed
	@test -e build/dev/build.ninja || $(MAKE) $(quiet) configure
	@$(call locked,dev) cmake --build build/dev -j $(JOBS) --target $(TARGET)

layer:
	@test -e build/dev/build.ninja || $(MAKE) $(quiet) configure
	@$(call locked,dev) sh -c 'ninja -C build/dev thunder_$(LAYER) && \
	  if ls tests/cpp/$(LAYER)_*.cpp >/dev/null 2>&1; then ninja -C build/dev test_$(LAYER); fi'
	@ctest --test-dir build/dev --output-on-failure --no-tests=ignore -R '^cpp\.$(LAYER)_'

test:
	$(call step,1/8,Python environment)
	@$(MAKE) $(quiet) $(VENV)/.ready
	$(call step,2/8,Formatting$(comma) lint$(comma) types)
	@$(MAKE) $(quiet) lint
	$(call step,3/8,Build)
	@$(MAKE) $(quiet) build
	$(call step,4/8,C++ tests)
	@$(MAKE) $(quiet) ctest
	$(call step,5/8,Documentation)
	@$(MAKE) $(quiet) docs
	$(call step,6/8,Notebooks)
	@$(MAKE) $(quiet) notebooks
	$(call step,7/8,Python tests)
	@$(MAKE) $(quiet) pytest
	$(call step,8/8,Kernels of other processors)
	@$(MAKE) $(quiet) kernels
	$(call step,8/8,Everything passed)

comma := ,

ctest: build
	ctest --test-dir build/dev --output-on-failure -j $(JOBS)

pytest: build
	python -m pytest -n $(JOBS) tests

# The tests of kernels with those for lesser processors than this one.
kernels: build
	.ci/kernels $(JOBS)

lint:
	ruff check .
	ruff format --check .
	find csrc tests/cpp tests/layering -name '*.cpp' -o -name '*.h' | xargs clang-format --dry-run -Werror
	mypy

format:
	ruff check --fix .
	ruff format .
	find csrc tests/cpp tests/layering -name '*.cpp' -o -name '*.h' | xargs clang-format -i

docs:
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet --site-dir build/site

notebooks:
	python notebooks/execute.py

benchmarks: build
	python benchmarks/import_time.py
	python benchmarks/calls.py
	python benchmarks/capture.py
	python benchmarks/step.py
	python benchmarks/inference.py
	python benchmarks/memory.py
	python benchmarks/plot.py

# Wheels for the Pythons at hand, tried in empty environments: make wheels PYTHONS='python3.11 python3.12'
PYTHONS ?=
wheels:
	.ci/wheels $(PYTHONS)

# C++ tests, and a smoke of the Python ones, under a sanitizer: make sanitize SANITIZE=address|undefined|thread
sanitize: $(VENV)/.ready
	@$(call locked,$(SANITIZE)) .ci/sanitize $(SANITIZE) $(JOBS)

clean:
	rm -rf build thunder/_*.so thunder/_built_for.py $(VENV)/.installed
