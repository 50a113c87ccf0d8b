"""`python -m tests.conformance.dbt_parsers DBT`: dbt-core's command as judge of our export.

The evaluation's domain is written with `lakehouse semantics export --form dbt` into a dbt project
that has a model for each table. `dbt parse` must take it: its OSI parser, MetricFlow's converter
and the validation of the semantic manifest. What dbt then writes as OSI itself, without our
extensions, is read back by us and must bind to the same tables. Exit status 1 where that fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import lakehouse as lh
from benchmarks.agent_catalog.lakes import fill
from lakehouse.cli import app
from lakehouse.curation.survey import survey
from lakehouse.semantics.binding import bind
from lakehouse.semantics.foreign_formats import parse_any

DATABASE = "nordlicht"
SCHEMAS_AS_THEY_ARE = (
    "{% macro generate_schema_name(custom_schema_name, node) -%}"
    "{{ custom_schema_name or target.schema }}{%- endmacro %}"
)
SPINE = (
    "models:\n- name: days\n  time_spine: {standard_granularity_column: day}\n"
    "  columns: [{name: day, granularity: day}]\n"
)


def project(folder: Path, tables: list[str]) -> None:
    """A dbt project with a model for each table, and the days that MetricFlow wants."""
    written = {
        "dbt_project.yml": f"name: {DATABASE}\nprofile: judge\nmodel-paths: [models]\n",
        "profiles.yml": "judge:\n  target: here\n  outputs:\n"
        f"    here: {{type: duckdb, path: {DATABASE}.duckdb, schema: main}}\n",
        "macros/schemas.sql": SCHEMAS_AS_THEY_ARE,
        "models/days.sql": "select cast('2025-01-01' as date) as day",
        "models/days.yml": SPINE,
    }
    for table in tables:
        schema, _, name = table.rpartition(".")
        config = f"{{{{ config(schema='{schema}', alias='{name}') }}}}"
        written[f"models/{schema}_{name}.sql"] = f"{config} select 1 as one"
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dbt", type=Path, help="dbt-core's command, with dbt-duckdb beside it")
    dbt = parser.parse_args().dbt.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database, warehouse = f"sqlite:///{folder}/catalog.db", str(folder / "warehouse")
        lake = lh.load_catalog(database, warehouse=warehouse)
        fill(lake, seed=1, scale=0.1)
        tables = [table for table in lake.list_tables() if not table.startswith("semantics.")]
        project(folder / "project", tables)
        document = folder / "project" / "osi" / "statements.json"
        document.parent.mkdir()
        options = ["--catalog", database, "--warehouse", warehouse, "--out", str(document)]
        app(["semantics", "export", "--form", "dbt", "--database", DATABASE, *options],
            standalone_mode=False)  # fmt: skip
        done = subprocess.run(
            [str(dbt), "--no-use-colors", "parse", "--profiles-dir", "."],
            cwd=folder / "project", env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "0"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        sys.stdout.write(done.stdout + done.stderr)
        if done.returncode:
            return 1
        target = folder / "project" / "target"
        judge(lake, json.loads((target / "semantic_manifest.json").read_text("utf-8")), tables)
        read_back(lake, target / "osi_document.json")
    return 0


def judge(lake: lh.Lakehouse, manifest: dict[str, Any], tables: list[str]) -> None:
    """What dbt understood; every dataset is a model of the project."""
    models, metrics = manifest["semantic_models"], manifest["metrics"]
    assert {f"{model['node_relation']['schema_name']}.{model['node_relation']['alias']}"
            for model in models} == set(tables)  # fmt: skip
    columns = {table: set(lake.load_table(table).schema().column_names) for table in tables}
    for model in models:
        table = f"{model['node_relation']['schema_name']}.{model['node_relation']['alias']}"
        for element in (*model["entities"], *model["dimensions"]):
            sql = element["expr"] or element["name"]
            assert sql in columns[table] or "||" in sql, (table, element)
    parts = {kind: sum(len(model[kind]) for model in models) for kind in ("entities", "dimensions")}
    sys.stdout.write(f"{len(models)} semantic models, {parts}, {len(metrics)} metrics\n")


def read_back(lake: lh.Lakehouse, document: Path) -> None:
    """dbt's own document, bound to the tables."""
    seen = survey(lake)
    names = {name.name: name for name in seen.names.values()}
    drafts = parse_any(document.read_text("utf-8"), document.name, names)
    bound = [bind(draft, names, seen.now_ms) for draft in drafts]
    kinds: dict[str, int] = {}
    for one in bound:
        kinds[str(one.kind)] = kinds.get(str(one.kind), 0) + 1
    sys.stdout.write(f"read back from dbt: {kinds}\n")
    assert kinds["metric"] > 0
    assert kinds["grain"] > 0


if __name__ == "__main__":
    raise SystemExit(main())
