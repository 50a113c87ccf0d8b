"""The inverse of what a run did to the rows of a table that others have changed since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, In, IsNull, Or
from pyiceberg.types import IntegerType, LongType, StringType

from lakehouse.errors import ValidationConflictError
from lakehouse.ingestion.definition_changes import recorded
from lakehouse.spec.metadata.snapshot import RUN_ID, Snapshot
from lakehouse.table import Table
from lakehouse.table.publication import writer_of

Row: TypeAlias = tuple[Any, ...]
_SHOWN = 3
_KINDS = {"INSERT": 1, "DELETE": -1}
_LISTED = (LongType, IntegerType, StringType)


@dataclass(frozen=True)
class Inverse:
    """Rows that go and rows that come back.

    Attributes:
        gone: rows that the run added, as values that can be compared, and how many of each.
        back: rows that it removed.
        values: of both, as Arrow gives them.
    """

    gone: Counter[Row] = field(default_factory=Counter)
    back: Counter[Row] = field(default_factory=Counter)
    values: dict[Row, Mapping[str, Any]] = field(default_factory=dict)

    def where(self, table: Table) -> BooleanExpression:
        """Rows that are looked at: those whose value of one column is that of a row in here."""
        names = [
            field.name for field in table.schema().fields if isinstance(field.field_type, _LISTED)
        ]
        values = {name: {row[name] for row in self.values.values()} for name in names}
        if not values:
            return AlwaysTrue()
        name = max(values, key=lambda column: len(values[column]))
        known = values[name] - {None}
        listed = In(term=name, literals=known) if known else IsNull(term=name)
        return Or(listed, IsNull(term=name)) if known and None in values[name] else listed

    def apply(self, table: Table, now: pa.Table) -> pa.Table:
        """What the rows are to become. Raises ValidationConflictError: one is not there."""
        present = dict(self.values)
        count: Counter[Row] = Counter()
        for row in now.to_pylist():
            present.setdefault(comparable(row.values()), row)
            count[comparable(row.values())] += 1
        missing = self.gone - count
        if missing:
            raise _conflict(table, [self.values[row] for row in missing], "are gone")
        count = count - self.gone + self.back
        return pa.Table.from_pylist([present[row] for row in count.elements()], now.schema)


def inverse_of(table: Table, run_id: str, line: Sequence[Snapshot]) -> Inverse:
    """The inverse of what a run did.

    Rows are the same if their key is: the identifier fields of the schema, else the key by which
    the asset upserts; without a key, if all of their values are.

    Args:
        table: with a current version.
        run_id: of Dagster.
        line: snapshots from the newest to the first that the run made.

    Raises:
        ValidationConflictError: somebody else has added, changed or removed the same rows since; it
            names the first of them, and who that was.
    """
    own: Counter[Row] = Counter()
    values: dict[Row, Mapping[str, Any]] = {}
    others: list[tuple[Snapshot, list[Mapping[str, Any]]]] = []
    for snapshot in reversed(line):
        if snapshot.operation == "replace":
            continue
        changes = table.changelog(
            snapshot.parent_snapshot_id, snapshot.snapshot_id, net=True
        ).to_arrow()
        kinds = changes["_change_type"].to_pylist()
        rows = changes.select([field.name for field in table.schema().fields]).to_pylist()
        if snapshot.summary.get(RUN_ID) != run_id:
            others.append((snapshot, rows))
            continue
        for kind, row in zip(kinds, rows, strict=True):
            own[comparable(row.values())] += _KINDS[kind]
            values.setdefault(comparable(row.values()), row)
    values = {row: value for row, value in values.items() if own[row]}
    keys = _keys(table)

    def same(row: Mapping[str, Any]) -> Row:
        return comparable([row[name] for name in keys] if keys else row.values())

    touched = {same(row) for row in values.values()}
    for snapshot, rows in others:
        hit = [row for row in rows if same(row) in touched]
        if hit:
            by = f"were changed by {snapshot.operation} {snapshot.snapshot_id}"
            raise _conflict(table, hit, f"{by}, of {writer_of(snapshot.summary)}")
    return Inverse(+own, -own, values)


def comparable(values: Iterable[Any]) -> Row:
    """Values that can be looked up: NaN is NaN, lists and structs are tuples."""
    return tuple(_comparable(value) for value in values)


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return ("NaN",)
    if isinstance(value, dict):
        return ("struct", *((key, _comparable(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(_comparable, value))
    return value


def _keys(table: Table) -> list[str]:
    named = sorted(table.schema().identifier_field_names())
    return named or list((recorded(table) or {}).get("upsert_keys") or ())


def _conflict(
    table: Table, rows: Sequence[Mapping[str, Any]], what: str
) -> ValidationConflictError:
    shown = "; ".join(
        ", ".join(f"{name}={value!r}" for name, value in row.items()) for row in rows[:_SHOWN]
    )
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ValidationConflictError(
        f"{table.name}: rows of the run {what}: {shown}{more}. Nothing was undone. Name the other "
        "tables with --table, and mend these rows by SQL",
        table=table.name,
    )
