# Two commands do everything: `make demo` and `make test`. The rest is for people who change the code.
PYTHON ?= python3
BIN := .venv/bin
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint bench clean lock wheel picture

help:  ## what there is
	@echo "make demo    a local sharded MongoDB, a generated city, rewritten queries against plain ones"
	@echo "make test    every test, on a real cluster and a real Spark (PYTEST_ARGS='-k cover' for some)"
	@echo "make lint    ruff and mypy --strict"
	@echo "make bench   every benchmark, small (BENCH='containment --json' for one, BENCH=--list for all)"
	@echo "make wheel   build dist/*.whl and try it in an empty environment"
	@echo "make lock    pin the newest allowed versions into requirements.lock"
	@echo "make picture make docs/report.png anew, the README's picture (needs Chromium)"
	@echo "make clean   remove the environment and everything that was built"

venv:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "spatialnosql: $(PYTHON) is not on the PATH; Python 3.10 or newer is needed" >&2; exit 1; }
	@$(PYTHON) tools/bootstrap.py

demo: venv
	@$(BIN)/spatialnosql demo

test: venv
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: venv
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

BENCH ?= all --limit 20000
bench: venv
	@$(BIN)/python -m benchmarks $(BENCH)

wheel: venv
	@$(BIN)/python tools/check_wheel.py

lock: venv
	@$(BIN)/python tools/lock.py

picture: venv
	@$(BIN)/python tools/picture.py docs/report.png

clean:
	rm -rf .venv dist build demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
