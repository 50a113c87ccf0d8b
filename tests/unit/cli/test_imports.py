"""What importing costs: a program pays for what it uses alone."""

from __future__ import annotations

import gc
import importlib
import json
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pyarrow as pa
import pytest
import typer

import lakehouse
from lakehouse.cli import app
from lakehouse.cli.command_list import COMMANDS

HEAVY = {
    "pandas", "datafusion", "sqlalchemy", "polars", "dagster", "pyspark", "duckdb", "requests",
    "sqlglot", "matplotlib", "great_expectations", "pydantic_settings", "strictyaml",
    "pyiceberg.table",
}  # fmt: skip


def imported_by(program: str) -> set[str]:
    """The modules and packages that a fresh process has after the program."""
    code = f"{program}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(out.stdout.splitlines()[-1]))


def test_importing_the_package_imports_none_of_its_parts() -> None:
    found = imported_by("import lakehouse")
    assert not found & {*HEAVY, "pyarrow", "pyiceberg", "numpy"}


def test_the_help_imports_no_engine() -> None:
    program = """
from click.testing import CliRunner
import typer
from lakehouse.cli import app
result = CliRunner().invoke(typer.main.get_command(app), ["--help"])
assert result.exit_code == 0 and "rewrite-manifests" in result.output, result.output
"""
    assert not imported_by(program) & {*HEAVY, "pyarrow", "pyiceberg", "numpy"}


@pytest.mark.parametrize("room", ["maintenance", "orchestration", "spark"])
def test_every_name_of_a_room_has_its_home(room: str) -> None:
    module = importlib.import_module(f"lakehouse.{room}")
    strange = [n for n in module.__all__ if isinstance(getattr(module, n), types.ModuleType)]
    assert strange == []
    assert module.__all__ == sorted(" ".join(module._HOMES.values()).split())


def test_one_part_of_maintenance_imports_no_other() -> None:
    program = "import lakehouse.maintenance.shown_plan"
    code = f"{program}\nimport sys; print([name for name in sys.modules if '.compaction' in name])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


@pytest.mark.parametrize("collecting", [True, False])
def test_a_command_leaves_the_garbage_collector_as_it_was(collecting: bool) -> None:
    group = typer.main.get_group(app)
    (gc.enable if collecting else gc.disable)()
    try:
        assert group.get_command(typer.Context(group), "tables") is not None
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


def test_opening_and_listing_a_catalog_on_disk_imports_no_engine(tmp_path) -> None:
    program = f"""
import lakehouse as lh
lake = lh.load_catalog({str(tmp_path)!r})
assert lake.list_tables() == []
"""
    assert not imported_by(program) & HEAVY


def test_commands_that_read_metadata_import_no_engine(tmp_path) -> None:
    """`describe` shows statements, and `--where` is parsed; these do neither."""
    program = commands(tmp_path, "tables", "history raw.t", "files raw.t", "plan raw.t")
    assert not imported_by(program) & HEAVY


def test_a_query_imports_its_parser_and_its_engine(tmp_path) -> None:
    program = commands(tmp_path, "sql 'SELECT max(a) FROM raw.t'", "plan raw.t --where 'a = 1'")
    assert imported_by(program) & HEAVY == {"datafusion", "sqlglot"}


def test_a_process_that_ran_a_command_knows_frames_once_it_has_one(tmp_path) -> None:
    program = f"""
{commands(tmp_path, "plan raw.t")}
assert "pandas" not in sys.modules
import pandas as pd
import pyarrow as pa
frame = pd.DataFrame({{"a": [1.5, None]}})
assert pa.table(frame)["a"].to_pylist() == [1.5, None]
assert pa.Table.from_pandas(frame).to_pandas().equals(frame)
"""
    assert "pandas" in imported_by(program)


def commands(folder: Path, *lines: str) -> str:
    """A program that runs commands on a catalog with one table, one after the other."""
    schema = pa.schema({"a": pa.int64()})
    lakehouse.load_catalog(folder).create_table("raw.t", schema).append(pa.table({"a": [1]}))
    return f"""
import shlex, sys
from click.testing import CliRunner
import typer
from lakehouse.cli import app
for line in {lines!r}:
    arguments = ["--catalog", {str(folder)!r}, *shlex.split(line)]
    result = CliRunner().invoke(typer.main.get_command(app), arguments)
    assert result.exit_code == 0, (line, result.output)
"""


@pytest.mark.parametrize("name", [*lakehouse.__all__, "spark"])
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(lakehouse, name) is not None
    assert name in dir(lakehouse)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lakehouse.nothing


def test_each_listed_command_is_there_and_says_what_the_list_says() -> None:
    group = typer.main.get_group(app)
    context = typer.Context(group)
    assert group.list_commands(context) == list(COMMANDS)
    for name, listed in COMMANDS.items():
        command = group.get_command(context, name)
        assert command is not None
        assert (command.help or "").startswith(listed.help), name
    assert group.get_command(context, "nothing") is None


def test_the_example_of_each_command_is_one_that_it_takes() -> None:
    group = typer.main.get_group(app)
    context = typer.Context(group)
    examples = {}
    for name in COMMANDS:
        command = group.get_command(context, name)
        _, _, example = " ".join((command.help or "").split()).partition("Example: lakehouse ")
        if example:
            examples[name] = shlex.split(example)
            assert examples[name][0] == name
            command.make_context(name, examples[name][1:]).close()
    assert len(examples) > 20


def test_loading_the_definitions_imports_no_engine_but_spark() -> None:
    """The web server, the daemon and every run load them."""
    found = imported_by("import definitions")
    assert "dagster" in found
    assert not found & {"datafusion", "polars", "duckdb", "great_expectations", "matplotlib"}
