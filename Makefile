# Two commands set everything up on a fresh machine: `make demo` and `make test`.
#
#   PYTHON    interpreter for the virtual environment, 3.11 or newer
#   VENV      folder of the virtual environment
#   PIP_ARGS  more arguments for pip: --find-links FOLDER, --index-url URL, --extra-index-url URL ...
#   PROCESSES  processes of the test suite: one more than processors, as tests also wait
#   CONSTRAINTS  file of the versions that are installed; empty for the newest
#
# torch is the one large dependency. Which build pip installs (CPU only or with CUDA or ROCm) depends
# on where pip looks: see README.md.

VENV ?= .venv
PIP_ARGS ?=
CONSTRAINTS ?= constraints.txt
PROCESSES ?= 3
SPREAD = -n $(PROCESSES) --dist loadfile

FIND_PYTHON = for python in python3.11 python3.12 python3; do \
  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
  then echo "$$python"; break; fi; done
ifndef PYTHON
PYTHON := $(shell $(FIND_PYTHON))
endif

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The variable is for what builds gemmetry itself; -c is for what it needs.
INSTALL = $(if $(CONSTRAINTS),PIP_BUILD_CONSTRAINT=$(CONSTRAINTS)) $(PIP) install --quiet \
  $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) $(PIP_ARGS)
NEWEST := .venv-newest
DEMO_FOLDER := gemmetry-out/demo
DEMO_TRACES := $(DEMO_FOLDER)-traces
DEMO_SWEEP := $(DEMO_FOLDER)-sweep

# If it were set, every process of the tests would compile gemmetry's and their own sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu test-newest constraints test-masked test-loaded lint types docs bench clean

help:
	@echo "make demo   profile a few products on this machine's CPU, trace some, train, and write reports"
	@echo "make test   lint, types, layers and the whole test suite"
	@echo "make test-gpu  the tests that need a GPU, those that need it to themselves last"
	@echo "make test-newest  the same with the newest packages, in $(NEWEST); make constraints: keep them"
	@echo "make test-masked  the suite without the widest vectors; make test-loaded: with busy processes"
	@echo "make lint   ruff, the layer contract, and the words of docs/style.md"
	@echo "make types  mypy"
	@echo "make docs   the documentation, in docs/_build/html"
	@echo "make bench  the speed of gemmetry itself (docs/benchmarks.md)"
	@echo "make clean  remove what the commands above created, including $(VENV)"
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) PIP_ARGS='$(PIP_ARGS)'"

demo: $(VENV)/.demo-installed
	$(BIN)/gemmetry profile --spec examples/demo.yaml --experiment $(DEMO_FOLDER) --fresh
	$(BIN)/gemmetry trace record --device cpu --matrix-sizes 256 --precisions fp32,bf16 --layouts tt,tn \
	  --experiment $(DEMO_TRACES) --fresh
	$(BIN)/gemmetry trace report $(DEMO_TRACES) --output $(DEMO_TRACES)/cpu.html
	$(BIN)/gemmetry trace report tests/data/traces/h200_fsdp_rank*of4_part.pt.trace.json.gz \
	  --no-cache --output $(DEMO_TRACES)/h200.html
	$(BIN)/gemmetry sweep run --channels 1,2 --config tiny --output $(DEMO_SWEEP) --fresh
	$(BIN)/gemmetry sweep analyze $(DEMO_SWEEP)
	$(BIN)/gemmetry sweep run --channels 1,2 --config tiny --override distributed.bucket_cap_mb=1 \
	  --output $(DEMO_SWEEP)-buckets --fresh
# Exit status 1 is a finding: the sweeps are shown to differ.
	$(BIN)/gemmetry sweep compare $(DEMO_SWEEP) $(DEMO_SWEEP)-buckets --undecided pass \
	  --label 'small buckets' --label 'large buckets' --output $(DEMO_SWEEP)/comparison.html \
	  || [ $$? = 1 ]
	@echo "Open $(DEMO_FOLDER)/report.html: speeds of the products."
	@echo "Open $(DEMO_TRACES)/cpu.html: the traces that were recorded here."
	@echo "Open $(DEMO_TRACES)/h200.html: traces of a training job, two of its four H200s."
	@echo "Open $(DEMO_SWEEP)/analysis/report.html: a sweep of two training runs on this CPU."
	@echo "Open $(DEMO_SWEEP)/comparison.html: that sweep and one with larger buckets."

test: $(VENV)/.test-installed
	$(MAKE) -j2 lint types
	$(BIN)/python -m pytest $(SPREAD)

test-gpu: $(VENV)/.test-installed
	$(BIN)/python -m pytest tests/gpu -m "not alone" -n 6
	$(BIN)/python -m pytest tests/gpu -m alone

# The newest packages instead of constraints.txt, and the file for them when all is green.
test-newest:
	$(MAKE) test VENV=$(NEWEST) CONSTRAINTS=

constraints:
	$(NEWEST)/bin/python docs/generate/constraints.py > $(NEWEST)/constraints.txt
	cp $(NEWEST)/constraints.txt constraints.txt

# The suite as on another machine: docs/testing.md.
test-masked: $(VENV)/.test-installed
	$(BIN)/python tests/elsewhere.py --masked -- $(SPREAD)

test-loaded: $(VENV)/.test-installed
	$(BIN)/python tests/elsewhere.py --busy 4 -- $(SPREAD)

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_style.py

types: $(VENV)/.test-installed
	$(BIN)/mypy

docs: $(VENV)/.test-installed
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.test-installed
	for name in startup engine iree_compile; do $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf $(VENV) $(NEWEST) docs/_build build dist $(DEMO_FOLDER) $(DEMO_TRACES) $(DEMO_SWEEP) $(DEMO_SWEEP)-buckets .pytest_cache .mypy_cache .ruff_cache \
	  .import_linter_cache .hypothesis

# A stamp file shows that a set is installed; after a change it is older than pyproject.toml or the
# constraints.

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found; install one, or give PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gemmetry needs Python 3.11 or newer")'
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.demo-installed: pyproject.toml $(CONSTRAINTS) | $(VENV)/.created
	@echo "Installing gemmetry[demo] into $(VENV); the first time this takes minutes."
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.test-installed: pyproject.toml $(CONSTRAINTS) | $(VENV)/.created
	@echo "Installing gemmetry[test] into $(VENV); the first time this takes minutes."
	$(INSTALL) --editable '.[test]'
	@touch $@
