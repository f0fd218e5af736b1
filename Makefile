# One line for each thing a person does here. `make` alone lists them.
# Every target that starts servers ends them again, except `up`.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

target := $(or $(CARGO_TARGET_DIR),target)
# One selection and one set of features for all development builds: cargo then builds each dependency once. The
# operator gets its named crash points, which a release build lacks.
workspace := --locked --workspace --features upriver-operator/failpoints

SCENARIO ?= burst
SEED ?=
CYCLES ?= 20
TEST ?=
ARGS ?=

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: deps build ## one minute: two people edit a real cluster, their changes become commits
	@$(target)/debug/upriver-demo $(ARGS)

.PHONY: up
up: deps build ## the demo, left running in the background
	@$(target)/debug/upriver-demo --keep

.PHONY: down
down: ## end what `up` started
	@if [[ -x $(target)/debug/upriver-demo ]]; then $(target)/debug/upriver-demo --down; else echo "nothing is up"; fi

.PHONY: test
test: ## everything that has to be green: verify, all tests against real servers
	@tests/tools/test.sh

.PHONY: verify
verify: ## format, lints, unit and doc tests; writes nothing but build output
	@tests/tools/guards.sh
	cargo fmt --all --check
	cargo clippy $(workspace) --all-targets -- -D warnings
	cargo test $(workspace) --lib --bins
	cargo test $(workspace) --doc

.PHONY: it
it: deps build ## tests against real servers; TEST=name picks some
	cargo test $(workspace) --test it -- $(TEST)

.PHONY: sim
sim: ## simulated schedules; SEED=crashes-17 runs that one and shows it
	$(if $(SEED),SIM_SEED=$(SEED) cargo test --locked -p upriver-sim one_seed -- --nocapture,cargo test --locked -p upriver-sim)

.PHONY: model
model: ## a larger exhaustive exploration; MODEL_OWNERS, MODEL_DEPTH, MODEL_STATES, MODEL_LOSSES, MODEL_TIMEOUTS bound it
	@cargo run --quiet --locked -p upriver-model-check

.PHONY: chaos
chaos: ## parts of a real fleet fail under edits; CYCLES, SEED, ARGS="--only kill" and more: chaos/README.md
	@tests/tools/deps.sh --chaos
	@$(MAKE) build
	@$(target)/debug/upriver-chaos --cycles $(CYCLES) --seed $(or $(SEED),1) $(ARGS)

.PHONY: load
load: deps ## SCENARIO=burst or steady against a release build; ARGS="--count 500" and more
	cargo build --release --locked -p upriver-operator -p upriver-loadtest
	@$(target)/release/upriver-loadtest --scenario $(SCENARIO) $(ARGS)

.PHONY: fix
fix: ## format, apply lints' suggestions, write the CRDs
	cargo fmt --all
	cargo clippy $(workspace) --all-targets --fix --allow-dirty --allow-staged
	@$(MAKE) crds

.PHONY: crds
crds: ## write deploy/kustomize/base/crds from the Rust types
	cargo run --quiet --locked -p upriver-api --example print-crds -- deploy/kustomize/base/crds

.PHONY: build
build: ## development build of all programs
	cargo build $(workspace) --bins

.PHONY: deps
deps: ## check what has to be installed, install it where that is possible
	@tests/tools/deps.sh

.PHONY: servers
servers: deps ## build kube-apiserver and etcd into the cache, if they are not there
	@tests/tools/build.sh
