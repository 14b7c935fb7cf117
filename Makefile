# `make` alone explains. Every target prepares .venv first, once; all that is needed is a Python >= 3.11.
.DEFAULT_GOAL := help
.NOTPARALLEL:
# Containers often set this. Each of the thousand processes of a run would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup restate demo docs release-check size screenshots reference diagrams wording test test-more test-fast check check-format lint pyright mypy types imports pytest bench bench-compare chaos proof mutate format lock clean

# Empty: scripts/setup.sh looks for one. Otherwise the Python that .venv is made with.
PYTHON ?=
ARGS ?=
# Empty: all that pyproject.toml names.
PARTS ?=
WORKERS ?= 2
BIN := .venv/bin
READY := .venv/.ready
CODE := $(wildcard src tests examples benchmarks chaos proof)
DEMO_coding := examples/coding_agent/demo.py
DEMO_mail := examples/mail_assistant/mail_demo.py
DEMO_proxy := examples/mcp_proxy/proxy_demo.py
DEMO_worker := examples/worker/worker_demo.py
FAST := tests/runtime tests/transaction tests/turns tests/prompt tests/resources tests/store/sqlite \
	$(addprefix tests/session/test_,slices.py session.py calls.py machine.py) \
	$(addprefix tests/serde/test_,codecs.py faults.py inputs.py)

help: ## Say what can be made (this text)
	@echo "Handrail. All that is needed is Python >= 3.11; the first run prepares .venv."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: ARGS='...' is handed to demo, pytest, wording, bench, bench-compare, chaos, proof and mutate; WORKERS=3"
	@echo "sets the workers of test and test-fast, PARTS='src tests' what pyright checks; PYTHON=/path/to/python makes .venv with it."

setup: $(READY) ## Prepare .venv; done again when the pins or pyproject.toml change

$(READY): pyproject.toml requirements/dev.txt requirements/gold.txt requirements/npm.json scripts/setup.sh scripts/npm.sh
	@sh scripts/setup.sh "$(PYTHON)"
	@touch $@

restate: setup ## Install Restate's server, 220 MB that only test-more and chaos need
	@sh scripts/npm.sh restate

demo: setup ## Run the refund desk, ARGS=coding, mail, proxy or worker; ARGS="--model openai:..." takes a real model
	@$(BIN)/python $(if $(DEMO_$(firstword $(ARGS))),\
		$(DEMO_$(firstword $(ARGS))) $(wordlist 2,$(words $(ARGS)),$(ARGS)),examples/refund_desk/main.py $(ARGS))

test: setup ## Run every check below, all of them even if one fails; fail if any did
	@sh scripts/test.sh

test-more: restate ## Run the full forms of the long tests, the tests on other Pythons that uv finds, and pyright on all code
	@$(MAKE) --no-print-directory pyright
	@echo "--- full forms"
	@HANDRAIL_TESTS=full $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 10 --durations-min 1 \
		$$(grep -rl "tests.extent" tests --include="test_*.py")
	@for fast in 0 1; do echo "--- HANDRAIL_FAST=$$fast"; HANDRAIL_FAST=$$fast $(BIN)/pytest --numprocesses 2 --dist loadfile \
		-p no:inline_snapshot tests/runtime tests/scenarios tests/session tests/transaction || exit 1; done
	@sh scripts/other-pythons.sh

test-fast: setup ## Run some cases of the tests of the core that start no process; HANDRAIL_TESTS=full runs all
	@echo "--- the core"
	@HANDRAIL_TESTS=$${HANDRAIL_TESTS:-short} $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(FAST)

check: setup ## Run the static checks alone; test-more has pyright check the tests too
	@sh scripts/check.sh

check-format: setup ## Check: ruff format
	@echo "--- ruff format --check"
	@$(BIN)/ruff format --check .

lint: setup ## Check: ruff
	@echo "--- ruff check"
	@$(BIN)/ruff check .

pyright: setup ## Check: pyright, strict; of all code, or of the folders in PARTS
	@echo "--- pyright $(PARTS)"
	@$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python $(PARTS)

mypy: setup ## Check: mypy, strict
	@echo "--- mypy --strict"
	@$(BIN)/mypy --strict $(CODE)

