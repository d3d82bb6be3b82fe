# One entry for people and CI alike. `make help` lists the verbs.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test unit lint format bench down locks clean

help: ## list the verbs
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

$(STAMP): pyproject.toml deploy/locks/dev.txt deploy/locks/bootstrap.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "streamer needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 3; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/locks/bootstrap.txt
	$(VENV)/bin/uv pip sync --quiet --python $(PY) --require-hashes deploy/locks/dev.txt deploy/locks/bootstrap.txt
	$(VENV)/bin/uv pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

venv: $(STAMP) ## the environment, from hashed locks

demo: $(STAMP) ## set-up and main job on the embedded stack; KEEP=1 leaves it running
	@$(PY) -m streamer.demo $(if $(KEEP),--keep)

test: $(STAMP) ## all tests: unit, property, integration and end to end on a real broker
	@$(PY) -m pytest tests -n 2 --dist loadfile

unit: $(STAMP) ## only what needs no broker and no model (seconds)
	@$(PY) -m pytest tests/unit tests/property tests/architecture -m "not engine and not integration"

lint: $(STAMP) ## style and types
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

format: $(STAMP) ## rewrite to the common style
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

bench: $(STAMP) ## end to end through Kafka against the same engine offline
	@$(PY) -m tests.bench.end_to_end

down: $(STAMP) ## stop a stack that `make demo KEEP=1` or `streamer up` left running
	@$(PY) -m streamer down

locks: $(STAMP) ## pin the newest versions that pyproject.toml allows
	$(VENV)/bin/uv pip compile pyproject.toml --extra dev --extra demo --universal --python-version 3.11 \
	  --upgrade --generate-hashes --no-emit-index-url --no-header --no-annotate -o deploy/locks/dev.txt

clean: ## remove what builds and runs left behind
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
