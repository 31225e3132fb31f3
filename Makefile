# `make demo` and `make test` need git, make and Python 3.11 or later; everything else is installed into .venv.

# The first interpreter that is new enough; `make PYTHON=/path/to/python` overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.stamp
# What a user needs, and nothing for development.
LIGHT := $(VENV)/.stamp-light
UV := $(shell command -v uv 2>/dev/null)

# Test workers. The fast suite fits two cores; more than four gain nothing. The tests of a class and of a module share
# answers: each worker gets a part of the list, and takes from the end of another's when it is done.
WORKERS ?= auto
PYTEST_ARGS ?=
PYTEST := $(PY) -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal
# Python 3.12 and later count lines at little cost; before, coverage makes the tests take 1.7 times as long.
SYSMON = $(shell $(PY) -c 'import sys; sys.version_info < (3, 12) or print("COVERAGE_CORE=sysmon")')

# Tests start dozens of processes: each would compile the package, and each worker the tests, if none kept the result.
unexport PYTHONDONTWRITEBYTECODE

# A data set too big, or not ours, to ship: where it lies beside the checkout, the tests that want it run.
ifneq ($(wildcard ../shared/data/.),)
export REMAT_DATA ?= $(CURDIR)/../shared/data
endif

# For pip: the pins, in the isolated build environments as well (the second name is that of newer releases).
PINNED := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test cover test-all docs docs-test docs-test-all mutants fuzz fuzz-readers test-torch test-torch-all test-onnx test-jax lint format type bench build pins clean distclean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Create .venv and install remat into it, editable, with everything for development

$(STAMP): pyproject.toml constraints.txt
	$(call install,.[dev])
	@touch $(LIGHT) $@

$(LIGHT): pyproject.toml constraints.txt
	$(call install,.[plot])
	@touch $@

ifneq ($(UV),)
define install
	@test -x $(PY) || $(UV) venv --quiet --python "$(or $(PYTHON),>=3.11)" $(VENV)
	$(UV) pip install --quiet --python $(PY) --constraint constraints.txt \
		--build-constraints constraints.txt --editable '$(1)'
