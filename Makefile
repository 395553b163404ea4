# `make demo` answers the question that started the project; `make test` proves the rest.

PYTHON ?= python3
TORCH ?= torch==2.13.0
FLASHINFER ?= flashinfer-python==0.7.4
BIN := .venv/bin

RECORDED ?= $(firstword $(wildcard ../shared/oracle) tests/parity)
.PHONY: drift-engines pairs demo test check coverage fuzz faults bench load format models parity schemas rules readme build clean

demo: .venv/installed
	$(BIN)/attnsel resolve --gpu "RTX PRO 6000" --model glm-5.2-fp8 --set tp=8,pp=2 --query-len 3300

test: .venv/installed-test
	$(BIN)/python -m pytest --numprocesses auto

check: .venv/installed-test  ## everything that CI and reviewers look at
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/attnsel lint capabilities.yaml manifests
	$(BIN)/attnsel verify capabilities.yaml manifests/*.yaml
	$(MAKE) coverage

coverage: .venv/installed-test  ## domains, the definition and its paths must be covered branch by branch
	$(BIN)/python -m pytest --numprocesses auto --cov --cov-report=term
	$(BIN)/coverage report --include='*/selector/domains.py,*/selector/resolve.py,*/selector/paths.py' --fail-under=100

fuzz: .venv/installed-test  ## 10,000 random commands, 10,000 logs, 20,000 manifests: an answer or one line; SEED=2 gives others
	PYTHONPATH=. $(BIN)/python -m tests.fuzz --seed $(or $(SEED),1)

faults: .venv/installed-test  ## the service under 1,000 reloads, kills, 10,000 malformed requests; SEED=2 gives others, MINUTES=10 watches memory
	PYTHONPATH=. $(BIN)/python -m tests.faults --seed $(or $(SEED),1) --minutes $(or $(MINUTES),0)

bench: .venv/installed-test  ## how long decisions, tables, lint, preflight and explain --log take
	$(BIN)/python -m benchmarks

load: .venv/installed-test  ## the service under load, beside a bare echo; needs wrk (apt-get install wrk) and a quiet machine
	$(BIN)/python -m benchmarks.service

format: .venv/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

models: .venv/installed  ## how many configs are read exactly, and which fields are missed
	$(BIN)/python tools/score_models.py $(CORPUS) --misses

pairs: .venv/installed-test  ## a million random questions, asked of plan and definition
	$(BIN)/python -m tests.laws.pairs --seed $(or $(SEED),1)

parity: .venv/installed-test  ## every recorded decision of vLLM, where they lie beside this; else the committed part
	PYTHONPATH=. $(BIN)/python tools/parity.py $(RECORDED)

drift-engines: .venv/installed-test  ## released engines against their manifests, one page each in docs; fetches 800 MB into build/wheels
	$(BIN)/python tools/drift_engines.py $(or $(WHEELS),build/wheels)

schemas: .venv/installed  ## after changing selector/fields.py
	$(BIN)/python tools/write_schemas.py

rules: .venv/installed  ## after changing a rule of lint
	$(BIN)/python tools/write_rules.py

readme: .venv/installed  ## after changing capabilities.yaml
	$(BIN)/python tools/write_readme.py

build: .venv/installed-test
	$(BIN)/python -m build

clean:
	rm -rf .venv dist build *.egg-info

.venv/bin/python:
	sh tools/make_venv.sh "$(PYTHON)" .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@# Adapters are held against FlashInfer's signatures: its Python, without the CUDA packages that it asks for.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(FLASHINFER)
	@touch $@ .venv/installed
