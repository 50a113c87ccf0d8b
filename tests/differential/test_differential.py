"""The comparison of two engines: equal ones are found equal, and a difference is found."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.differential.__main__ import ROOT, differences, run


@pytest.mark.slow
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_difference_between_engines_is_found(tmp_path: Path, is_changed: bool):
    shutil.copytree(
        ROOT / "lakehouse", tmp_path / "engine/lakehouse", ignore=shutil.ignore_patterns("*.pyc")
    )
    changed = tmp_path / "engine/lakehouse/transaction/snapshot_producer.py"
    if is_changed:
        text = changed.read_text()
        assert '"total-records"' in text
        changed.write_text(text.replace('"total-records"', '"total-rows"'))
    before = run(tmp_path / "engine", tmp_path, 3, 1).rename(tmp_path / "before")
    after = run(ROOT, tmp_path, 3, 1).rename(tmp_path / "after")
    counts: Counter[str] = Counter()
    found = list(differences(before / "3", after / "3", counts))
    assert counts["files"] > 20
    assert counts["steps"] == 12
    assert bool(found) is is_changed, found
