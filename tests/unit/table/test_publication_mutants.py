"""Planted faults of publications: the brute force of `test_publication` finds each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakehouse as lh
from lakehouse.catalog.open_branches import OpenBranches
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.table import publication
from lakehouse.table.publication import BranchOfLake
from lakehouse.table.table import Table
from lakehouse.transaction.operations import branches_and_tags
from tests.unit.table import test_publication as honest

Plant = Callable[[pytest.MonkeyPatch], None]


def forgotten_table(patch: pytest.MonkeyPatch) -> None:
    tables = BranchOfLake.tables

    def but_one(self: BranchOfLake) -> list[Table]:
        found = tables(self)
        return found[:-1] if len(found) > 1 else found

    patch.setattr(BranchOfLake, "tables", but_one)


def not_noted(patch: pytest.MonkeyPatch) -> None:
    note, seen = OpenBranches.note, []

    def once(self: OpenBranches, branch: str, tables=()) -> None:
        if len(seen) < 2 or not tables:
            seen.append(branch)
            note(self, branch, tables)

    patch.setattr(OpenBranches, "note", once)


def not_reconciled(patch: pytest.MonkeyPatch) -> None:
    """Main is where the branch is, whatever others have committed."""

    def everything(metadata: TableMetadata, one: str, other: str) -> int | None:
        return metadata.current_snapshot_id

    patch.setattr(publication, "fork_of", everything)
    patch.setattr(branches_and_tags, "_is_ancestor", lambda *_: True)


def not_checked(patch: pytest.MonkeyPatch) -> None:
    for rule in ("no_added_data", "none_changed"):
        patch.setattr(branches_and_tags, rule, lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [forgotten_table, not_noted, not_reconciled, not_checked])
def test_each_is_found(plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(60):
        warehouse = str(tmp_path / str(seed))
        lake = lh.load_catalog(f"sqlite:///{tmp_path}/{seed}.db", warehouse=warehouse)
        try:
            honest.test_as_if_one_had_come_after_the_other(lake, seed)
        except AssertionError:
            return
    pytest.fail(f"{plant.__name__} was not found by 60 seeds")
