# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo test install bench bench-gpu bench-serve lint chromium clean

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

# Browser tests drive Debian's Chromium; where it is missing and may not be installed they are skipped, and say so.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && [ -f /etc/debian_version ] && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "no Chromium here, and no right or no way to install it: the browser tests will be skipped"

test: lint chromium
	$(BIN)/python -m pytest -n 2 -rfEs

# The claims of speed, each a file in benchmarks/ with its results; LAHA_DATA adds the real corpora.
bench: install
	for name in label_walks startup tokenizer cpu_scoring tagging training_step label_growth; do \
		$(BIN)/python benchmarks/$$name.py || exit 1; \
	done

# The server under load, for a minute, and its memory over 50,000 requests: some 10 minutes.
bench-serve: install
	$(BIN)/python benchmarks/label_search.py
	$(BIN)/python benchmarks/serve_load.py
	$(BIN)/python benchmarks/serve_load.py --memory

# What needs a GPU: run it on one, in one command.
bench-gpu:
	benchmarks/gpu.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
