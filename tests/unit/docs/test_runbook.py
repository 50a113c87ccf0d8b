"""docs/runbook.md: its commands run in order. docs/troubleshooting.md: its texts are the code's."""

from __future__ import annotations

import datetime as dt
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from dagster._cli import create_dagster_cli
from dagster_dg_cli.cli import cli as dg_cli
from typer.main import get_command
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/runbook.md").read_text()
PERSON = "N14228"
# these need what is not here: a checkout with its landing files, a daemon
PARSED = ("dagster", "dg", "lakehouse retry-quarantine", "lakehouse plan-changes")
PARSED += ("lakehouse lineage",)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def _commands() -> Iterator[str]:
    for block in _blocks("sh"):
        yield from block.splitlines()


def _rows(day: int, tails: list[str]) -> pa.Table:
    at = [dt.datetime(2013, 1, day, hour, tzinfo=dt.UTC) for hour in range(len(tails))]
    return pa.table(
        {
            "event_ts": pa.array(at, pa.timestamp("us", "UTC")),
            "carrier": ["XX" if tail == "none" else "UA" for tail in tails],
            "tailnum": tails,
            "landing_file": [f"{day}.jsonl"] * len(tails),
        }
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Flights of two days, and their quarantine, where the command line finds them."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "workspace.yaml", tmp_path / "workspace.yaml")
    for name in ("LAKEHOUSE_CATALOG", "LAKEHOUSE_WAREHOUSE", "LAKEHOUSE_NAME"):
        monkeypatch.delenv(name, raising=False)
    lake = lh.load_catalog(str(tmp_path / ".lakehouse/warehouse"))
    by_day = ["day(event_ts)"]
    flights = lake.create_table("raw.flights", _rows(4, ["N1"]).schema, partition_by=by_day)
    flights.append(_rows(4, ["N1", PERSON, "N2"]))
    flights.append(_rows(5, [PERSON, "none", "N3"]))
    day = [dt.date(2013, 1, 5)]
    lost = {"event_day": day, "landing_file": ["5.jsonl"], "landing_line": [9]}
    lost |= {"reason": ["type conflict"], "detail": ["x"], "record": [f'{{"tail": "{PERSON}"}}']}
    quarantine = pa.table(lost)
    lake.create_table("raw.flights_quarantine", quarantine.schema).append(quarantine)
    return tmp_path


def _run(command: str) -> str:
    words = shlex.split(command)
    if command.startswith(PARSED):
        _parsed(words)
        return ""
    if words[0] != "lakehouse":
        subprocess.run(words, check=True)
        return ""
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, (command, done.output, done.exception)
    return done.output


def _parsed(words: list[str]) -> None:
    """Fails unless the program has such a command with such options."""
    program = {"dagster": create_dagster_cli(), "dg": dg_cli, "lakehouse": get_command(app)}
    command, rest = program[words[0]], words[1:]
    with command.make_context(words[0], list(rest), resilient_parsing=True) as context:
        while hasattr(command, "get_command"):
            name, command, rest = command.resolve_command(context, rest)
            assert command is not None, name
        command.make_context(name, list(rest), parent=context).close()


def _flights(folder: Path, warehouse: str = ".lakehouse/warehouse") -> list[tuple[object, ...]]:
    lake = lh.load_catalog(str(folder / warehouse))
    found = lake.load_table("raw.flights").scan().to_arrow().to_pylist()
    return sorted((row["event_ts"], row["tailnum"]) for row in found)


def _files_with(folder: Path, person: str) -> list[Path]:
    """Files of the warehouse that still name a person."""
    return [
        path
        for path in (folder / ".lakehouse/warehouse").rglob("*")
        if path.is_file()
        and (
            person.encode() in path.read_bytes()
            or (path.suffix == ".parquet" and person in str(pq.read_table(path).to_pylist()))
        )
    ]


def test_every_command_runs_in_order_and_does_what_the_page_says(folder: Path) -> None:
    before = _flights(folder)
    assert _files_with(folder, PERSON)
    for command in _commands():
        said = _run(command)
        if command.startswith('lakehouse sql "DELETE') and "carrier" in command:
            left = [row for row in before if row[1] != "none"]
            assert _flights(folder) == (before if "--dry-run" in command else left)
        elif command == "lakehouse rollback raw.flights before-fix":
            assert _flights(folder) == before
        elif command == "lakehouse relocate --catalog moved":
            rows = lh.load_catalog(str(folder / "moved")).load_table("raw.flights").scan()
            assert len(rows.to_arrow()) == len(_flights(folder))
        elif command == "lakehouse restore kept --catalog restored":
            assert _flights(folder, "restored") == _flights(folder)
        elif command.startswith("lakehouse forget") and "--apply" not in command:
            assert re.search(r"raw\.flights +2\b", said)
            assert _files_with(folder, PERSON), "a plan does nothing"
    assert _flights(folder) == [row for row in before if row[1] != PERSON]
    assert _files_with(folder, PERSON) == []


def test_the_commands_of_the_page_on_lines_are_there() -> None:
    text = (ROOT / "docs/why.md").read_text().replace("\\\n", "")
    commands = re.findall(r"^\$ (lakehouse .*)$", text, re.MULTILINE)
    assert {command.split()[1] for command in commands} == {"why", "why-not", "impact"}
    for command in commands:
        _parsed(shlex.split(command))


def test_texts_of_errors_are_those_of_the_code() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    texts = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(texts) > 10
    paths = [*(ROOT / "lakehouse").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    code = "\n".join(path.read_text() for path in paths)
    assert [text for text in texts if text not in code] == []


def test_runs_are_purged_and_the_retention_of_ticks_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings,) = _blocks("yaml")
    (tmp_path / "dagster.yaml").write_text(settings)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (program,) = _blocks("python")
    with dg.DagsterInstance.get() as instance:
        kept = yaml.safe_load(settings)["retention"]
        assert instance.get_settings("retention") == kept
        old, new = ("0" * 8 + f"-0000-0000-0000-{number:012}" for number in (1, 2))
        for run_id in (old, new):
            run = dg.DagsterRun("ingest_flights", run_id=run_id, status=dg.DagsterRunStatus.SUCCESS)
            instance.run_storage.add_run(run)
        with instance.run_storage.connect() as connection:
            connection.exec_driver_sql(
                f"UPDATE runs SET create_timestamp = '2020-01-01 00:00:00' WHERE run_id = '{old}'"
            )
        exec(compile(program, "purge_runs.py", "exec"), {})  # noqa: S102 - the page's program
        assert [run.run_id for run in instance.get_runs()] == [new]
