"""docs/runs.md: its commands print what the page shows, after two runs of a small shop."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource

TEXT = (Path(__file__).resolve().parents[3] / "docs/runs.md").read_text()
BLOCK = re.compile(r"^```\n(\$ .*?)^```", re.MULTILINE | re.DOTALL)


def said(text: str, run_id: str) -> list[str]:
    """Lines without what differs from run to run."""
    for run in (run_id, run_id[:8], "0d022d59"):
        text = text.replace(run, "RUN")
    text = re.sub(r"\b\d{12,}\b", "ID", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.fixture
def run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The second run of two assets that are published together."""
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    for name, value in {"CATALOG": catalog, "WAREHOUSE": str(tmp_path / "warehouse")}.items():
        monkeypatch.setenv(f"LAKEHOUSE_{name}", value)
    monkeypatch.delenv("LAKEHOUSE_NAME", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    count = [0]

    @dg.asset(key_prefix="shop")
    def orders() -> pa.Table:
        count[0] += 1
        return pa.table({"id": range(3 * count[0])})

    @dg.asset(key_prefix="shop")
    def order_count(orders: pa.Table) -> pa.Table:
        return pa.table({"orders": [orders.num_rows]})

    lakehouse = LakehouseResource(
        catalog=catalog, warehouse=str(tmp_path / "warehouse"), publish="run"
    )
    io_manager = LakehouseIOManager(lakehouse=lakehouse)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for _ in range(2):
            done = dg.materialize(
                [orders, order_count], instance=instance, resources={"io_manager": io_manager}
            )
    return done.run_id


@pytest.mark.slow
def test_the_page_shows_what_is_printed(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(TEXT)
    assert len(blocks) == 3
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            words = shlex.split(command.replace("0d022d59", run_id[:8]))
            with monkeypatch.context() as patch:
                if "=" in words[0]:
                    patch.setenv(*words.pop(0).split("=", 1))
                result = CliRunner(env=dict(os.environ)).invoke(app, words[1:])
            assert result.exit_code == 0, f"{command}: {result.output} {result.stderr}"
            found = said(result.output, run_id)
            assert found == said(shown, run_id), (command, result.output)
