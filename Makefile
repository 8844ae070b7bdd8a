# `make demo` answers a question on this machine, `make test` checks everything. `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -W error

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format mypy protos protos-check unit integration fault bench-compare \
	bench-throughput bench-open-loop bench-scorer-kinds bench-store bench-worker bench-step bench-scorers \
	bench-waiting bench-simulate bench-simulate-paper install install-dev lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- what a user runs ---------------------------------------------------------------------------------

demo: $(VENV)/.runtime ## solve a sample question on a local service; KEEP=1 leaves the service running
	@exec $(BIN)/thoughtbeam demo $(if $(KEEP),--keep)

bench-compare: $(VENV)/.runtime ## the policies on the same questions; the table of README.md
	@exec $(BIN)/python -m bench.compare

bench-scorer-kinds: $(VENV)/.runtime ## gambit against step with every kind of scorer, on hard questions
	@exec $(BIN)/python -m bench.scorer_kinds

bench-open-loop: $(VENV)/.runtime ## latency while questions keep arriving, at 0.7 and 1.2 times what can be served
	@exec $(BIN)/python -m bench.open_loop

bench-throughput: $(VENV)/.runtime ## tokens per second: service against plain vLLM, capture on against off
	@exec $(BIN)/python -m bench.throughput

bench-store: $(VENV)/.runtime ## bytes per node and per token in Redis, and the time of every script and read
	@exec $(BIN)/python -m bench.store

bench-worker: $(VENV)/.runtime ## a decoder worker's own bytes per trace and per token, and how long policies decide
	@exec $(BIN)/python -m bench.worker

bench-step: $(VENV)/.runtime ## what we cost per engine step at 512 live traces, part by part
	@exec $(BIN)/python -m bench.step

bench-waiting: $(VENV)/.runtime ## what a slow scorer costs a search: tokens per second, time spent waiting
	@exec $(BIN)/python -m bench.waiting

bench-scorers: $(VENV)/.runtime ## what scores cost: MLP, gRPC around it, the sequence scorer with and without its cache
	@exec $(BIN)/python -m bench.scorers

bench-simulate: $(VENV)/.runtime ## all policies on a simulated model, in virtual time, as requests arrive at random
	@exec $(BIN)/python -m bench.simulate

bench-simulate-paper: $(VENV)/.runtime ## the same with the papers' lengths; then, with 2,000 requests, a gate on sart's P97
	@$(BIN)/python -m bench.simulate --scale paper
	@exec $(BIN)/python -m bench.simulate --scale paper --loads 1.2 --requests 2000 --gate 5 \
		--policies self_consistency sart --name simulate-gate

# --- checks -------------------------------------------------------------------------------------------

test: lint mypy protos-check ## every check: style, types, stubs, all tests (TEST_REDIS_URL: a server that they use and empty)
	$(PYTEST) tests/unit tests/integration tests/fault

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.dev ## ruff: write the format and the safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

mypy: $(VENV)/.dev ## types, strict
	$(BIN)/mypy

unit: $(VENV)/.dev ## tests without a server, seconds
	$(PYTEST) tests/unit

integration: $(VENV)/.dev ## tests on the real engine, store and gRPC, minutes
	$(PYTEST) tests/integration

fault: $(VENV)/.dev ## tests that interrupt and kill real processes
	$(PYTEST) tests/fault

# --- generated files ----------------------------------------------------------------------------------

protos: $(VENV)/.dev ## write the gRPC stubs in thoughtbeam/v1 from protos/
	$(BIN)/python scripts/gen_protos.py

protos-check: $(VENV)/.dev ## the protos pass buf lint, and the stubs match them
	$(BIN)/buf lint
	$(BIN)/python scripts/gen_protos.py --check

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url $(if $(UPGRADE),--upgrade) \
	--overrides requirements/overrides.txt --excludes requirements/left_out.txt

lock: $(VENV)/.dev ## renew requirements/{cpu,server,dev}.txt from pyproject.toml and the .in files; UPGRADE=1: newest versions
	$(LOCK) --extra cli --extra server --extra slim_sc pyproject.toml requirements/cpu.in -o requirements/cpu.txt
	$(LOCK) --extra cli --extra server pyproject.toml -c requirements/cpu.txt -o requirements/server.txt
	$(LOCK) --extra dev pyproject.toml requirements/dev.in -c requirements/cpu.txt -o requirements/dev.txt

# --- the environment ----------------------------------------------------------------------------------

install: $(VENV)/.runtime ## the environment that runs the service, in .venv
install-dev: $(VENV)/.dev ## the same with what the checks need

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
		{ echo "Thoughtbeam needs Python 3.11 to 3.14; name one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# --no-deps: the lists are complete, and leave out what vLLM declares but does not need here
$(VENV)/.runtime: $(VENV)/.created requirements/cpu.txt requirements/torch.txt pyproject.toml
	$(BIN)/pip install --quiet --no-deps --require-hashes -r requirements/cpu.txt
	@sh scripts/install_torch.sh $(BIN)/python
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

clean: ## remove the environment, caches and built packages
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
