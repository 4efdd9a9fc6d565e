# Everything a person types. `make help` lists it; each target says what it does in the words behind ##.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
PY := $(BIN)/python
UV_VERSION := 0.13.9
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tokenpool
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
LOCKS := requirements/dev.txt requirements/operator.txt requirements/router.txt requirements/engine.txt

# Two shards on one machine must not spin each other to death; a test is no different.
export OMP_WAIT_POLICY := passive
export PYTHONPATH := $(CURDIR)/e2e
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
# Without bytecode every process compiles torch and transformers anew: eight seconds instead of three.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environment -------------------------------------------------------------------------------------------------
$(UV):
	@echo "· uv $(UV_VERSION)"
	@python3 -c 'import ensurepip, venv' 2>/dev/null || (apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null)
	@python3 -m venv $(CACHE)/uv-$(UV_VERSION) && $(CACHE)/uv-$(UV_VERSION)/bin/pip install -q --disable-pip-version-check uv==$(UV_VERSION)

$(VENV)/.done: requirements/dev.txt pyproject.toml | $(UV)
	@echo "· Python environment from requirements/dev.txt (torch is large: about a minute on a new machine)"
	@$(UV) venv -q --allow-existing $(VENV)
	@VIRTUAL_ENV=$(VENV) $(UV) pip sync -q --require-hashes requirements/dev.txt
	@VIRTUAL_ENV=$(VENV) $(UV) pip install -q --no-deps -e .
	@touch $@

# The engine's CPU kernel. Without a compiler, or on another kind of CPU, tests of it say that they are skipped.
KERNEL := workload/tokenpool_engine/compute/cpu_kernel
$(KERNEL).so: $(KERNEL).c workload/tokenpool_engine/compute/build_kernel.sh
	@echo "· CPU kernel"
	@sh workload/tokenpool_engine/compute/build_kernel.sh $@.new && mv $@.new $@ || echo "  not built; the engine computes with torch"

.PHONY: env kernel
env: $(VENV)/.done kernel ## Make the Python environment in .venv, and the engine's CPU kernel
ifeq ($(shell uname -m),x86_64)
kernel: $(KERNEL).so
endif

.PHONY: locks
locks: $(UV) ## Resolve the hashed locks in requirements/ anew
	@for extra in operator router engine; do \
	  $(UV) pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
	    --extra $$extra -o requirements/$$extra.txt; done
	@$(UV) pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
	  --all-extras --group dev -o requirements/dev.txt
	@echo "hatchling>=1.30" | $(UV) pip compile -q - --universal --python-version 3.11 --generate-hashes --no-header \
	  -o requirements/build.txt
	@echo "mypy[mypyc]>=2.4,<3" | $(UV) pip compile -q - --universal --python-version 3.11 --generate-hashes --no-header \
	  -o requirements/compile.txt
	@echo "openai>=1.109,<2" | $(UV) pip compile -q - --universal --python-version 3.11 --generate-hashes --no-header \
	  -o requirements/openai-older.txt

.PHONY: crds
crds: env ## Write crds/tokenpool.yaml and the chart's copy from the models
	@$(PY) -m tokenpool_api.crd

# --- what tests and demo need -------------------------------------------------------------------------------------
.PHONY: kubernetes images model clients programs prepare
kubernetes: env ## Build the local control plane (Go; once per machine) and fetch helm and kubectl
	@$(PY) -m cluster build
images: env ## Build the operator, router and engine images
	@$(PY) -m images build
model: env ## Get SmolLM2-135M-Instruct as safetensors
	@$(PY) -m models
clients: env ## Get the older openai client that the API is tested with beside the present one
	@$(PY) -m clients >/dev/null
programs: env ## Get the redis-server that the router's shared state is tested with
	@$(PY) -m programs redis-server >/dev/null
prepare: kubernetes images model ## What the cluster needs; `make -j3 prepare` does it side by side

# --- a cluster to play with ---------------------------------------------------------------------------------------
.PHONY: cluster-up cluster-down cluster-shell demo demo-down
cluster-up: kubernetes ## Start a Kubernetes cluster (CLUSTER=local|kind|kubeconfig NODES=1|2 GPUS=0)
	@$(PY) -m cluster up
