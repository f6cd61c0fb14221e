# make run [ARGS=--exit]   install, run a first search from end to end, stay up (or exit)
# make test [ARGS=...]     install, run the tests but the nightly ones (ARGS go to pytest): tests/kinds.py
# make test-all [ARGS=...] the same with the nightly ones
# make coverage [ARGS=...] the same, and how much of Warpsmith they run
# make check               lint, formatting, types, layering; the same and the tests of the dashboard (needs Node); -j2
# make install             the virtual environment alone
# make sbom                what that environment holds, as CycloneDX: dist/sbom.cdx.json

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DASHBOARD := $(shell find service/dashboard -path '*/node_modules' -prune -o -path '*/dist' -prune -o -type f -print)

# The dashboard's packages, where there is a Node that its build would use (hatch_build.py): npm then finds them there,
# and the dashboard's checks can run while pip installs.
NODE := $(shell node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && command -v npm)
MODULES := service/dashboard/node_modules/.package-lock.json

.PHONY: run test test-all coverage check check-lint check-types check-layers check-dashboard install sbom clean

run: $(INSTALLED)
	$(BIN)/python -m warpsmith.service.demo $(ARGS)

test: $(INSTALLED)
	$(BIN)/python -m tests $(ARGS)

test-all: $(INSTALLED)
	$(BIN)/python -m tests --nightly $(ARGS)

# What failed tests ran counts as well; the exit status is that of the tests.
coverage: $(INSTALLED)
	$(BIN)/coverage erase
	status=0; $(BIN)/coverage run -m tests --nightly $(ARGS) || status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$status

check: check-lint check-types check-layers check-dashboard

check-lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(INSTALLED)
	$(BIN)/mypy

check-layers: $(INSTALLED)
	$(BIN)/lint-imports

check-dashboard: $(if $(NODE),$(MODULES),$(INSTALLED))
	cd service/dashboard && npm run --silent check

install: $(INSTALLED)

# The same environment gives the same file. SBOM_OF names another one, such as an image's.
SBOM_OF ?= $(BIN)/python
sbom: $(INSTALLED)
	mkdir -p dist
	$(BIN)/python -m cyclonedx_py environment --output-reproducible --validate --pyproject pyproject.toml \
	  --output-format JSON --output-file dist/sbom.cdx.json $(SBOM_OF)

# Installed again only when what is to be installed changed.
$(INSTALLED): pyproject.toml constraints.txt hatch_build.py $(DASHBOARD) | $(if $(NODE),$(MODULES))
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[worker,cute,tilelang,dev,models]"
	touch $@

$(MODULES): service/dashboard/package-lock.json
	cd service/dashboard && npm ci --silent --no-audit --no-fund
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
