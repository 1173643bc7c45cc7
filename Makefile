# jobsetpy. `make help` lists the targets. Each target installs or builds everything that it needs;
# caches are in $XDG_CACHE_HOME (or ~/.cache)/jobsetpy and in the tools' own cache folders.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Python's container images set it. Tests start hundreds of interpreters; each would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs
PYTEST := $(BIN)/python -m pytest
ARGS ?=
# Programs that a cluster needs; tests of the chart, alerts and documentation need more.
GET := $(BIN)/python hack/cluster binaries
CONTROL_PLANE := etcd kube-apiserver kube-controller-manager kube-scheduler
TOOLS := kubectl helm promtool prometheus
CLIENTS := kueue trainer
# Hashes without index addresses: uv writes those only if requested.
PIN := --generate-hashes --no-header --no-annotate --python-version 3.11 --universal

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# ---- set-up ---------------------------------------------------------------------------------------

$(STAMP): requirements/test.txt requirements/lint.txt requirements/build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: $(PYTHON) is older than Python 3.11; specify a newer one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "== Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "make: cannot create a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@set -o pipefail; $(BIN)/pip install --disable-pip-version-check --progress-bar off --no-compile --no-deps \
	  --require-hashes -r requirements/test.txt -r requirements/lint.txt -r requirements/build.txt | awk '\
	  /^Collecting/ && ++n % 20 == 0 { print "   " n " packages fetched"; fflush() } \
	  /^Installing/ { print "   installing " n " packages"; fflush() }'
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Create the Python environment
	@:

$(DOCS): $(STAMP) requirements/docs.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

.PHONY: binaries
binaries: $(STAMP) ## Download or build all programs that tests and clusters run, into the cache
	@$(GET)

# ---- development ----------------------------------------------------------------------------------

.PHONY: fmt
fmt: $(STAMP) ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

.PHONY: lint
lint: ruff types ## Check formatting, lint rules, types and import contracts

.PHONY: ruff
ruff: $(STAMP)
	@echo "== ruff" && $(BIN)/ruff format --check . && $(BIN)/ruff check .

.PHONY: types
types: $(STAMP)
	@echo "== mypy" && $(BIN)/mypy
	@echo "== import contracts" && $(BIN)/lint-imports

.PHONY: verify
verify: $(STAMP) ## Check that generated files are up to date
	@$(BIN)/python hack/generate/update_crds.py --verify
	@$(BIN)/python hack/generate/update_bodies.py --verify
	@$(BIN)/python hack/generate/update_monitoring.py --verify
	@$(BIN)/python hack/generate/update_reference.py --verify
	@$(BIN)/python hack/generate/update_plugin_page.py --verify
	@$(BIN)/python hack/generate/update_versions.py --verify
	@$(BIN)/python hack/generate/update_rbac.py --verify
	@$(BIN)/python hack/generate/update_rooms.py --verify
	@$(BIN)/python hack/generate/update_chart.py --verify

.PHONY: generate
generate: $(STAMP) ## Write the generated files
	@$(BIN)/python hack/generate/update_crds.py
	@$(BIN)/python hack/generate/update_bodies.py
	@$(BIN)/python hack/generate/update_reference.py
	@$(BIN)/python hack/generate/update_plugin_page.py
	@$(BIN)/python hack/generate/update_versions.py
	@$(BIN)/python hack/generate/update_rbac.py
	@$(BIN)/python hack/generate/update_rooms.py
	@$(BIN)/python hack/generate/update_monitoring.py
	@$(BIN)/python hack/generate/update_chart.py # last: it reads the others' output

.PHONY: helm-lint
helm-lint: $(STAMP) ## Check the Helm chart
	@$$($(GET) helm) lint --strict charts/jobsetpy

# ---- tests ----------------------------------------------------------------------------------------

WITHOUT_SERVERS := not cluster and not node and not clients and not foreign and not releases
PLAIN := test/architecture test/property test/unit test/contract

.PHONY: check
check: lint ## Run lint, and the tests that need no cluster on all cores, except the longest searches
	@$(PYTEST) -q -n auto --dist worksteal -m "$(WITHOUT_SERVERS) and not exhaustive" $(PLAIN) $(ARGS)

.PHONY: unit
unit: $(STAMP) ## Run the tests that need no cluster
	@$(PYTEST) -m "$(WITHOUT_SERVERS)" $(PLAIN) $(ARGS)

.PHONY: integration
integration: $(STAMP) ## Run the tests against a real control plane
	@$(GET) $(CONTROL_PLANE) $(TOOLS)
	@$(PYTEST) -m "cluster and not node and not clients and not releases" $(ARGS)

.PHONY: e2e
e2e: $(STAMP) ## Run the tests with real pods on a real node (Linux, root)
	@$(GET) $(CONTROL_PLANE) kubelet coredns kubectl helm
	@$(PYTEST) -m "node and not clients" $(ARGS)

.PHONY: test-clients
test-clients: $(STAMP) ## Run the tests with Kueue and other projects' clients (part of `make test` if inputs changed)
	@$(GET) $(CONTROL_PLANE) kubelet coredns kubectl $(CLIENTS)
	@$(BIN)/python hack/ci/unchanged.py $(ARGS)

.PHONY: test-arm64
test-arm64: $(STAMP) ## Test images for arm64 under qemu-user (Debian; downloads packages and qemu once)
	@$(PYTEST) -m foreign $(ARGS)

