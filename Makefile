# make fixtures run report    the agent study, in containers where Docker answers, else in .venv
# make benchmark claims       the artifact study, and every published figure of it
# Every target sets itself up. `make help` lists targets and variables.

SHELL := /bin/bash
PYTHON ?= python3
ENGINE ?= auto
ADDRESS ?=
GPUS ?= all
DEVICE ?= auto
SIZE ?= auto
PROBLEMS ?=
AGENT ?= oracle
ARMS ?=
KB ?= local
MODEL ?=
UPSTREAM ?=
MODE ?=
SOLUTIONS ?=
JOBS ?= 1
REPEATS ?= 1
RESULTS ?= results
FROM ?=
ARGS ?=
BASE_IMAGE ?=
DOCKER_BUILD_FLAGS ?=
# Where the tarball of the Claude Code CLI can be had, whose hash is pinned: asked of npm where that agent is to work.
CLAUDE_CODE ?= $(if $(filter claude-code,$(AGENT)),$(shell npm view "$$($(PYTHON) requirements/install_claude_code.py)" \
  dist.tarball 2>/dev/null))
COMMA := ,
VENV := .venv
PY := $(VENV)/bin/python
REPRO := $(VENV)/bin/repro
# auto: docker where an engine answers, else local
CHOSEN := $(if $(filter auto,$(ENGINE)),$(shell docker version >/dev/null 2>&1 && echo docker || echo local),$(ENGINE))
COMMON = --engine $(ENGINE)$(if $(ADDRESS),:$(ADDRESS)) --gpus $(GPUS) --device $(DEVICE) --size $(SIZE) --results $(RESULTS)
NARROW = $(foreach p,$(PROBLEMS),--problem $(p))
# Solutions that exist already take the place of an agent: SOLUTIONS='baseline=DIR with_kb=DIR2'.
STUDY = $(COMMON) $(NARROW) $(if $(SOLUTIONS),$(foreach s,$(SOLUTIONS),--solutions $(s)) $(ARGS),$(AT_WORK))
AT_WORK = --agent $(AGENT) $(if $(ARMS),--arms "$(ARMS)") --kb $(KB) \
  $(if $(MODEL),--model $(MODEL)) $(if $(UPSTREAM),--upstream $(UPSTREAM)) $(if $(MODE),--mode $(MODE)) \
  --jobs $(JOBS) --repeats $(REPEATS) $(ARGS)
# What this job's environment must hold: the host of containers needs no torch.
NEEDS = $(if $(filter docker,$(CHOSEN)),host,$(if $(filter ray,$(CHOSEN)),ray,local))
# What an agent needs beside it, on this machine: Inspect, and the published knowledge server where it is to answer.
AGENTS = $(if $(filter sdk claude-code,$(AGENT)),$(VENV)/.agents $(if $(filter leeroopedia,$(KB)),$(VENV)/.leeroopedia))

.PHONY: help setup image doctor fixtures run benchmark claims optimize searches report verify test test-all test-slow test-docker test-clock self-test test-gpu check docs ptx clean requirements

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -3
	@echo
	@echo "targets    setup image doctor fixtures run benchmark claims optimize searches report verify"
	@echo "           test test-all test-gpu check docs clean requirements"
	@echo "variables  ENGINE=auto|docker|local|ray ADDRESS=auto|HOST:PORT|local GPUS=all|none|0,1"
	@echo "           DEVICE=auto|cuda|cpu SIZE=auto|full|smoke"
	@echo "           PROBLEMS='L1_36 L2_84' AGENT=oracle|nop|sdk|claude-code ARMS='baseline with_kb'"
	@echo "           KB=local|leeroopedia|placebo|URL MODE=problem|suite MODEL= JOBS=1 REPEATS=1"
	@echo "           SOLUTIONS='ARM=DIR ARM2=DIR2', folders of solutions in place of an agent"
	@echo "           UPSTREAM=anthropic|bedrock|replay:PATH"
	@echo "           CLAUDE_CODE=ADDRESS of the CLI's tarball, for AGENT=claude-code"
	@echo "           RESULTS=results FROM=DIR, a copy of the published kernels, ARGS='--no-compile'"
	@echo "command    $(REPRO) --help, from any folder, once \`make setup\` has written it"
	@echo "keys       in .env: ANTHROPIC_API_KEY, AWS_BEARER_TOKEN_BEDROCK, LEEROOPEDIA_API_KEY"

