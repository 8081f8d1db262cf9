# make demo | test | fast | check | crosscheck | bench: each sets up what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests start dozens of programs; each would compile every package's source once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test fast coverage robustness test-slow test-all flower-versions lowest-versions check crosscheck lint bench docs lock sbom site clean

setup: $(STAMP)

# uv where it is or can be had (seconds), pip otherwise (minutes).
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "fedul-flwr needs Python >= 3.11; name one with: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing into $(VENV): about 7 GB, most of it PyTorch with CUDA; 1 to 10 minutes, by your network."
	@if command -v uv >/dev/null 2>&1; then \
	    { [ -x $(BIN)/python ] || uv venv --quiet --python $(PYTHON) $(VENV); } && \
	    uv pip install --quiet --compile-bytecode --python $(BIN)/python -e '.[dev]'; \
	else \
	    { [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); } && \
	    if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv >/dev/null 2>&1; then \
	        $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -e '.[dev]'; \
	    else \
	        $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -e '.[dev]'; \
	    fi; \
	fi
	@touch $@

demo: $(STAMP)
	@echo "Training twice on handwritten digits: about half a minute on two cores."
	@$(BIN)/fedul-flwr demo

# Two workers more than cores, at most six: real programs leave cores idle now and then.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(6, 2 + (os.cpu_count() or 1)))')
PYTEST := $(BIN)/python -m pytest --dist worksteal -n $(WORKERS)
# Tests write tens of thousands of small files: into memory, where 4 GB of it are free for that.
MEMORY := $(shell $(PYTHON) -c 'import os, shutil; f = "/dev/shm"; \
    print(f if os.access(f, os.W_OK) and shutil.disk_usage(f).free > 4 << 30 else "")')
ifneq ($(MEMORY),)
export PYTEST_DEBUG_TEMPROOT ?= $(MEMORY)
endif

test: $(STAMP)
	$(PYTEST) -m "not slow"

# Numerics and settings alone: half a minute on two cores, for every change of a formula.
FAST := tests/config tests/learning tests/models tests/propagation tests/secure tests/test_surrogate.py
fast: $(STAMP)
	$(BIN)/python -m pytest --dist worksteal -n $(WORKERS) -m "not slow and not realdata and not crowd" $(FAST)

# Lines and branches that the tests run, in the programs that they start, too.
coverage: $(STAMP)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --dist worksteal -n $(WORKERS) -m "not slow" $(TESTS)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Bad input and hostile replies, each with its table; robustness/README.md has the rest.
robustness: $(STAMP)
	$(BIN)/python -m robustness.faults bad-inputs
	$(BIN)/python -m robustness.hostile_replies --quick

# A few tests with the oldest Flower allowed and the newest there is, if another one is installed.
flower-versions: $(STAMP)
	@$(BIN)/python -m tests.flower_versions --dist worksteal -n $(WORKERS)

# A few tests with the oldest version of every dependency that pyproject.toml allows (6 GB more).
lowest-versions: $(STAMP)
	@$(BIN)/python -m tests.lowest_versions --dist worksteal -n $(WORKERS)

# All of them, or make test-slow TESTS=tests/end_to_end
test-slow: $(STAMP)
	$(PYTEST) -m slow $(TESTS)

test-all: test test-slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell $$(git ls-files '*.py' '*.md' '*.toml' Makefile | grep -v ^results/)
	$(BIN)/mypy

check: lint test

# Another implementation of homomorphic encryption, for the test that compares distances with its.
crosscheck: $(STAMP)
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python -e '.[crosscheck]'; \
	elif [ -x $(BIN)/uv ]; then $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[crosscheck]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[crosscheck]'; fi
	$(BIN)/python -m pytest tests/secure/hamming/test_against_tenseal.py

# What speed is compared with comes on top, into the same environment; pfl-research, which asks
# for older packages than Flower, into a folder of its own that only its benchmark looks into.
PFL := .venv-pfl
PEER := pfl==0.6.0 prv-accountant==0.2.0
bench: $(STAMP)
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python -e '.[bench]'; \
	elif [ -x $(BIN)/uv ]; then $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[bench]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'; fi
	@[ -d $(PFL)/pfl ] || { command -v uv >/dev/null 2>&1 && \
	    uv pip install --quiet --python $(BIN)/python --no-deps --target $(PFL) $(PEER); } || \
	    { [ -x $(BIN)/uv ] && \
	    $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $(PFL) $(PEER); } || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(PFL) $(PEER) || \
	    echo "pfl-research could not be installed; it is left out of the comparison"
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-flower .venv-lowest $(PFL) build dist site .mypy_cache .ruff_cache

docs: $(STAMP)
	$(BIN)/python -m docs.hooks.settings > docs/settings.md
	$(BIN)/python -m docs.hooks.results > docs/results.md
	$(BIN)/python -m docs.hooks.coverage > docs/coverage.md

# Versions and hashes of what the Dockerfile installs, but for PyTorch; Flower depends on uv.
IMAGE := --extra hub --extra paper-protocols --extra prometheus --extra torchvision --extra xclp
lock: $(STAMP)
	$(BIN)/uv lock --quiet --upgrade
	$(BIN)/uv export --quiet --frozen --no-emit-project --no-dev --no-header --no-annotate $(IMAGE) \
	    --prune torch --prune torchvision -o requirements.lock

# All packages with their hashes, as CycloneDX.
sbom: $(STAMP)
	$(BIN)/uv lock --quiet
	mkdir -p build
	$(BIN)/uv export --quiet --frozen --no-dev $(IMAGE) --format cyclonedx1.5 -o build/sbom.cdx.json

site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
