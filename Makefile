PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := lab,onnx,keras,tensorboard,test

KERAS_BACKENDS := jax tensorflow
KERAS_TESTS := $(KERAS_BACKENDS:%=test-keras-%)
KERAS_ENVIRONMENTS := $(KERAS_BACKENDS:%=.venv-%/installed)
PACKAGE_jax := jax
PACKAGE_tensorflow := tensorflow-cpu

# Hundreds of processes import the same modules: each is compiled once, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# Each worker takes files in a row, which share their fixtures, and a worker that is done takes from the other.
PYTEST := pytest -n 2 --dist worksteal --durations=15
# Two workers of torch with two threads each on two cores wait for one another in spinning loops: one thread is faster.
# Tests of threads ask for them.
test test-slow test-matrix test-libraries test-triton: export OMP_NUM_THREADS := 1

.PHONY: help demo docs test test-slow test-libraries test-triton test-gpu gpu-report test-matrix lint bench lock audit clean environments $(KERAS_TESTS)

help:
	@echo "make demo         see what apical does"
	@echo "make docs         build the documentation into site/"
	@echo "make test         lint, types, architecture and tests (12 minutes at most)"
	@echo "make test-slow    what takes minutes or needs more packages"
	@echo "make test-keras-jax, make test-keras-tensorflow  apical.keras on these backends"
	@echo "make test-libraries  apical in timm, Transformers, MONAI and others, as docs/libraries shows"
	@echo "make test-triton  the Triton kernels, interpreted, compiled and evaluated on the CPU"
	@echo "make test-gpu     what needs a CUDA or ROCm device"
	@echo "make gpu-report   check and measure everything on a GPU; writes out/gpu-report.txt"
	@echo "make test-matrix  every combination"
	@echo "make bench        measure the figures of benchmarks/"
	@echo "make lock         write the locks anew: files and hashes of the versions in constraints.txt"
	@echo "make audit        ask pip-audit whether a locked version has a known vulnerability"

demo: $(VENV)/installed
	$(BIN)/apical demo -o out/demo

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

test: lint
	$(BIN)/$(PYTEST) -m "not slow and not matrix"

test-slow: $(VENV)/architectures $(VENV)/docs $(VENV)/ray $(VENV)/loggers $(KERAS_TESTS) test-libraries test-triton
	$(BIN)/$(PYTEST) -m "slow and not matrix"

# What `make test-slow` installs apart from $(VENV): it can be made while `make test` runs.
environments: $(KERAS_ENVIRONMENTS) .venv-libraries/installed .venv-triton/installed

# apical.keras on the backends that have an environment of their own, without torch; on torch, it is part of `make test`.
$(KERAS_TESTS): test-keras-%: .venv-%/installed
	KERAS_BACKEND=$* KERAS_HOME=.venv-$*/keras PYTHONPATH=src .venv-$*/bin/$(PYTEST) --confcutdir=tests/keras tests/keras

# The pages of docs/libraries, with the libraries that they are about.
test-libraries: .venv-libraries/installed
	PYTHONPATH=src .venv-libraries/bin/$(PYTEST) --confcutdir=tests/libraries tests/libraries

# The Triton kernels without a GPU, in an environment of their own: Triton weighs a gigabyte.
test-triton: .venv-triton/installed
	TRITON_INTERPRET=1 PYTHONPATH=src .venv-triton/bin/$(PYTEST) tests/gpu/test_interpreter.py
	PYTHONPATH=src .venv-triton/bin/$(PYTEST) tests/gpu/test_compiled.py

# Where torch sees no CUDA or ROCm device, these run on the CPU, and what needs a device is skipped with its reason.
test-gpu: $(VENV)/installed
	$(BIN)/pytest tests/gpu

gpu-report: $(VENV)/installed
	$(BIN)/python benchmarks/gpu_report.py -o out/gpu-report.txt

test-matrix: $(VENV)/installed
	$(BIN)/$(PYTEST) -m matrix

# No test runs the scripts, so mypy checks that what they name exists.
SCRIPTS_LOOSELY := --config-file= --no-strict-optional --ignore-missing-imports --follow-imports=silent \
	--disable-error-code=arg-type --disable-error-code=call-overload --disable-error-code=list-item --disable-error-code=misc
lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy $(SCRIPTS_LOOSELY) benchmarks tools docs/*.py
	$(BIN)/lint-imports

bench: $(VENV)/installed
	$(BIN)/python benchmarks/activations.py
	$(BIN)/python benchmarks/pyramidal.py
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/data.py

LOCKS := lock.txt lock-torch-cpu.txt lock-torch-cuda.txt
$(VENV)/installed: pyproject.toml setup.py constraints.txt $(LOCKS) $(wildcard src/apical/kernels/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/lock.py install $(EXTRAS)
	touch $@

lock:
	$(PYTHON) tools/lock.py renew $(EXTRAS)

audit: .venv-audit/installed
	.venv-audit/bin/python tools/audit.py

.venv-audit/installed: tools/audit.py
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet pip-audit==2.10.1
	touch $@

# The public networks that conversion is tested on, with what their libraries import; without other dependencies, or
# they would bring another torch.
ARCHITECTURES := torchvision timm transformers huggingface_hub tokenizers regex PyYAML httpx2 httpcore2 anyio h11 \
	truststore segmentation-models-pytorch ultralytics ultralytics-thop opencv-python-headless pytorch-lightning torchmetrics
$(VENV)/architectures: $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps -c constraints.txt $(ARCHITECTURES)
	touch $@

# What builds the documentation; `make test` does without.
$(VENV)/docs: $(VENV)/installed
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e ".[docs]"
	touch $@

# The cluster engine; `make test` shows that everything else works without it.
$(VENV)/ray: $(VENV)/installed
	$(BIN)/pip install --quiet -c constraints.txt ray
	touch $@

# The loggers beside TensorBoard.
$(VENV)/loggers: $(VENV)/installed
	$(BIN)/pip install --quiet -c constraints.txt wandb mlflow-skinny
	touch $@

$(KERAS_ENVIRONMENTS): .venv-%/installed: constraints-%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet -c $< keras $(PACKAGE_$*) pytest pytest-timeout pytest-xdist
	touch $@

# ultralytics and nnunetv2 without their dependencies, most of which serve training and reading of images.
.venv-libraries/installed: constraints-libraries.txt
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/pip install --quiet -c $< torch torchvision timm transformers monai \
		segmentation-models-pytorch torch_geometric pytest pytest-timeout pytest-xdist
	.venv-libraries/bin/pip install --quiet --no-deps -c $< ultralytics opencv-python-headless \
		nnunetv2 dynamic-network-architectures batchgenerators einops
	touch $@

.venv-triton/installed: constraints-triton.txt
	$(PYTHON) -m venv .venv-triton
	.venv-triton/bin/pip install --quiet -c $< torch triton numpy hypothesis pytest pytest-timeout pytest-xdist
	touch $@

clean:
	rm -rf $(VENV) $(KERAS_BACKENDS:%=.venv-%) .venv-libraries .venv-triton .venv-audit build dist out site src/*.egg-info src/apical/kernels/*.so
