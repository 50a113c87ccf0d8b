"""What a name in Spark means: a table, a point in its history, or one of its metadata tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.errors import InvalidIdentifierError
from lakehouse.inspect.metadata_tables import METADATA_TABLES
from lakehouse.lake import Lakehouse
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.table.scan import TableScan
from lakehouse.table.table import Table

BRANCH = "branch_"
TAG = "tag_"
SNAPSHOT = "snapshot_id_"
TIME = "at_timestamp_"
CHANGES = "changes"


@dataclass(frozen=True)
class NamedTable:
    """A table as a name or a statement says it.

    Attributes:
        table: the table.
        shown: the name in the statement.
        metadata_table: one of `METADATA_TABLES`, or `CHANGES`; None for the rows themselves.
        branch: the branch that writes go to; None where nothing can be written.
        snapshot_id: read this snapshot.
        as_of_ms: read what was current at this time.
        ref: read the head of this branch, or this tag.
    """

    table: Table
    shown: str
    metadata_table: str | None = None
    branch: str | None = "main"
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    ref: str | None = None

    def scan(self) -> TableScan:
        """The scan of the snapshot meant. Raises NoSuchSnapshotError, NoSuchRefError."""
        if self.snapshot_id is None and self.as_of_ms is None:
            return self.table.scan(ref=self.ref or "main")
        return self.table.scan(snapshot_id=self.snapshot_id, as_of=self.as_of_ms)

    def at(self, version: str | None, as_of_us: int | None) -> NamedTable:
        """At `VERSION AS OF` (snapshot id, branch or tag) or `TIMESTAMP AS OF` (microseconds)."""
        facts = (self.table, self.shown, self.metadata_table, None)
        if as_of_us is not None:
            return NamedTable(*facts, as_of_ms=as_of_us // 1000)
        if version is None:
            return self
        if version.isdecimal():
            return NamedTable(*facts, snapshot_id=int(version))
        return NamedTable(*facts, ref=version)


def find_table(lake: Lakehouse, namespace: Sequence[str], name: str) -> NamedTable | None:
    """The table that a name means; None when there is none.

    Behind the table's own name may stand a metadata table (`raw.events.files`), or a point in its
    history: `branch_audit`, `tag_first`, `snapshot_id_8124`, `at_timestamp_1780272000000`.
    """
    shown = dotted((*namespace, name))
    table = _load(lake, namespace, name)
    if table is not None:
        return NamedTable(table, shown)
    if len(namespace) < 2:
        return None
    table = _load(lake, namespace[:-1], namespace[-1])
    return None if table is None else _part(table, shown, name)


def _part(table: Table, shown: str, name: str) -> NamedTable | None:
    if name in METADATA_TABLES or name == CHANGES:
        return NamedTable(table, shown, name, branch=None)
    if name.startswith(BRANCH):
        branch = name.removeprefix(BRANCH)
        return NamedTable(table, shown, branch=branch, ref=branch)
    if name.startswith(TAG):
        return NamedTable(table, shown, branch=None, ref=name.removeprefix(TAG))
    _, separator, number = name.rpartition("_")
    if separator and number.isdecimal() and name == f"{SNAPSHOT}{number}":
        return NamedTable(table, shown, branch=None, snapshot_id=int(number))
    if separator and number.isdecimal() and name == f"{TIME}{number}":
        return NamedTable(table, shown, branch=None, as_of_ms=int(number))
    return None


def _load(lake: Lakehouse, namespace: Sequence[str], name: str) -> Table | None:
    try:
        identifier = Identifier(tuple(namespace), name)
        is_there = lake.table_exists(identifier)
    except InvalidIdentifierError:  # no catalog, or not this one, has such names
        return None
    return lake.load_table(identifier) if is_there else None
