# Every target makes .venv and installs what it needs. Only Python >= 3.11 and make must be there.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := import sysconfig; print(sysconfig.get_path('purelib'))
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1

# Half a minute of one core: files that train next to nothing, and two methods through the round and the executors.
FAST_FILES := docs golden hook_results intervals names_in_other_libraries own_methods packed promises random renamed \
  scenario_names schedules slots structure suite trees vectors verdict
LEARNS := tests/test_contracts.py::test_it_learns
AGREE := tests/test_executors.py::test_float64_agrees_over_several_rounds
FAST := $(FAST_FILES:%=tests/test_%.py) '$(LEARNS)[fedacg]' '$(LEARNS)[scaffold]' \
  '$(AGREE)[fedacg-batch_norm_dropout-batched]' '$(AGREE)[scaffold-batch_norm_dropout-pool]' \
  --deselect tests/test_docs.py::test_a_notebook_runs --deselect tests/test_docs.py::test_what_the_recipes_print_works

.DEFAULT_GOAL := help
.PHONY: help run test browser network soak check bench pages docs clean

help:                   ## what every target does
	@sed -nE 's/^([a-z]+):[^#]*## (.+)$$/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headway needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

run: .venv/installed    ## compare FedAvg, FedAvgM and FedACG on the embedded data: a table and a picture
	$(BIN)/headway compare fedavg fedavgm fedacg --seeds 3 --target 0.8

test: .venv/installed browser network  ## every test
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

browser:                ## chromium for the tests of the report's page; where it cannot be had, they are skipped
	@{ command -v chromium && command -v chromedriver; } >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && { $(APT) update; $(APT) install -y chromium chromium-driver; }; } >/dev/null 2>&1 </dev/null \
	|| echo "chromium and chromedriver are not here: the browser tests of the report's page are skipped"

# Flower wants older versions of typer and rich, so it has a separate environment, beside the packages of .venv.
network: .venv/installed ## Flower in .venv-deploy, for the tests over a network; where it cannot be had, they are skipped
	@[ .venv-deploy/installed -nt pyproject.toml ] || { \
	$(PYTHON) -m venv .venv-deploy \
	&& $(BIN)/python -c "$(PACKAGES)" > "$$(.venv-deploy/bin/python -c "$(PACKAGES)")/beside.pth" \
	&& .venv-deploy/bin/pip install --quiet --disable-pip-version-check -e '.[deploy]' \
	&& touch .venv-deploy/installed; } >/dev/null 2>&1 </dev/null \
	|| echo "Flower cannot be installed here: the tests over a network are skipped"

soak: .venv/installed network ## tests that take minutes, and fuzzers: kills, damaged folders and data, wrong commands, misuse
	$(BIN)/pytest -m soak -n auto --dist loadfile
	PYTHONPATH=tests$${PYTHONPATH:+:$$PYTHONPATH} OMP_NUM_THREADS=1 $(BIN)/python -m fuzzing

check: .venv/installed  ## format, lint, types, import rule, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile $(FAST)

bench: .venv/installed  ## executors, a plain loop and other simulators side by side, as ratios
	$(BIN)/headway bench

pages: .venv/installed  ## the pages, tables and picture of the methods, from the catalogue and the notes
	$(BIN)/python docs/site/method_pages.py
	$(BIN)/python docs/site/json_schema.py
	$(BIN)/python docs/site/relatives_picture.py

docs: .venv/docs        ## this documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html; with search: python3 -m http.server -d build/site"

.venv/docs: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

clean:                  ## remove the environment and everything that was built
	rm -rf .venv .venv-deploy build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