cluster-down: env ## Stop it and leave nothing behind
	@$(PY) -m cluster down
cluster-shell: env ## A shell inside the cluster's network (or: make cluster-shell CMD="curl …")
	@$(PY) -m cluster shell $(CMD)

demo: ## From nothing to a streamed answer of a real model through a real TokenPool
	@$(MAKE) -j3 prepare
	@$(PY) -m demo up
demo-down: env ## Remove the demo and its cluster
	@$(PY) -m demo down

# --- tests --------------------------------------------------------------------------------------------------------
.PHONY: test checks lint types contracts format test-unit test-compiled test-model test-integration test-e2e
test: ## Everything: lint, types, contracts, unit, model, integration, e2e
	@$(MAKE) -j4 prepare checks
	@$(MAKE) test-model
	@$(MAKE) test-integration
	@$(MAKE) test-e2e

checks: lint types contracts test-unit

lint: env ## ruff: format and rules
	@echo "· lint"; $(BIN)/ruff format --check -q . && $(BIN)/ruff check -q .
types: env ## mypy, strict
	@echo "· types"; $(BIN)/mypy --no-error-summary
contracts: env ## import-linter: who may import whom
	@echo "· contracts"; $(BIN)/lint-imports --no-logo 2>&1 | tail -n 12
format: env ## Rewrite the code as lint wants it
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix .

test-unit: env clients ## Unit tests (seconds)
	@echo "· unit tests"; $(BIN)/pytest tests/unit -q -n 2 -m "not model"
	@$(MAKE) test-compiled
test-compiled: env ## The router's tests again, on the router as its image has it: compiled
	@compiled=$$(PYTHONPATH=$(CURDIR)/bench:$(PYTHONPATH) $(PY) -m router_bench.compiled | tail -n 1); \
	  echo "· tests of the compiled router"; PYTHONPATH=$$compiled $(BIN)/pytest tests/unit/router -q -n 2
test-model: env model ## Unit tests that need SmolLM2's weights: greedy answers are transformers' own
	@echo "· tests with real weights"; $(BIN)/pytest tests/unit -q -m model
test-integration: kubernetes programs ## The operator against a real API server, controller manager and etcd; the router against a real Redis
	@echo "· integration tests"; $(BIN)/pytest tests/integration -q -n 2
test-e2e: prepare ## The stories of e2e/stories on a whole cluster
	@echo "· e2e stories"; $(BIN)/pytest e2e/stories -v --timeout 900

# --- benchmarks ---------------------------------------------------------------------------------------------------
.PHONY: bench-engine bench-engine-report bench-router bench-replay bench-router-report
# The servers get an environment of their own: what is exported above is for us, not for our peers.
bench-engine: env ## The engine beside vLLM and transformers serve (QUICK=1: two minutes; ARGS="--only smollm2")
	@PYTHONPATH=$(CURDIR)/bench:$(PYTHONPATH) $(PY) -m engine_bench $(if $(QUICK),--quick) $(ARGS)
bench-engine-report: env ## Write docs/performance.md from the last results
	@PYTHONPATH=$(CURDIR)/bench:$(PYTHONPATH) $(PY) -m engine_bench --report

bench-router: env model ## The router beside nginx, haproxy, envoy and other LLM routers (QUICK=1: two minutes)
	@PYTHONPATH=$(CURDIR)/bench:$(PYTHONPATH) $(PY) -m router_bench $(if $(QUICK),--quick) $(ARGS)
bench-replay: env ## Policies of the router on public traces and simulated shards (QUICK=1: half a minute)
	@PYTHONPATH=$(CURDIR)/bench:$(PYTHONPATH) $(PY) -m router_bench.replay $(if $(QUICK),--quick) $(ARGS)
bench-router-report: env ## Write the router's parts of docs/performance.md from the last results
	@PYTHONPATH=$(CURDIR)/bench:$(PYTHONPATH) $(PY) -m router_bench.report

.PHONY: clean
clean: ## Remove the environment (caches in ~/.cache/tokenpool stay)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