# One stamp a set of packages: a larger set counts for a smaller one, so nothing is installed twice. The local engine needs
# what the host and the image hold, and tests and checks come on top of that.
define INSTALL
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else "repro needs Python 3.11 or 3.12, %s is %d.%d: set PYTHON=python3.12 or ENGINE=docker" % (sys.executable, *v))'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 cannot make a virtual environment: install python3-venv" >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes $(addprefix --requirement ,$(filter %.txt,$^))
	@touch $@
endef

$(VENV)/.local: requirements/host.txt requirements/image.txt
	$(INSTALL)

$(VENV)/.dev: $(VENV)/.local $(VENV)/.search $(VENV)/.agents

$(VENV)/.agents: | $(VENV)/.$(NEEDS)

$(VENV)/.leeroopedia: | $(VENV)/.agents

$(VENV)/.search $(VENV)/.ray: $(VENV)/.local

$(VENV)/.%: requirements/%.txt
	$(INSTALL)

# The command repro of this checkout. A script, not an installed package: a package would need a build tool, which
# Python 3.12's environments lack.
define COMMAND
#!/bin/sh
# The command repro of the checkout around this environment, from any folder. Written by the Makefile.
self=$$0
[ -L "$$self" ] && self=$$(readlink -f "$$self")
bin=$$(CDPATH= cd -- "$$(dirname -- "$$self")" && pwd)
exec "$$bin/python" "$${bin%/*/*}/entrypoint.py" "$$@"
endef
export COMMAND

$(REPRO): Makefile | $(VENV)/.$(NEEDS)
	@printf '%s\n' "$$COMMAND" >$@ && chmod +x $@ && echo "the command: $@"
	@printf '%s\n' "$(CURDIR)" >"$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/repro.pth" # import repro
	@$(PY) -m compileall -q repro # jobs write no bytecode: each would compile what it imports, for half a second

setup: $(VENV)/.$(NEEDS) $(AGENTS) $(REPRO)

image: $(VENV)/.host
	docker build --tag repro $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) \
	  $(if $(CLAUDE_CODE),--build-arg CLAUDE_CODE=$(CLAUDE_CODE)) \
	  --build-arg GIT_SHA=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	  --build-arg GIT_DIRTY=$(shell git diff --quiet HEAD -- 2>/dev/null && echo false || echo true) \
	  --label repro.code=$(shell $(PY) -c 'from repro.engines.node import code; print(code())') \
	  $(DOCKER_BUILD_FLAGS) .

# What a job needs before it can run: the environment, and in containers the image.
ready: setup $(if $(filter docker,$(CHOSEN)),image)
.PHONY: ready

doctor: setup
	$(REPRO) doctor --engine $(ENGINE) --gpus $(GPUS) --device $(DEVICE) --results $(RESULTS) $(ARGS)

fixtures: ready
	$(REPRO) fixtures $(COMMON) $(NARROW) $(ARGS)

# Before minutes of building: a key or an argument that is missing.
foreseen: setup
	@$(REPRO) run $(STUDY) --check
.PHONY: foreseen

run: foreseen ready
	$(REPRO) run $(STUDY)

benchmark: ready
	$(REPRO) benchmark $(PROBLEMS) $(COMMON) $(ARGS)