# `--verifytypes` looks for the package with the Python that is first on the path; it has no other option for it. A name
# that uses another one without a type is reported too, as partially unknown; the lines without those say what to fix.
types: setup ## Check: all checkers agree on the type of every public name
	@echo "--- pyright --verifytypes"
	@found=$$(PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=src $(BIN)/pyright --verifytypes handrail --ignoreexternal); \
		failed=$$?; printf '%s\n' "$$found" | grep -e ' error: ' -e 'completeness score' | grep -v 'partially unknown'; \
		exit $$failed

size: setup ## Check: lines of code and modules of each package, beside their budgets in pyproject.toml
	@$(BIN)/python scripts/size.py $(ARGS)

imports: setup ## Check: the layers and the other import contracts
	@echo "--- lint-imports"
	@$(BIN)/lint-imports --no-logo

pytest: setup ## Check: the tests on three workers, with branch coverage; ARGS="tests/runtime -x" runs a part, plain
	@echo "--- pytest"
	@$(BIN)/pytest $(or $(ARGS),--cov --numprocesses 3 --dist loadfile)

wording: setup ## Write the texts that tests compare messages with, tests/wording.txt; ARGS=tests/runtime: those of a part
	@$(BIN)/pytest --write-wording --numprocesses 3 --dist loadfile $(ARGS)

bench: setup ## Measure the costs of docs/reference/measurements.md
	@$(BIN)/python -m benchmarks $(ARGS)

bench-compare: setup ## Compare the costs of a call with those of another commit, REF=main; without it, of the last one
	@$(BIN)/python -m benchmarks.compare $(or $(REF),HEAD) $(ARGS)

removed-tests: setup ## List tests that another commit has and this tree has not, REF=main; without it, the last one
	@$(BIN)/python -m tests.architecture.removed_tests $(or $(REF),HEAD)

diagrams: setup ## Draw the diagrams of the docs from the tables of the code
	@PYTHONPATH=. $(BIN)/python -m tests.docs.diagrams

docs: setup ## Build the site into build/site, strictly and offline
	@PYTHONPATH=. $(BIN)/python -m tests.docs.site

release-check: setup ## Build wheel and sources into dist, check them, and install them in a fresh environment: two minutes
	@PYTHONPATH=. $(BIN)/python -m scripts.release_check

screenshots: docs ## Look at pages of the site, and of `handrail view`, in a Chromium: light and dark, wide and narrow
	@$(BIN)/uv run --quiet --no-project --isolated --python $(BIN)/python --with-requirements requirements/docs.txt \
		python scripts/screenshots.py
	@PYTHONPATH=. $(BIN)/python scripts/view_screenshots.py

reference: setup ## Write the page of the reference that is made from the tables of a store
	@PYTHONPATH=. $(BIN)/python -m tests.docs.store_schema

chaos: restate ## Kill programs, and workers at random over SQLite and PostgreSQL; ARGS="--kills 100" makes it short
	@$(BIN)/python -m chaos $(ARGS)

proof: setup ## Print the table by failure, with Handrail and without; ARGS="--row killed --column langgraph-sync" is one cell
	@$(BIN)/python -m proof $(ARGS)

mutate: setup ## Change the code at random places, 200 of them, and print what no test notices; ARGS="--mutants 20"
	@$(BIN)/uv run --quiet --no-project --isolated --python $(BIN)/python --with-requirements requirements/mutate.txt \
		python scripts/mutate.py $(ARGS)

format: setup ## Format the code, and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup ## Pin the newest versions that pyproject.toml admits
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --upgrade --quiet --universal \
		--generate-hashes --no-emit-index-url --no-header --output-file requirements/dev.txt
	@for group in docs mutate; do $(BIN)/uv pip compile --group $$group --upgrade --quiet --universal \
		--generate-hashes --no-emit-index-url --no-header --output-file requirements/$$group.txt || exit; done
	@$(BIN)/uv pip compile --group gold --no-deps --constraints requirements/dev.txt --upgrade --quiet --universal \
		--generate-hashes --no-emit-index-url --no-header --output-file requirements/gold.txt
	@for each in plain pydantic-ai dbos langgraph openai-agents; do $(BIN)/uv pip compile pyproject.toml \
		--group proof-$$each --upgrade --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--output-file requirements/proof-$$each.txt || exit; done

clean: ## Remove .venv and every cache
	rm -rf .venv .proof build dist .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
