"""What `make scaffold` is made of: its count of lines, and that the project loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scaffold.landed_lines import GOOD, count, land_drifted_broken_and_late, land_good
from tests.scaffold.new_project import write_project

LOOK = """
from definitions import defs
graph = defs.resolve_asset_graph()
print(sorted(key.to_user_string() for key in graph.materializable_asset_keys))
print(sorted(one.name for one in defs.get_repository_def().sensor_defs))
"""


def test_each_kind_of_line_is_counted(tmp_path: Path) -> None:
    land_good(tmp_path)
    first = count(tmp_path)
    assert (first.lines, first.rows, first.rejected, first.duplicates) == (GOOD, GOOD, 0, 0)
    land_drifted_broken_and_late(tmp_path)
    found = count(tmp_path)
    assert found.lines == found.rows + found.rejected + found.duplicates
    assert found.duplicates == 1_000, "of late.jsonl"
    broken, torn = 7, 1
    assert found.rejected == broken + torn
    assert found.campaigns == GOOD
    assert set(found.paid) == {f"u{n}" for n in range(7)}


@pytest.mark.slow
def test_the_project_loads_in_an_empty_folder(tmp_path: Path) -> None:
    environment = os.environ | write_project(tmp_path)
    land_good(tmp_path / "landing" / "clicks")

    def run(*arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    run("-c", "from lakehouse.cli import app; app()", "new-source", "clicks", "landing/clicks")
    assets, sensors = run("-c", LOOK)[-2:]
    expected = ["lakehouse/state", "marts/spenders", "marts/users", "raw/clicks"]
    assert assets == str([*expected, "raw/clicks_landing", "raw/clicks_quarantine"])
    assert "'default_automation_condition_sensor'" in sensors
    assert "'landed_clicks'" in sensors
