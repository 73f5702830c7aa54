# SyncGroup. `make help` lists the targets; `make demo` and `make test` need nothing done before them.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv/bin
KUBE ?= default
EXAMPLES ?= 10
ARGS ?=
IMAGE_PREFIX ?= syncgroup
TAG ?=
ENGINE ?=
BASE_IMAGE ?=
BUILD_IMAGE ?=
VARIANTS ?=
PYTEST := $(VENV)/python -m pytest
# What is too slow for the fast stage, and where it runs instead: `test-codec`, `test-runtime`.
WITH_TORCH := tests/hostile tests/unit/kernels tests/unit/library tests/unit/gpu_worker tests/unit/examples
WITH_PROCESSES := tests/component tests/unit/linkemu
export KUBE
# Every tool writes its own state under the checkout or the user's cache, never beside the sources.
# Bytecode lives with the packages it belongs to: without it every process compiles torch and ourselves anew.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
export NUMBA_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/syncgroup/numba

##@ Start here

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: setup ## The whole idea in minutes: three regions, RL over them, what breaks and heals (ARGS=--keep leaves it running)
	@$(VENV)/python -m tools.kube build planes chart
	@if $(VENV)/python -m tools.devcluster check --level nodes >/dev/null 2>&1; then $(VENV)/python -m tools.kube build nodes; fi
	@$(VENV)/python -m tools.kube build jaeger || echo "the demo will have no traces"
	@$(VENV)/python -m tools.demo $(ARGS)

.PHONY: test-demo
test-demo: setup ## The demo in its short form, with all its acts, as a test (minutes)
	@WHOLE_DEMO=1 $(PYTEST) tests/cluster/test_demo.py

.PHONY: grpo
grpo: setup ## The RL example in one process, with plots in build/grpo: ARGS="--model smollm2 --steps 10"
	@rm -rf build/grpo
	@$(VENV)/python -m examples.grpo.local --out build/grpo $(ARGS)

.PHONY: test
test: setup ## All checks and tests (no GPU needed)
	@$(VENV)/python -m tools.kube build planes kwok --kube $(KUBE)
	@$(VENV)/python -m tools.kube build chart helm3 || echo "tests that need helm will be skipped"
	@$(VENV)/python -m tools.kube build jaeger || echo "tests that need a trace backend will be skipped"
	@$(VENV)/python -m tools.kube build s3 || echo "tests that need an S3 server will be skipped"
	@$(VENV)/python -m tools.azurite >/dev/null || echo "tests that need an Azure server will be skipped"
	@if $(VENV)/python -m tools.devcluster check --level nodes; then $(VENV)/python -m tools.kube build nodes --kube $(KUBE); fi
	@$(MAKE) --no-print-directory --output-sync=target -j2 checks test-fast COVERAGE="--cov --cov-report="
	@printf "Lines that the fast tests run: %s %%\n" "$$($(VENV)/coverage report --format=total)"
	@$(MAKE) --no-print-directory test-codec
	@$(MAKE) --no-print-directory test-runtime
	@$(MAKE) --no-print-directory test-cluster
	@$(MAKE) --no-print-directory test-links

##@ Set-up

.PHONY: setup
setup: ## Make .venv with the pinned packages (nothing to do when it is up to date)
	@$(PYTHON) -B tools/bootstrap.py

.PHONY: tools
tools: setup ## Build Kubernetes and the other programs from source, what is missing (KUBE=1.36 for another release)
	@$(VENV)/python -m tools.kube build planes kwok nodes chart --kube $(KUBE)

.PHONY: tools-lock
tools-lock: setup ## After a change in tools/kube/tools.toml: write go.mod and go.sum anew
	@$(VENV)/python -m tools.kube lock $(ARGS)

.PHONY: requirements
requirements: setup ## After a change of dependencies in pyproject.toml: pin them anew, with hashes
	@for extra in operator sidecar library interop examples dev; do \
	  uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header \
	    --extra $$extra pyproject.toml -o requirements/$$extra.txt || exit 1; done
	@uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header \
	  --constraint requirements/dev.txt - -o requirements/build.txt <<< "hatchling>=1.27"

