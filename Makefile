# Python >= 3.11 and make are all a fresh machine needs: the first target that needs .venv makes it.
PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo
WELLFEED_BENCH ?= full

.PHONY: demo test check format bench clean

demo: .venv/ready ## pack small synthetic logs, train two epochs on the CPU, show what came out
	rm -rf $(DEMO)
	$(BIN)/pack-shards synthetic $(DEMO)/shards --count 600 --width 320 1280 --height 48 64
	$(BIN)/train --shards $(DEMO)/shards --out $(DEMO) --epochs 2 --device cpu --images-per-step 4 --learning-rate 3e-3

test: .venv/ready ## the whole test suite
	$(BIN)/python -m pytest

check: .venv/ready ## lint, format, types, one-way imports, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

bench: export WELLFEED_BENCH := $(WELLFEED_BENCH)
bench: .venv/ready ## side by side, as ratios; WELLFEED_BENCH=quick for the small form
	$(BIN)/python -m pytest benchmarks

format: .venv/ready ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## everything that was made
	rm -rf .venv runs build *.egg-info

# torch first and alone, so that its pinned build decides which other packages come with it.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
