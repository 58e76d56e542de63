# make demo   install into .venv and see it work
# make test   install with the development tools and run the tests
# make lint   what CI runs besides the tests

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint
demo: .venv/installed
	@$(BIN)/betae demo

test: .venv/installed-dev
	@$(BIN)/pytest

lint: .venv/installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv

# The stamps are newer than pyproject.toml once installed, so a second `make` installs nothing.
.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --editable .
	@touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --editable '.[dev]'
	@touch .venv/installed $@
