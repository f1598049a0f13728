# Every recipe of the project; CI calls these and nothing else.
# `make help` lists them.

CARGO ?= cargo
SHELL := /bin/bash

# Where cargo builds, which its own settings decide.
target = $$($(CARGO) metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/p;d')

.DEFAULT_GOAL := help
.PHONY: help run demo build test lint bench bench-audit instructions e2e browser manifests deploy-check static-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Serve the webhook on https://0.0.0.0:8443 with the built-in contract (CONFIG=FILE for another)
	$(CARGO) run --release --locked -- serve $(if $(CONFIG),--config $(CONFIG))

demo: ## Start a server, send three recorded AdmissionReviews, show the answers
	$(CARGO) build --locked
	./tests/demo.sh "$(target)/debug/gpufence"

build: ## Build the release binary
	$(CARGO) build --release --locked

test: ## Run all tests that need no API server, and check that the core stands alone
	$(CARGO) test --locked
	$(CARGO) check --lib --no-default-features --locked

e2e: ## Run the end-to-end tests against a real API server (KUBEBUILDER_ASSETS, else one is built from source)
	assets="$$(./tests/e2e/assets.sh)" && KUBEBUILDER_ASSETS="$$assets" $(CARGO) test --locked --features e2e --test e2e --test installation --test audits

browser: ## Open the audit's page in headless Chromium (CHROMIUM, else Debian's package is installed)
	$(CARGO) build --locked
	modules="$$(./tests/browser/install.sh)" && node tests/browser/page.mjs "$(target)/debug/gpufence" "$$modules" $(SCREENSHOTS)

manifests: ## Write the generated files of deploy/ for the built-in contract (CONFIG=FILE for another)
	$(CARGO) build --locked
	python="$$(./tests/deploy/tools.sh)" && "$$python" -B tests/deploy/generate.py "$(target)/debug/gpufence" $(CONFIG)

deploy-check: ## Check deploy/ with kubectl, Helm's library and the Kubernetes schemas (KUBEBUILDER_ASSETS as in e2e)
	$(CARGO) build --locked
	assets="$$(./tests/e2e/assets.sh)" && python="$$(./tests/deploy/tools.sh)" && \
	  KUBEBUILDER_ASSETS="$$assets" "$$python" -B tests/deploy/check.py "$(target)/debug/gpufence"

static-check: ## Build as deploy/Containerfile does, and run the static program in an empty root
	./tests/deploy/static.sh

lint: ## Check formatting, lints and the documentation's links
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --features e2e --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked

bench: ## Measure decode + decide + encode of reviews of 3 KB, 20 KB and 200 KB
	$(CARGO) bench --locked --bench review

bench-audit: ## Time an audit of clusters of 25,000, 50,000 and 100,000 pods, and its memory
	$(CARGO) bench --locked --bench audit

instructions: ## Count the instructions of the same reviews with callgrind (needs valgrind)
	./tests/bench/instructions.sh "$$($(CARGO) bench --no-run --locked --bench instructions 2>&1 | sed -n 's/.*Executable.*(\(.*\)).*/\1/p')"

clean: ## Remove what was built
	$(CARGO) clean
