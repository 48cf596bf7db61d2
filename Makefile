# Every target makes .venv and installs what it needs. Only Python >= 3.11 and make must be there.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test check bench clean

.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headway needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

run: .venv/installed    ## compare FedAvg, FedAvgM and FedACG on the embedded data: a table and a picture
	$(BIN)/headway compare fedavg fedavgm fedacg --seeds 3 --target 0.8

test: .venv/installed   ## every test
	$(BIN)/pytest -n auto --dist loadfile

check: .venv/installed  ## format, lint, types, import rule
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: .venv/installed  ## executors, a plain loop and other simulators side by side, as ratios
	$(BIN)/headway bench

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
