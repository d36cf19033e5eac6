# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo test install bench bench-gpu lint clean

install: $(VENV)/.installed

# pip installs torch by the pin in constraints.txt; the stamp makes a second run instant.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[serve,plots,trees,ann,parquet,dev]'
	touch $@

demo: OMP_NUM_THREADS = $(shell nproc 2>/dev/null || echo 2)
demo: install
	$(BIN)/laha demo

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2

# The claims of speed, each a file in benchmarks/ with its results; LAHA_DATA adds the real corpora.
bench: install
	for name in label_walks startup tokenizer cpu_scoring tagging training_step label_growth; do \
		$(BIN)/python benchmarks/$$name.py || exit 1; \
	done

# What needs a GPU: run it on one, in one command.
bench-gpu:
	benchmarks/gpu.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
