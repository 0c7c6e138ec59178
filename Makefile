# mtp-bench: everything a person or CI does. `make run` is the whole of it on a fresh clone.
#
# PYTHON   interpreter for the virtual environments, and for gpu-check (default: python3)
# PIP_ARGS further arguments of pip, an index say
# JOBS     processes of `make test`, a test file each (default: as many as CPUs, up to 8)

PYTHON ?= python3
PIP_ARGS ?=
JOBS ?= auto
VENV := .venv
VENV_CUDA := .venv-cuda
BIN := $(VENV)/bin
BIN_CUDA := $(VENV_CUDA)/bin

# Releases whose own code the tests run ours beside, each unpacked into a folder of its own (tests/releases.py).
RELEASES := verl-0.8.0 verl-0.9.1 \
	megatron_core-0.14.0 megatron_core-0.15.3 megatron_core-0.17.1 megatron_core-0.18.2 megatron_core-0.19.2 \
	triton-3.8.0 # imported by megatron-core from 0.18 on, and not part of torch's CPU build
TORCH_CUDA := 2.14.1

.PHONY: setup setup-cuda deps run test test-matrix test-cuda conformance lint types gpu-check examples bench bench-cuda clean

run: setup
	$(BIN)/mtp-bench run $(ARGS)

setup: $(VENV)/.ready
setup-cuda: $(VENV_CUDA)/.ready
deps: $(addprefix .deps/,$(RELEASES))

test: lint types deps
	$(BIN)/python -m pytest tests -m "not matrix and not gpu and not hostcuda" -n $(JOBS) --maxprocesses 8 --dist loadfile

# docs/conformance.md is what comes out when every release is run again.
test-matrix: setup deps
	$(BIN)/python -m pytest tests/conformance/test_matrix_again.py -m matrix

# docs/conformance.md, made again.
conformance: deps
	$(BIN)/python -m tools.conformance_matrix

# The CUDA build of PyTorch over a CUDA runtime that does nothing: tools/hostcuda/README.md.
test-cuda: setup-cuda
	PYTHONPATH=. $(BIN_CUDA)/python tools/hostcuda/run.py -m pytest tests/hostcuda -m hostcuda

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# What a real GPU must show, in the environment that PYTHON belongs to: nothing is installed.
gpu-check:
	PYTHONPATH=. $(PYTHON) -m tests.gpu.check

# The reports in reports/examples, from the runs beside them; the tests hold them to it.
examples: setup
	$(BIN)/python -m tests.report.examples

# What mtp-bench promises of itself: how long its help, first line, default run and comparisons take, and how often its
# verdicts are right.
bench: setup
	$(BIN)/python benchmarks/promises.py
	$(BIN)/python benchmarks/compare_scale.py
	$(BIN)/python benchmarks/verdicts.py

# On hostcuda: what an experiment costs the job that it measures, and whether it finds what was planted in one.
bench-cuda: setup-cuda
	PYTHONPATH=. $(BIN_CUDA)/python tools/hostcuda/run.py -m benchmarks.ab_overhead
	PYTHONPATH=. $(BIN_CUDA)/python tools/hostcuda/run.py -m benchmarks.ab_planted

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt $(PIP_ARGS) -e '.[dev]'
	touch $@

# megatron-core's own dependencies name no version of torch: without --no-deps they could not move it, but would add
# packages that the CUDA tests do not need.
$(VENV_CUDA)/.ready: constraints.txt
	test -x $(BIN_CUDA)/python || $(PYTHON) -m venv $(VENV_CUDA)
	grep -vE '^(torch|megatron-core|mypy|pandas-stubs|ruff)==' constraints.txt > $(VENV_CUDA)/constraints.txt
	$(BIN_CUDA)/python -m pip install --quiet -c $(VENV_CUDA)/constraints.txt $(PIP_ARGS) torch==$(TORCH_CUDA) \
		numpy nvtx typer rich pandas pydantic scipy jinja2 nvidia-ml-py packaging pytest pytest-timeout hypothesis
	$(BIN_CUDA)/python -m pip install --quiet --no-deps $(PIP_ARGS) "$$(grep '^megatron-core==' constraints.txt)"
	touch $@

.deps/%: | $(VENV)/.ready
	rm -rf .deps/.partial-$*
	$(BIN)/python -m pip install --quiet --no-deps --ignore-requires-python --only-binary :all: $(PIP_ARGS) \
		--target .deps/.partial-$* '$(subst -,==,$*)'
	mv .deps/.partial-$* $@

clean:
	rm -rf $(VENV) $(VENV_CUDA) .deps build dist