# The published kernels, their rounds and profiles against every published figure; FROM=DIR without a network.
claims: ready
	$(REPRO) claims $(PROBLEMS) $(if $(FROM),--from $(FROM)) $(COMMON) $(ARGS)

# A search from the input kernel of each of PROBLEMS, such as L1_36; without a key.
optimize: ready $(VENV)/.search
	$(foreach p,$(or $(PROBLEMS),L1_36),$(REPRO) optimize $(p) $(COMMON) $(ARGS) &&) true

# Every search that the project publishes, resumable: OUT=folder ARGS="--published DIR --kernelbench DIR --at-once 8".
searches: ready $(VENV)/.search
	$(PY) tests/searches.py $(or $(OUT),searches) $(ARGS)

report: setup
	$(REPRO) report --results $(RESULTS)

verify: setup
	$(REPRO) verify --results $(RESULTS)

# Minutes: needs no container and no GPU, and leaves out what is slow or bounds wall time.
PYTEST = $(PY) -m pytest -n auto --maxprocesses 8
test: $(VENV)/.dev
	$(PYTEST) --dist worksteal -m "not (slow or docker or clock or gpu)" $(ARGS)

# Everything that needs no GPU, each check over all problems, and every case of the self-test. Tests in containers fail
# without a Docker engine; ENGINE=local leaves them out.
test-all: export REPRO_TEST_WHOLE := 1
test-all: test test-slow $(if $(filter local,$(ENGINE)),,test-docker) test-clock self-test

self-test: ready
	$(REPRO) evaluate --self-test --engine $(ENGINE) --device $(DEVICE) --results $(RESULTS) $(ARGS)

# One process runs the tests of a file, because several of them look at what minutes of commands left. pytest exits with 5
# where ARGS leaves no test.
test-slow: $(VENV)/.dev $(VENV)/.ray
	$(PYTEST) --dist loadfile -m "slow and not (docker or clock or gpu)" $(ARGS) || [ $$? -eq 5 ]

# One process tests the containers of a file, because `repro doctor --clean` in one test may remove those of another.
test-docker: $(VENV)/.dev $(VENV)/.ray image
	$(PYTEST) --dist loadfile -m docker $(ARGS) || [ $$? -eq 5 ]

# These bound wall time: nothing else may run beside them.
test-clock: $(VENV)/.dev $(VENV)/.ray
	$(PY) -m pytest -m "clock and not gpu" $(ARGS) || [ $$? -eq 5 ]

# On a machine with its own torch: make test-gpu PY=python3. The files are named, for others import what a GPU machine may
# lack.
GPU_TESTS = $(if $(findstring tests/,$(ARGS)),,$(shell grep -rlE "mark\.gpu" --include=test_*.py tests))
test-gpu: $(if $(filter $(VENV)/bin/python,$(PY)),$(VENV)/.dev)
	$(PY) -m pytest -m gpu -p no:cacheprovider $(GPU_TESTS) $(ARGS)

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check repro tests entrypoint.py
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/python tests/plain_english.py

# Writes the generated parts of the documents and the published report again.
docs: $(VENV)/.dev
	REPRO_UPDATE_DOCS=1 $(VENV)/bin/python -m pytest -q tests/docs/test_docs.py tests/knowledge/test_knowledge.py -k "generated or figures"

# Compiles the judge's CUDA kernels to the PTX that is shipped beside them, by torch's NVRTC, without a GPU.
ptx: $(VENV)/.local
	PYTHONPATH=. $(PY) tests/compile_ptx.py

requirements: $(VENV)/.uv
	for set in host image agents search ray leeroopedia dev uv; do \
	  $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	    --custom-compile-command "make requirements" requirements/$$set.in --output-file requirements/$$set.txt || exit 1; \
	done
	$(PY) requirements/linux_hashes.py $(VENV)/bin/uv requirements/*.txt

# Bundles stay: they are results.
clean:
	rm -rf $(VENV) .import_linter_cache .mypy_cache .ruff_cache .pytest_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
