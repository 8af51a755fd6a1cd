# Everything runs in .venv, which is made when there is none; Python 3.11 or newer and make are all that is needed.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # each of the many processes that tests start would compile the package again

.PHONY: demo test quick nightly fresh oldest lock soak lint docs bench clean

demo: .venv/h2fdp
	$(BIN)/h2fdp run experiments/quickstart.yaml

# Each file on one worker, so that its fixtures are made once; tests/tiers.py puts the longest first. Three on two cores:
# tests of Ray wait for its processes half of their time.
BY_FILE := --dist loadfile --no-loadscope-reorder
WORKERS := -n 3 $(BY_FILE)
# Which third of the cases is tried follows from the commit (tests/tiers.py), and with it the examples of hypothesis.
TURN := $(shell echo $$((0x$$(git rev-parse HEAD 2>/dev/null | cut -c 1-7 | grep . || echo 0) % 3)))
A_THIRD := --hypothesis-seed=$(TURN)

test: .venv/dev
	H2FDP_TURN=$(TURN) $(BIN)/pytest $(WORKERS) $(A_THIRD) $(OPTIONS)

# What starts no run, no Ray and no other process, and does not compute for long: nothing waits, so a core has one worker.
quick: .venv/dev
	H2FDP_TURN=$(TURN) $(BIN)/pytest -n auto --maxprocesses 4 $(BY_FILE) $(A_THIRD) $(OPTIONS) -m "not run and not ray and not process and not slow"

# All random cases, and more of those that have numbers without end.
nightly: .venv/dev
	H2FDP_EXAMPLES=40 H2FDP_MUTATIONS=2000 H2FDP_TREES=78 $(BIN)/pytest $(WORKERS) $(OPTIONS)

# README's commands where nothing of ours was ever run (CONTRIBUTING.md): make fresh TRY="demo quick"
TRY ?= demo test
fresh:
	.ci/fresh $(TRY)

# The lowest versions that pyproject.toml allows, in an environment of their own (.ci/oldest).
oldest:
	.ci/oldest

# The versions that were tested: pip install --requirement requirements.lock
lock: .venv/dev
	$(BIN)/python .ci/versions.py tested > requirements.lock

# Long and large: minutes, and gigabytes of memory.
soak: .venv/dev
	$(BIN)/python -m benchmarks.soak

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/dev
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

bench: .venv/dev
	$(BIN)/python -m benchmarks

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "h2fdp needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/h2fdp: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/h2fdp $@

clean:
	rm -rf .venv docs/_build
