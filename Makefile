# `make` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:

BIN := .venv/bin
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
AUDIT = $(UV) run --quiet --locked --isolated --only-group audit
RELEASE = $(or $(PYTHON),$(error PYTHON: the Python of an installed release is required))
BUNDLE ?= bundle
INVENTORY ?= inventory
UV := $(or $(shell command -v uv),.lab/uv/bin/uv)

.PHONY: help demo lab lab-down lint format docs oracle quick test test-long audit sbom bench bundle report lock catalogue clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/synced lab ## Deploy to a local host without a GPU, and show what it answers and how fast
	$(BIN)/pyinfra -y inventory deploy.py
	@$(BIN)/python -m tests.lab.demo

lab: ## Boot the local test host, reached over SSH on 127.0.0.1:2222
	@python3 -m tests.lab up
	@python3 -m tests.lab status

lab-down: ## Remove every local test host; downloads are kept
	@python3 -m tests.lab down

lint: .venv/synced ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/synced ## Put the code in its one form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/synced ## Write the variable tables anew
	$(BIN)/python -m docs.generate

oracle: .venv/synced ## Ask SGLang's own code what the tests of memory and parallel sizes take for true: PYTHON=RELEASE/bin/python
	$(BIN)/python -m tests.oracle $(RELEASE)
	$(BIN)/python -m tests.oracle.refusals $(RELEASE)

quick: .venv/synced ## Run the tests that need no host
	$(BIN)/pytest --numprocesses=auto

.PHONY: browser
browser:
	@command -v chromium > /dev/null || $(SUDO) apt-get install --quiet --yes chromium \
	    || echo "no chromium: the tests that look at the report in a browser are skipped"

test: browser ## Check style and types, run every test, and remove the lab, also after a failure
	@trap '$(MAKE) --no-print-directory lab-down' EXIT; \
	$(MAKE) --no-print-directory lint quick && $(BIN)/pytest -m 'not long' --durations=25 tests/programs tests/lab

test-long: .venv/synced ## Run the tests that take minutes each: killed, cut off and full hosts
	@trap '$(MAKE) --no-print-directory lab-down' EXIT; $(BIN)/pytest -m long tests/lab

lock: | $(UV) ## Resolve roles/sglang/locks/*.in into locks with hashes
	cd roles/sglang/locks && for wanted in *.in; do \
	    $(abspath $(UV)) pip compile --quiet --universal --python-version 3.11 --only-binary :all: --generate-hashes \
	        --no-annotate --custom-compile-command "make lock" --output-file "$${wanted%.in}.txt" "$$wanted" > /dev/null || exit; \
	done

catalogue: | $(UV) ## Describe SGLang's flags, asked from a release's Python: PYTHON=…, or a scratch environment
	@set -e; python=$(PYTHON); scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	if [ -z "$$python" ]; then \
	    python=$$scratch/venv/bin/python; \
	    $(UV) venv --quiet --python '>=3.11,<3.13' "$$scratch/venv"; \
	    $(UV) pip sync --quiet --require-hashes --python "$$python" \
	        $(lastword $(sort $(wildcard roles/sglang/locks/[0-9]*.txt))); \
	fi; \
	version=$$("$$python" -c 'from importlib.metadata import version; print(version("sglang"))'); \
	"$$python" roles/sglang/introspect.py 2> "$$scratch/log" > "$$scratch/flags" || { cat "$$scratch/log"; exit 1; }; \
	cp "$$scratch/flags" "roles/sglang/catalogue/$$version.json"; \
	echo "roles/sglang/catalogue/$$version.json: what it cannot tell is kept by hand in $$version.notes.yml"

audit: | $(UV) ## Look up known vulnerabilities of all that is installed, on the controller and on hosts
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(UV) export --quiet --locked --all-groups --no-emit-project --output-file "$$scratch/controller.txt" || exit; \
	for lock in "$$scratch/controller.txt" .ci/uv.txt roles/*/locks/*.txt; do \
	    echo "$${lock#"$$scratch/"}:"; \
	    $(AUDIT) pip-audit --strict --disable-pip --require-hashes --progress-spinner off --requirement "$$lock" || failed=1; \
	done; exit $${failed:-0}

sbom: | $(UV) ## List a release's packages as CycloneDX, and their licences: PYTHON=RELEASE/bin/python
	@mkdir -p results
	@$(AUDIT) cyclonedx-py environment --output-reproducible --output-file results/sbom.cdx.json $(RELEASE)
	@$(AUDIT) pip-licenses --python=$(RELEASE) --with-urls --format=markdown --output-file=results/licences.md

bundle: .venv/synced | $(UV) ## Put all that a host without a network needs into one directory: BUNDLE=…, PYTHONS="3.11 …"
	@UV=$(UV) $(BIN)/python -m roles.bundle.make $(BUNDLE) --inventory $(INVENTORY) $(addprefix --python ,$(PYTHONS))

bench: .venv/synced ## Measure Slipway beside Ansible on a lab host, into benchmarks/results.md: PARTS="…" RUNS=5
	$(BIN)/python -m benchmarks $(PARTS) $(if $(RUNS),--runs $(RUNS))

report: .venv/synced ## Write results/report.html and results/report.md from all records
	@$(BIN)/python -m roles.benchmark.report

clean: lab-down ## Remove all that was made here: hosts, downloads, virtual environment
	$(SUDO) rm -rf .lab
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/synced: uv.lock pyproject.toml | $(UV)
	$(UV) sync --locked --quiet --compile-bytecode
	@touch $@

.lab/uv/bin/uv: .ci/uv.txt
	@python3 -c 'import ensurepip' 2>/dev/null \
	    || { $(SUDO) apt-get update --quiet && $(SUDO) apt-get install --quiet --yes python3-venv; }
	python3 -m venv --clear .lab/uv
	.lab/uv/bin/pip install --quiet --require-hashes --requirement .ci/uv.txt
	@touch $@
