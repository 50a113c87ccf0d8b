"""Histories of pyiceberg, us and a writer of equality deletes by hand, without Java.

As `python -m tests.conformance.java --histories`, which has Java write and judge as well: after
each step every way out of a scan gives the rows of a model that knows no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.java.evolving_history import EvolvingHistory
from tests.conformance.java.json_rows import Row
from tests.conformance.java.schema_changes import SchemaChanges
from tests.property.hand_writer import HandWriter
from tests.seeds import seeds

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option", "ignore:Merge on read")

HISTORIES, STEPS = 12, 10


class HistoryWithoutJava(EvolvingHistory):
    versions = (2, 2, 3)

    def __init__(self, seed: int, folder: Path) -> None:
        folder.mkdir()
        super().__init__(seed, HandWriter(), folder, Counter())
        self._java_reads = False

    def _create(self) -> None:
        super()._create()
        self._changes = SchemaChanges(self.random, self._both, asks_java=False)

    def _steps(self) -> list[tuple[int, Callable[[], str]]]:
        some = bool(self._rows)
        return [
            (3, self._append),
            (2, self._delete if some else self._append),
            (2, self._change if some else self._append),
            (6, self._equality_delete if some else self._append),
            (5, self._schema),
            (3, self._spec),
            (2, self._compact if some else self._append),
            (5, self._overlap if some else self._append),
            (1, self._upgrade),
            (1, self._branches if self._snapshots else self._append),
            (1, self._expire if self._snapshots else self._append),
        ]

    def _held(self) -> list[Callable[[], str]]:
        held = [self._held_equality, self._outlived, self._held_append, self._old_handle]
        return [*held, self._planned_compaction, self._planned_compaction]

    def _java_commits(self) -> bool:
        return False

    def _who_changes_schema(self) -> str:
        return self.random.choice(["we", "pyiceberg"]) if self.version < 3 else "we"

    def _compare_with_java(self, expected: list[Row]) -> None:
        pass

    def _compare_snapshot_with_java(self, snapshot_id: int, expected: list[Row]) -> None:
        pass

    def _compare_schema(self) -> None:
        pass


@pytest.mark.parametrize("seed", seeds(3, of=HISTORIES))
def test_rows_are_those_of_the_model_whoever_writes(tmp_path, seed):
    history = HistoryWithoutJava(seed, tmp_path / "history")
    history.run(STEPS)
    assert len(history.log) == STEPS + 1