.PHONY: engine-requirements
engine-requirements: setup ## After a change of requirements/engine-*.in: pin the packages of engines anew: ARGS=vllm
	@$(VENV)/python -m tools.engines lock $(ARGS)

##@ While working

.PHONY: fmt
fmt: setup ## Format and mend what can be mended
	@$(VENV)/ruff format --quiet .
	@$(VENV)/ruff check --quiet --fix .

.PHONY: lint
lint: setup ## ruff, layers, shell scripts, sizes, banned words
	@$(VENV)/ruff format --no-cache --quiet --check .
	@$(VENV)/ruff check --no-cache --quiet .
	@layers=$$($(VENV)/lint-imports --config importlinter.toml --no-cache --no-logo) || { echo "$$layers"; exit 1; }; \
	  grep '^Contracts:' <<< "$$layers"
	@$(VENV)/python -m tools.checks.sizes
	@$(VENV)/python -m tools.checks.words
	@$(VENV)/python -m tools.checks.purity
	@$(VENV)/python -m tools.images check
	@$(VENV)/shellcheck .ci/run

.PHONY: types
types: setup ## mypy, strict
	@$(VENV)/mypy

.PHONY: test-fast
test-fast: setup ## Tests that need no cluster (under a minute)
	@$(PYTEST) -q -n 2 -m "not cluster and not bubble" $(addprefix --ignore ,tests/gpu tests/images tests/engines $(WITH_TORCH) $(WITH_PROCESSES)) \
	  $(COVERAGE) $(ARGS)

.PHONY: test-properties
test-properties: setup ## Every property with many times as many examples: EXAMPLES=100 for a night of it
	@SYNCGROUP_EXAMPLES=$(EXAMPLES) $(PYTEST) -q -n 2 -m "hypothesis and not cluster and not bubble" \
	  -o timeout=3600 --ignore tests/hostile --ignore tests/unit/kernels tests/unit $(ARGS)

.PHONY: test-codec
test-codec: setup ## Damaged bytes by the hundred thousand, huge tensors, models, kernels through Triton's interpreter
	@$(PYTEST) -q -n 2 $(WITH_TORCH) $(ARGS)

.PHONY: test-runtime
test-runtime: setup ## Tests with processes, sockets and TLS, but no cluster
	@$(PYTEST) -q -n 2 -m "not cluster and not bubble" $(WITH_PROCESSES) $(ARGS)

.PHONY: test-cluster
test-cluster: setup ## Tests on real control planes and real nodes (KUBE=1.36 for another release)
	@$(PYTEST) -q -n 2 --dist loadgroup -m "cluster or bubble" --ignore tests/component/linkemu --ignore tests/images --ignore tests/engines $(ARGS)

.PHONY: test-links
test-links: setup ## Tests of the link emulator, which measures rates and so runs alone
	@$(PYTEST) -q -m "cluster or bubble" tests/component/linkemu $(ARGS)

.PHONY: test-gpu
test-gpu: setup ## The kernels on a real GPU (skips with the reason where there is none)
	@$(PYTEST) -q tests/gpu $(ARGS)

.PHONY: test-engines
test-engines: setup ## Plug-ins against the real packages of their engines, on a CPU (gigabytes the first time): ARGS="vllm -k tied"
	@$(VENV)/python -m tools.engines test $(ARGS)

.PHONY: fuzz
fuzz: setup ## A million hostile mutations of deltas and anchors
	@$(VENV)/python -m tests.hostile.fuzz $(ARGS)

.PHONY: generate
generate: setup ## Write the generated files anew: CRDs, roles, tables of values, figures, spans and fields, pictures
	@$(VENV)/python -m syncgroup_operator.crdgen --output crds --copy charts/syncgroup/files/crds \
	  --roles charts/syncgroup/files/roles
	@$(VENV)/python -m tools.chartdocs charts/syncgroup
	@$(VENV)/python -m tools.metricdocs docs/metrics.md
	@$(VENV)/python -m tools.tracedocs docs/tracing.md
	@$(VENV)/python -m sync_runtime.telemetry.waterfall docs/pictures/trace.json --svg docs/pictures/trace.svg
	@$(VENV)/python -m tools.reference crds docs/reference.md
	@for picture in overview architecture; do $(VENV)/python -m tools.picture docs/$$picture.toml || exit 1; done

