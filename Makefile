# Everything runs in a private environment, .venv, that make creates by itself: `python3 -m venv` and pip, no more.
# The second run of any target finds its stamp and is quick.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help dev test lint types unit integration system soak demo bench schema fmt clean

VENV := .venv
BIN  := $(VENV)/bin
ARGS ?=

# Succeeds on a Python that is new enough and can make an environment.
SUITABLE := -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
# The first one on this machine; `make PYTHON=/path/to/python3 ...` names another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python $(SUITABLE) && { command -v $$python; break; }; done)

# Most tests wait for databases and processes: as many run at once as there are cores. `make test WORKERS=0` runs one.
WORKERS ?= logical
# Tests of whole processes wait even more.
SYSTEM_WORKERS ?= 3
# A test starts many processes: what they import is compiled once.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(VENV)/dev.stamp ## Make the environment for working here, and nothing else

test: lint types unit integration system ## Run every check, as CI does

lint: dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports

types: dev
	$(BIN)/mypy

unit: dev
	$(PYTEST) tests/architecture tests/unit tests/property tests/conformance

# On the embedded PostgreSQL, and again on an installed one where there is one.
# What is about SQL itself is repeated on an installed PostgreSQL of another version: the schema, its rights, its plans, its costs and
# interleavings, every statement, and plain SQL. What is about our processes and our Python is the same on any.
ON_INSTALLED := tests/migration $(wildcard $(addprefix tests/integration/test_, schema_*.py statements.py moves.py roles.py \
	interleavings.py costs.py plain_sql.py put_races.py relay_claims.py))

integration: dev
	$(PYTEST) tests/integration tests/migration
	@if $(BIN)/python -c 'from outbox.embedded import find_binaries; find_binaries("installed")' 2>/dev/null; \
	then set -x; $(PYTEST) $(ON_INSTALLED) --pg=installed; \
	else echo 'No PostgreSQL is installed here: the integration tests ran on the embedded one only.'; fi

# What several tests look at is made once: they stay together.
system: dev
	$(BIN)/pytest --numprocesses=$(SYSTEM_WORKERS) --dist=loadgroup tests/crash tests/acceptance tests/packaging

soak: dev ## The long run: kills, zombies and broken load, round after round (ARGS="--rounds 3 --seed 7")
	$(BIN)/python -m tests.crash.soak $(ARGS)

demo: $(VENV)/demo.stamp ## Run the main job on an embedded PostgreSQL, with faults (ARGS=--json)
	@$(BIN)/outbox demo $(ARGS)

bench: dev ## Measure, and print what was measured
	$(BIN)/python -m benchmarks $(ARGS)

schema: dev ## Write tests/migration/schema.sql anew, for the review of a change of the schema
	$(BIN)/pytest tests/migration --write-schema -k reviewed

fmt: dev ## Format, and repair what can be repaired without thinking
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## Remove the environment and the caches
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	@$(or $(PYTHON),false) $(SUITABLE) || { echo >&2 'A Python >= 3.11 with its venv module is needed$(if $(PYTHON), and $(PYTHON) is none)' \
	    '(on Debian: apt install python3 python3-venv).' \
	    'To name one: make PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Who only wants to see the demo does not wait for linters and test tools.
$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/demo.stamp
