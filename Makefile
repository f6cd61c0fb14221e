# make run [ARGS=--exit]   install, run a first search from end to end, stay up (or exit)
# make test [ARGS=...]     install, run every test (ARGS go to pytest)
# make check               lint, formatting, types, layering; the same and the tests of the dashboard (needs Node)
# make install             the virtual environment alone

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DASHBOARD := $(shell find service/dashboard -path '*/node_modules' -prune -o -path '*/dist' -prune -o -type f -print)

.PHONY: run test check install clean

run: $(INSTALLED)
	$(BIN)/python -m warpsmith.service.demo $(ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd service/dashboard && npm run --silent check

install: $(INSTALLED)

# Installed again only when what is to be installed changed.
$(INSTALLED): pyproject.toml constraints.txt hatch_build.py $(DASHBOARD)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[worker,dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
