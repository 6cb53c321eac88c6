PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := lab,onnx,keras,tensorboard,test

.PHONY: help demo test test-slow test-matrix lint bench clean

help:
	@echo "make demo         see what apical does"
	@echo "make test         lint, types, architecture and tests (12 minutes at most)"
	@echo "make test-slow    what takes minutes or needs more packages"
	@echo "make test-matrix  every combination"
	@echo "make bench        measure the figures of benchmarks/"

demo: $(VENV)/installed
	$(BIN)/apical demo -o out/demo

test: lint
	$(BIN)/pytest -n 2 -m "not slow and not matrix"

test-slow: $(VENV)/architectures
	$(BIN)/pytest -m "slow and not matrix"

test-matrix: $(VENV)/installed
	$(BIN)/pytest -n 2 -m matrix

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed
	$(BIN)/python benchmarks/activations.py

$(VENV)/installed: pyproject.toml setup.py constraints.txt $(wildcard src/apical/kernels/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt setuptools wheel
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e ".[$(EXTRAS)]"
	touch $@

# The public networks that conversion is tested on; without their dependencies, or they would bring another torch.
$(VENV)/architectures: $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps -c constraints.txt torchvision timm
	touch $@

clean:
	rm -rf $(VENV) build dist out site src/*.egg-info src/apical/kernels/*.so