endef
else
define install
	@test -n "$(PYTHON)" || { echo "remat needs Python 3.11 or later: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PINNED) $(PY) -m pip install --quiet --editable '$(1)'
endef
endif

demo: $(LIGHT) ## Solve a real network at three budgets; schedule, plot and trace go to build/demo
	$(PY) demo/demo.py build/demo

test: $(STAMP) ## Run the fast tests
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

cover: $(STAMP) ## Run the fast tests and check the coverage
	$(SYSMON) $(PYTEST) -m "not slow" --cov --cov-report=term $(PYTEST_ARGS)

test-all: $(STAMP) ## Run every test, the slow ones included, and check the coverage
	$(SYSMON) $(PYTEST) --cov --cov-report=term $(PYTEST_ARGS)

# The site has an environment of its own: it is for readers, and its theme and parsers are for nobody else.
SITE_VENV := build/docs
SITE_STAMP := $(SITE_VENV)/.stamp

$(SITE_STAMP): site/requirements.txt
	@test -x $(SITE_VENV)/bin/python || $(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement site/requirements.txt
	@touch $@

docs: $(STAMP) $(SITE_STAMP) ## Build the documentation as a site into build/site, to be read without a network
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/python -m mkdocs build --strict --quiet --config-file site/mkdocs.yml
	$(PY) -m tests.printed.links build/site
	$(PY) -m tests.printed.site build/site

# Whatever the README and the documents show is run, and compared with what comes out.
docs-test: $(STAMP) ## Run the commands and examples of the README and the documents, and compare what they print
	$(PY) -m tests.printed $(PAGES)

docs-test-all: $(STAMP) ## Run those, too, that take long
	$(PY) -m tests.printed --slow $(PAGES)

mutants: $(STAMP) ## Put single faults into a copy: do the tests notice? (MUTANTS="--only NAME --jobs N")
	$(PY) -m tests.mutants $(MUTANTS)

FUZZ_DOCUMENTS ?= 2000
fuzz: $(STAMP) ## Draw instances and broken documents, and judge all answers (FUZZ="--solves N --seed S --jobs N")
	$(PY) -m tests.fuzz $(FUZZ)
	$(PY) -m tests.fuzz.readers --plain --documents $(FUZZ_DOCUMENTS)

# Coverage-guided fuzzing wants atheris, which has no builds for some platforms: without it, mutations are drawn.
FUZZ_VENV := build/fuzz/venv
FUZZ_STAMP := $(FUZZ_VENV)/.stamp
FUZZ_SECONDS ?= 600
ATHERIS ?= atheris==3.0.0

$(FUZZ_STAMP): pyproject.toml constraints.txt
	@test -x $(FUZZ_VENV)/bin/python || $(PYTHON) -m venv $(FUZZ_VENV)
	$(PINNED) $(FUZZ_VENV)/bin/python -m pip install --quiet --editable '.[sparse]'
	$(FUZZ_VENV)/bin/python -m pip install --quiet --only-binary :all: '$(ATHERIS)' || \
		echo "$(ATHERIS) cannot be installed here: mutations are drawn from a seed" >&2
	@touch $@

fuzz-readers: $(FUZZ_STAMP) ## Fuzz everything that reads, each reader for FUZZ_SECONDS (600): broken documents get one line
	$(FUZZ_VENV)/bin/python -m tests.fuzz.readers --seconds $(FUZZ_SECONDS) $(READERS)

# An environment of its own: PyTorch is a gigabyte, and nothing else needs it.
TORCH_VENV := build/torch
TORCH_STAMP := $(TORCH_VENV)/.stamp
# pip's own index may hold builds for devices, gigabytes larger: TORCH_INDEX=URL names one with those for CPUs.
TORCH_INDEX ?=
TORCH ?= torch==2.13.0
TRANSFORMERS ?= transformers==5.23.0
# Trainers that know the backend by name, and an optimizer with 8-bit states.
TRAINERS ?= accelerate==1.15.0 lightning==2.6.6 bitsandbytes==0.50.2
# `make test-torch-all` also tests with this one, if it is another; the bridge refuses what is older.
TORCH_OLDEST ?= torch==2.13.0
# And with a newer one, where it is asked for: TORCH_NEWEST=torch==2.14.1 (pip's build of it has CUDA, 6 GB).
TORCH_NEWEST ?=
TORCH_PYTEST = REMAT_TEST_TORCH=1 $(TORCH_VENV)/bin/python -m pytest -c tests/torch/pytest.ini --rootdir . tests/torch \
	--cov=remat.torch --cov=remat.bridges.torch --cov-config=tests/torch/coverage.ini --cov-report=term \
	--cov-fail-under=90

$(TORCH_STAMP): pyproject.toml constraints.txt
	@test -x $(TORCH_VENV)/bin/python || $(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	$(PINNED) $(TORCH_VENV)/bin/python -m pip install --quiet '$(TORCH)' '$(TRANSFORMERS)' $(TRAINERS) \
		hypothesis pytest pytest-cov --editable .
	@touch $@

test-torch: $(TORCH_STAMP) ## Run the tests of remat.torch, in an environment with PyTorch (CPU) and transformers
	$(TORCH_PYTEST) -m "not slow" $(PYTEST_ARGS)

test-torch-all: $(TORCH_STAMP) ## Run these and the slow ones, and again with the oldest PyTorch that is supported (and TORCH_NEWEST)
	$(TORCH_PYTEST) $(PYTEST_ARGS)
ifneq ($(TORCH),$(TORCH_OLDEST))
	$(MAKE) test-torch TORCH='$(TORCH_OLDEST)' TORCH_VENV=build/torch-oldest
endif
ifneq ($(TORCH_NEWEST),)
	$(MAKE) test-torch TORCH='$(TORCH_NEWEST)' TORCH_VENV=build/torch-newest
endif

# Nor does anything else need onnx: an environment of its own with the package.
ONNX_VENV := build/onnx
ONNX_STAMP := $(ONNX_VENV)/.stamp
ONNX ?= onnx==1.23.2

$(ONNX_STAMP): pyproject.toml constraints.txt
	@test -x $(ONNX_VENV)/bin/python || $(PYTHON) -m venv $(ONNX_VENV)
	$(PINNED) $(ONNX_VENV)/bin/python -m pip install --quiet '$(ONNX)' hypothesis pytest --editable .
	@touch $@

test-onnx: $(ONNX_STAMP) ## Run the tests of remat import onnx, in an environment with onnx
	$(ONNX_VENV)/bin/python -m pytest tests/onnx tests/bridges/onnx $(PYTEST_ARGS)

JAX_VENV := build/jax
JAX_STAMP := $(JAX_VENV)/.stamp
JAX ?= jax==0.10.2

$(JAX_STAMP): pyproject.toml constraints.txt
	@test -x $(JAX_VENV)/bin/python || $(PYTHON) -m venv $(JAX_VENV)
	$(PINNED) $(JAX_VENV)/bin/python -m pip install --quiet '$(JAX)' hypothesis pytest --editable .
	@touch $@

test-jax: $(JAX_STAMP) ## Run the tests of remat.jax, in an environment with JAX (CPU)
	$(JAX_VENV)/bin/python -m pytest tests/jax -m "not slow" $(PYTEST_ARGS)

lint: $(STAMP) ## Check style and format (ruff)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(STAMP) ## Format the code and mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

type: $(STAMP) ## Check types (mypy --strict and pyright)
	$(PY) -m mypy --strict
	$(PY) -m mypy --strict tests/typing/user_program.py examples/cut_over_devices.py examples/order_graph.py
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright

bench: $(STAMP) ## Run the benchmarks
	$(PY) -m benchmarks

build: $(STAMP) ## Build the wheel and the sdist into dist
	rm -rf dist
	$(PINNED) $(PY) -m build --outdir dist

pins: ## Resolve constraints.txt afresh, for every supported Python (uses uv)
	@mkdir -p build
	@test -n "$(UV)" || { $(PYTHON) -m venv build/uv && build/uv/bin/pip install --quiet uv; }
	$(or $(UV),build/uv/bin/uv) pip compile pyproject.toml --quiet --universal --python-version 3.11 \
		--extra all --extra dev --extra adjoint --no-annotate --no-header --upgrade --output-file build/pins.txt
	@{ sed -n '/^#/p' constraints.txt; cat build/pins.txt; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean: ## Remove what was built, not .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find solver algorithms tests benchmarks demo -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv, too
	rm -rf $(VENV)
