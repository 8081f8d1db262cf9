# make demo | test | check | bench: each sets up what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-all check lint bench docs site clean

setup: $(STAMP)

# uv where it is or can be had (seconds), pip otherwise (minutes).
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "fedul-flwr needs Python >= 3.11; name one with: make setup PYTHON=/path/to/python3.11"; exit 1; }
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
	@$(BIN)/fedul-flwr demo

# A worker per core: real programs leave them idle half of the time.
test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist worksteal

test-all: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

# What speed is compared with comes on top, into the same environment.
bench: $(STAMP)
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python -e '.[bench]'; \
	elif [ -x $(BIN)/uv ]; then $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[bench]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'; fi
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache

docs: $(STAMP)
	$(BIN)/python -m fedul_flwr.settings.document > docs/settings.md

site: $(STAMP)
	$(BIN)/python -m mkdocs build --strict
