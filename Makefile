# make demo   install into .venv and see it work
# make quick  run the tests that take less than about two seconds each (90 s in all)
# make test   install with the development tools and run all tests (8 minutes)
# make test-avx2
#             run the numeric tests with the code paths of a processor without AVX-512
# make lint   what CI runs besides the tests
# make docs   build the documentation site into site/; a broken link or reference is an error
# make release PYTHONS="python3.11 python3.12 python3.13"
#             build the wheel and the sdist into dist/, and use the wheel in an empty environment
# make reproduce DATASET=FB15k-237 MODEL=betae DATA=folder
#             train a recipe and evaluate it beside the paper; stop it, and it goes on from there;
#             it ends with the report and the minutes of each step

PYTHON ?= python3
BIN := .venv/bin
DATASET ?= FB15k-237
MODEL ?= betae
DATA ?= data
PYTHONS ?= $(PYTHON)

.PHONY: demo quick test test-avx2 lint docs release reproduce chromium
demo: .venv/installed
	@$(BIN)/betae demo

quick: .venv/installed-dev
	@$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test: .venv/installed-dev chromium
	@$(BIN)/pytest -n 2 --dist worksteal

# For the tests of the page. Without it they are skipped, and say so.
chromium:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && \
	  { apt-get install -qq -y chromium || { apt-get update -qq && apt-get install -qq -y chromium; }; } \
	  >/dev/null 2>&1; } || echo "No Chromium, and none could be installed: the browser tests will not run."

test-avx2: .venv/installed-dev
	@NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" \
	  ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell \
	  NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=+avx2,+fma \
	  $(BIN)/pytest -n 2 --dist worksteal tests/models tests/exact tests/evaluation tests/training \
	  tests/answering tests/rules

lint: .venv/installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: .venv/installed-dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict && echo "site/index.html is the documentation."

# The wheel is built from the sdist, so that both are checked.
release: .venv/installed-dev
	@rm -rf dist
	@$(BIN)/python -m build
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/python scripts/check_release.py $(PYTHONS:%=--python %)

reproduce: .venv/installed
	@$(BIN)/python scripts/reproduce.py $(DATASET) $(MODEL) --data $(DATA) --out reproduce

.venv/bin/python:
	$(PYTHON) -m venv .venv

# The stamps are newer than pyproject.toml once installed, so a second `make` installs nothing.
.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --editable .
	@touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --editable '.[dev]'
	@touch .venv/installed $@
