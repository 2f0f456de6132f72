PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LEGACY := .venv-legacy
# Tests run offline, with nothing of the user's own cache in sight.
# One thread each, as two processes share the cores.
TEST_ENV := HF_HUB_OFFLINE=1 HF_EVALUATE_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1

.PHONY: demo test lint format bench test-browser test-legacy clean

demo: $(READY)  ## Make a dataset from the bundled problems and masked LM, and say how to load it
	HF_HUB_OFFLINE=1 $(BIN)/merge-nli demo

test: $(READY) lint  ## Lint, types, import contract, tests
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## Measure speed and memory; see tests/benchmarks
	$(TEST_ENV) $(BIN)/pytest -m benchmark -s tests/benchmarks

test-browser: $(READY)  ## The metric's page in headless Chromium, which must be installed
	$(TEST_ENV) $(BIN)/pytest -m browser tests

test-legacy: $(READY) $(LEGACY)/.ready  ## The dataset under datasets 3.6, in an environment of its own
	$(TEST_ENV) MERGE_NLI_LEGACY_PYTHON=$(abspath $(LEGACY))/bin/python $(BIN)/pytest -m legacy tests/legacy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[generation,predict,report,app,dev]'
	touch $@

$(LEGACY)/.ready: Makefile
	$(PYTHON) -m venv $(LEGACY)
	$(LEGACY)/bin/python -m pip install --quiet --disable-pip-version-check 'datasets==3.6.0' 'huggingface_hub<1'
	touch $@

clean:
	rm -rf $(VENV) $(LEGACY) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