.PHONY: verify
verify: setup ## Regenerate what is generated; the difference must be empty
	@$(VENV)/python -m syncgroup_operator.crdgen --check --output crds --copy charts/syncgroup/files/crds \
	  --roles charts/syncgroup/files/roles
	@$(VENV)/python -m tools.chartdocs --check charts/syncgroup
	@$(VENV)/python -m tools.metricdocs --check docs/metrics.md
	@$(VENV)/python -m tools.tracedocs --check docs/tracing.md
	@$(VENV)/python -m tools.reference --check crds docs/reference.md
	@for picture in overview architecture; do $(VENV)/python -m tools.picture --check docs/$$picture.toml || exit 1; done
	@$(VENV)/python -m tools.kube check

.PHONY: checks
checks: lint types verify

##@ Images

.PHONY: images
images: setup ## Build them with docker, podman or buildah: IMAGE_PREFIX=REGISTRY/PROJECT TAG=1 BASE_IMAGE=… VARIANTS="operator cuda"
	@$(VENV)/python -m tools.images build --prefix "$(IMAGE_PREFIX)" --tag "$(TAG)" --engine "$(ENGINE)" \
	  --base-image "$(BASE_IMAGE)" --build-image "$(BUILD_IMAGE)" $(VARIANTS)

.PHONY: test-images
test-images: setup ## Build them without a daemon, run each in a container and on real nodes (root and Debian; else skips)
	@SYNCGROUP_IMAGES="$(VARIANTS)" $(PYTEST) -q tests/images $(ARGS)

##@ A local multi-region Kubernetes

.PHONY: dev-up
dev-up: setup ## Start one: ARGS="--regions 3 --level planes|nodes|limits --dir DIR"
	@$(VENV)/python -m tools.devcluster up --kube $(KUBE) $(ARGS)

.PHONY: dev-down
dev-down: setup ## End it: ARGS="--dir DIR"
	@$(VENV)/python -m tools.devcluster down $(ARGS)

.PHONY: dev
dev: setup ## Anything else: ARGS="status", ARGS="cut us-east eu-west", ARGS="exec us-east kubectl get nodes"
	@$(VENV)/python -m tools.devcluster $(ARGS)

##@ Measure (JSON lines; exit code 1 where a goal does not hold)

.PHONY: bench-codec
bench-codec: setup ## Bytes and CPU speed of the codecs beside published formats
	@$(VENV)/python -m tests.bench.bench_codec $(ARGS)

.PHONY: bench-gpu
bench-gpu: setup ## Speed of the kernels on a GPU, beside its own copy rate
	@$(VENV)/python -m tests.bench.bench_gpu $(ARGS)

.PHONY: bench-links
bench-links: setup ## Payloads over emulated wide-area links, beside plain streams and the link's bound: ARGS="--case tree"
	@$(VENV)/python -m tests.bench.bench_links $(ARGS)

.PHONY: bench-object-store
bench-object-store: setup ## Versions through an S3 server, on loopback and over 100 ms, beside plain puts and one big file
	@$(VENV)/python -m tools.kube build s3
	@$(VENV)/python -m tests.bench.bench_object_store $(ARGS)

.PHONY: bench-rl
bench-rl: setup ## RL of an 8B model, replayed over a shared uplink: ours beside full weights and plain deltas: ARGS="--scale 10"
	@$(VENV)/python -m tests.bench.bench_rl $(ARGS)

.PHONY: bench-devcluster
bench-devcluster: setup ## Start-up times and memory of the dev cluster
	@$(VENV)/python -m tests.bench.bench_devcluster

.PHONY: bench-operator
bench-operator: setup ## The operator's own cost and reaction times with many groups: ARGS="--groups 100"
	@$(VENV)/python -m tests.bench.bench_operator $(ARGS)

.PHONY: bench-emulator
bench-emulator: setup ## Accuracy of the link emulator's rates and delays
	@$(VENV)/python -m tests.bench.bench_emulator

##@ Away with it

.PHONY: clean
clean: ## Remove .venv and what tests left; the cache outside the checkout stays
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
