# Every target sets itself up: a fresh Debian or Ubuntu with Python 3.11, make and git is enough.

BIN := .venv/bin
COVERED := tests/access tests/cli tests/cluster tests/groups tests/queues tests/services tests/sessions tests/staging tests/topics
CACHES := .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Every worker and every server would compile all that it imports, once more in every run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test again fast coverage sim chaos check bench docs clean

help:
	@echo 'make demo     start a server, show what it does, stop it; DEMO=--serve keeps it, with traffic, for its page'
	@echo 'make test     all tests'
	@echo 'make again    those that failed in the last run, one after the other'
	@echo 'make fast     the tests that need no server and no patience'
	@echo 'make coverage which lines the fast tests and some with real servers run'
	@echo 'make sim      simulates groups for some minutes: SIM="--minutes 60 --first 5000"'
	@echo 'make chaos    faults on real nodes for some minutes, and the longest tests: CHAOS="--minutes 30 --seed 7"'
	@echo 'make check    formatting, lint, types, layers'
	@echo 'make bench    all benchmarks, and the tables in docs/performance.md'
	@echo 'make docs     the documents as pages for a browser, in build/site'
	@echo 'make setup    only what the others do first: .venv with the pinned packages'
	@echo 'make clean    remove .venv, caches and build; never data'
	@echo
	@echo 'PYTHON=/path/to/python chooses the Python (3.11 or newer).'

setup:
	@tools/setup

demo: setup
	@$(BIN)/moor demo $(DEMO)

test: setup
	$(BIN)/python -m pytest -m "not long" -n auto --dist loadscope --no-loadscope-reorder --durations 15

# What failed beside others on a busy machine, by itself: what fails again is broken, what passes is unsteady
# and is named here.
again: setup
	@echo 'These failed, and are run once more, alone:'
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -n 0 -v

fast: setup
	$(BIN)/python -m pytest -m "not process and not slow" -n logical --dist worksteal --hypothesis-profile brief

# Children are measured too: workers of xdist, and the servers that tests start. A server that is killed writes
# nothing, so of those only tests that stop theirs count.
coverage: setup
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -m "not process and not long" -n logical --dist worksteal
	$(BIN)/python -m coverage run -m pytest -m "process and not slow and not long" -n logical $(COVERED)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

sim: setup
	$(BIN)/python -m tests.core.group.long_run $(SIM)

chaos: setup
	@$(BIN)/python -m chaos.run $(CHAOS)
	$(if $(findstring --quick,$(CHAOS)),,$(BIN)/python -m pytest -m long -n logical --dist loadscope)

check: setup
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m bench.run

docs: setup
	@tools/docs

clean:
	rm -rf .venv build dist $(CACHES)
	find src tests bench chaos tools -name __pycache__ -type d -prune -exec rm -rf {} +
