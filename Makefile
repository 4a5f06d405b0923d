# One word each. Everything runs in .venv, which `make setup` makes from container/locks (no network when it is there).
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-view test check bench fuzz chaos format lock clean

RUN := .venv/bin/python
ARGS ?=

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup:  ## virtual environments, from the lock files
	@tools/setup.sh

demo: setup  ## one small volume through real htrflow and LocalStack, with its error rate
	@$(RUN) -m tools.demo $(ARGS)

demo-view: setup  ## the demo, then its results in a browser
	@$(RUN) -m tools.results_page

test: setup  ## all tests
	$(RUN) -m pytest -rs -n 2 --dist loadfile $(ARGS)

check: setup  ## style, types, import direction, lock files, Dockerfile
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) tools/locks.py --check
	.venv/bin/hadolint container/Dockerfile
	$(RUN) -m pytest -q tests/pure/test_import_direction.py

bench: setup  ## pages per second, restart times, memory
	@$(RUN) -m tools.bench $(ARGS)

fuzz: setup  ## property tests with many more examples, and damaged images
	$(RUN) -m tools.fuzz_images 5000
	$(RUN) -m pytest --hypothesis-profile=fuzz -rs tests/pure $(ARGS)

chaos: setup  ## actors killed and stopped at random moments, at length
	BATCHPOD_CHAOS=long $(RUN) -m pytest -rs tests/runs -k "chaos or random_moment" $(ARGS)

format: setup  ## lay out the code
	$(RUN) -m ruff check --fix-only .
	$(RUN) -m ruff format .

lock: setup  ## container/locks from pyproject.toml; ARGS=--upgrade for newer versions
	$(RUN) tools/locks.py $(ARGS)

clean:  ## everything that was made
	rm -rf .venv .venv-localstack build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache \
		container/results/node_modules container/results/site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
