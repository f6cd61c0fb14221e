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

# Where there is a Node that the dashboard's build would use, Make builds it, with -j2 beside pip; else pip does, by a Node
# of PyPI's (hatch_build.py).
NODE := $(if $(filter-out 0,$(WARPSMITH_SKIP_DASHBOARD)),,$(shell node -e \
  'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && command -v npm))
MODULES := service/dashboard/node_modules/.package-lock.json
BUILT := service/dashboard/dist/index.html
READY := $(INSTALLED) $(if $(NODE),$(BUILT))

.PHONY: run test test-all coverage check check-lint check-types check-layers check-dashboard install sbom clean

run: $(READY)
	$(BIN)/python -m warpsmith.service.demo $(ARGS)

test: $(READY)
	$(BIN)/python -m tests $(ARGS)

test-all: $(READY)
	$(BIN)/python -m tests --nightly $(ARGS)

# What failed tests ran counts as well; the exit status is that of the tests.
coverage: $(READY)
	$(BIN)/coverage erase
	status=0; $(BIN)/coverage run -m tests --nightly $(ARGS) || status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$status

check: check-lint check-types check-layers check-dashboard

check-lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# A worker that does not start within 3 s ends mypy with 2, as on a busy machine: one process then checks everything.
check-types: $(INSTALLED)
	$(BIN)/mypy --num-workers 2 || { test $$? -eq 2 && $(BIN)/mypy; }

check-layers: $(INSTALLED)
	$(BIN)/lint-imports

# Its build checks its types as well.
check-dashboard: $(if $(NODE),$(BUILT),$(INSTALLED))
	cd service/dashboard && npm run --silent $(if $(NODE),lint && npm run --silent test,check)

install: $(READY)

# The same environment gives the same file. SBOM_OF names another one, such as an image's.
SBOM_OF ?= $(BIN)/python
sbom: $(INSTALLED)
	mkdir -p dist
	$(BIN)/python -m cyclonedx_py environment --output-reproducible --validate --pyproject pyproject.toml \
	  --output-format JSON --output-file dist/sbom.cdx.json $(SBOM_OF)

# Installed again only when what is to be installed changed. The pip that Python brings may be years old, and take a
# minute longer to see what is to be installed. pip compiles bytecode on one core: it is left to one process a core, which
# skip what cannot be compiled as pip does, and what hardly anything imports: that is compiled by whoever does.
$(INSTALLED): pyproject.toml constraints.txt hatch_build.py $(if $(NODE),,$(DASHBOARD))
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade -c constraints.txt pip
	$(if $(NODE),WARPSMITH_SKIP_DASHBOARD=1) $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  -c constraints.txt -e ".[worker,cute,tilelang,dev,models]"
	$(BIN)/python -m compileall -qq -j 0 -x '/transformers/models/|/tests?/' $(VENV)/lib || true
	touch $@

$(BUILT): $(DASHBOARD) $(MODULES)
	cd service/dashboard && npm run --silent build
	touch $@

$(MODULES): service/dashboard/package-lock.json
	cd service/dashboard && npm ci --silent --no-audit --no-fund
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .mypy_worker.* .ruff_cache .pytest_cache .hypothesis .import_linter_cache