.PHONY: test-versions
test-versions: $(STAMP) ## Run selected tests on each Kubernetes release (ARGS="--kubernetes 1.35.4"; root)
	@$(BIN)/python hack/ci/versions.py $(ARGS)
	@$(BIN)/python hack/generate/update_versions.py

.PHONY: test-wheel
test-wheel: $(STAMP) ## Test users' programs with the installed wheel, on each installed Python from 3.11 to 3.14
	@$(BIN)/python hack/ci/wheel_tests.py $(ARGS)

.PHONY: test
test: ruff ## Run lint, `types`, `verify`, and the unit, integration and end-to-end tests
	@$(BIN)/python hack/ci/run_tests.py $(ARGS)

.PHONY: test-all
test-all: ## Run all tests for a release: `test` with other projects' clients, `faults`, a soak, `test-wheel`
	@FORCE=1 $(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory faults
	@$(MAKE) --no-print-directory soak SECONDS=600
	@$(MAKE) --no-print-directory test-wheel

# ---- the product ----------------------------------------------------------------------------------

CLUSTER = $(if $(KIND),--kind $(KIND),$(if $(K3D),--k3d $(K3D)))
.PHONY: cluster
cluster: $(STAMP) ## Start a cluster with jobsetpy on it, or install it on yours (KIND=name, K3D=name)
	@$(BIN)/python hack/local.py $(CLUSTER)

.PHONY: cluster-down
cluster-down: $(STAMP) ## End the cluster of `make cluster`
	@$(BIN)/python hack/local.py --down

.PHONY: demo
demo: $(STAMP) ## Start a real cluster and a JobSet, kill one worker, and show the restart in place
	@$(GET) $(CONTROL_PLANE) kubelet kubectl # kubectl: to inspect the cluster during the demo
	@$(BIN)/python hack/demo.py $(ARGS)

# From PyPI: about 3 GB, since torch for Linux includes CUDA.
TRAINERS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/jobsetpy/trainers
# If the image of PyTorch was built here, its packages (5 GB) are reused.
TORCH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/jobsetpy/training/torch-packages

.PHONY: trainers
trainers: $(STAMP) ## Kill a rank of trainings with Hugging Face's Trainer and Lightning (downloads 3 GB once)
	@test -e $(TRAINERS)/.installed || { $(PYTHON) -m venv $(TRAINERS) \
	  && { test ! -d $(TORCH) || echo $(TORCH) >$$(echo $(TRAINERS)/lib/python3*/site-packages)/torch.pth; } \
	  && $(TRAINERS)/bin/pip install --quiet --disable-pip-version-check -r bench/trainers.txt \
	  && touch $(TRAINERS)/.installed; }
	@for each in transformers lightning; do $(BIN)/python -m bench.training_local --framework $$each \
	  --python $(TRAINERS)/bin/python --processes 2 --ways torchrun auto $(ARGS) || exit 1; done

.PHONY: recordings
recordings: $(STAMP) ## Record the documentation's plugin output, walks and dashboard on a real cluster (Chromium)
	@$(GET) $(CONTROL_PLANE) kubelet
	@$(BIN)/python hack/docs/record_plugin.py $(ARGS)
	@$(BIN)/python hack/docs/record_walks.py
	@$(GET) prometheus
	@$(BIN)/python hack/docs/record_dashboard.py

.PHONY: bench
bench: $(STAMP) ## Run all benchmarks, one after the other
	@$(GET) $(CONTROL_PLANE) kubelet coredns
	@$(BIN)/python bench/run.py $(ARGS)

SECONDS ?= 1800
.PHONY: soak
soak: $(STAMP) ## Check for leaks and stuck objects with random JobSets for half an hour (SECONDS=1800, ARGS=--help)
	@$(GET) $(CONTROL_PLANE)
	@$(BIN)/python hack/soak.py --seconds $(SECONDS) $(ARGS)

.PHONY: faults
faults: $(STAMP) ## Run the tests of faults with full outages: API server 60 s, etcd 30 s
	@$(GET) $(CONTROL_PLANE)
	@JOBSETPY_OUTAGE_S=60 JOBSETPY_ETCD_S=30 $(PYTEST) -s test/integration/manager/test_fault_*_real.py $(ARGS)

.PHONY: docs
docs: $(DOCS) ## Build the documentation's site in build/site; fails on broken links
	@$(BIN)/python hack/docs/docs_site.py $(ARGS)

.PHONY: image
image: $(STAMP) ## Build container images as tar archives, without a container engine
	@$(BIN)/python hack/images/build.py all --out build/images

.PHONY: release
release: $(STAMP) ## Build all files of a release in dist/ (IMAGE_PREFIX=..., SIGN_KEY=..., ALLOW_DIRTY=1)
	@$(BIN)/python hack/release/release.py $(ARGS)

.PHONY: requirements
requirements: ## Update the pinned dependencies (needs uv)
	@for g in runtime test lint build docs; do \
	  uv pip compile -q pyproject.toml --all-extras $$([ $$g = runtime ] || echo "--group $$g") \
	    $(PIN) -o requirements/$$g.txt; done
	@uv pip compile -q pyproject.toml $(PIN) -o requirements/agent.txt

.PHONY: clean
clean: ## Remove files that builds and tests left in this folder
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
