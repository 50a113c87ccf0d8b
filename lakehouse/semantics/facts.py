"""What metadata says about a table at a snapshot: rows, and for each field nulls, bounds and bytes.

Values, no storage.

Bounds of numbers, dates and times are taken as tight, as every writer that we know records them;
bounds of text and bytes may be cut, so they only enclose. With delete files all bounds only
enclose, because the row that a bound comes from may be gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND, OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import SKETCH_ENTRIES, TableMetadata, recorded_distinct
from lakehouse.spec.schema.iceberg_types import field_types, fields_of

OWNER = "owner"
"""Table property that names who answers for the table."""

_ENCLOSING = (StringType, BinaryType, FixedType)
_MAY_BE_EMPTY = (StringType, BinaryType)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without zone have none


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many different values a column has, nulls apart: at least and at most.

    A theta sketch is exact up to its 4,096 entries. Beyond, six standard errors (of a 64th each)
    lie between the estimate and either end.
    """

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"

    @classmethod
    def of(cls, ndv: int, *, may_be_empty: bool) -> Distinct:
        """From a recorded estimate; an empty text is a value that sketches do not count."""
        error = 0.0 if ndv < SKETCH_ENTRIES else 6 / 64
        return cls(int(ndv * (1 - error)), int(ndv * (1 + error)) + may_be_empty)


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One field over a set of files; None is unknown.

    Attributes:
        values: how many, nulls included.
        nulls: how many are null.
        nans: how many are NaN; 0 for types that have none.
        lower, upper: enclose every value that is neither null nor NaN; Python values.
        tight: whether a value equals `lower` and one equals `upper`.
        bytes: size in the files.
        distinct: how many different values, by a sketch of the same rows.
    """

    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: Any = None
    upper: Any = None
    tight: bool = False
    bytes: int | None = None
    distinct: Distinct | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table at a snapshot, or a part of its files.

    Attributes:
        name: dotted.
        table_uuid: of the table.
        schema_id: of the schema.
        snapshot_id: None for a table without data.
        timestamp_ms: when the snapshot was committed.
        rows: live rows; None when delete files hide some.
        columns: by field id, of the primitive fields.
        names: by field id, the dotted path of each field of the schema, nested ones too.
        properties: of the table.
    """

    name: str
    table_uuid: str
    schema_id: int
    snapshot_id: int | None
    timestamp_ms: int
    rows: int | None
    columns: Mapping[int, ColumnFacts]
    names: Mapping[int, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner(self) -> str | None:
        """Who answers for the table, by its own property."""
        return self.properties.get(OWNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happened to a table since a snapshot.

    Attributes:
        after: the table now.
        same_rows: only rewrites came since: the rows are the same.
        since: the earliest snapshot that changed rows; None when none did, or when it is not known
            any more.
        added, removed: paths of data files; None when the snapshot is not known any more, or delete
            files changed.
        append_only: every row is still there, whatever rewrites did to its file.
        repacked: files were rewritten since, so how many bytes a value takes is another matter.
    """

    after: TableFacts
    same_rows: bool
    since: int | None = None
    added: frozenset[str] | None = None
    removed: frozenset[str] | None = None
    append_only: bool = False
    repacked: bool = False


def table_facts(
    name: str,
    metadata: TableMetadata,
    snapshot_id: int | None,
    entries: Sequence[Entries],
    *,
    deletes: bool,
    wanted: Collection[int] | None = None,
) -> TableFacts:
    """Facts of data files.

    Args:
        name: of the table, dotted.
        metadata: the table version.
        snapshot_id: what the entries are of.
        entries: live data files, one part a partition spec.
        deletes: whether delete files apply to any of them.
        wanted: field ids to say something of; all of them when None.
    """
    snapshot = None if snapshot_id is None else metadata.snapshot(snapshot_id)
    schema = metadata.schema()
    types = field_types(schema)
    tables = [part.table for part in entries if len(part)]
    files = pa.concat_tables(tables, promote_options="permissive") if tables else None
    chosen = (
        types
        if wanted is None
        else {field_id: types[field_id] for field_id in wanted if field_id in types}
    )
    rows = 0 if files is None else int(pc.sum(files["record_count"]).as_py() or 0)
    distinct = _distinct_of_same_rows(metadata, snapshot_id)
    return TableFacts(
        name=name,
        table_uuid=metadata.table_uuid,
        schema_id=schema.schema_id,
        snapshot_id=snapshot_id,
        timestamp_ms=metadata.last_updated_ms if snapshot is None else snapshot.timestamp_ms,
        rows=None if deletes else rows,
        columns={
            field_id: _column(files, field_id, kind, deletes=deletes, distinct=distinct)
            for field_id, kind in chosen.items()
        },
        names=field_names(schema),
        properties=metadata.properties,
    )


def field_names(schema: Schema) -> dict[int, str]:
    """Field id -> dotted path, nested fields too."""
    return {field_id: str(schema.find_column_name(field_id)) for field_id in fields_of(schema)}


@dataclass(frozen=True, slots=True)
class Lineage:
    """The snapshots after one, up to the current one.

    Attributes:
        known: whether the one is an ancestor of the current snapshot.
        first: the earliest of them that changed rows; None when none did.
        append_only: whether those that changed rows only added some.
        repacked: whether one of them rewrote files.
    """

    known: bool
    first: int | None
    append_only: bool
    repacked: bool


def lineage_since(metadata: TableMetadata, since: int | None) -> Lineage:
    """What came after a snapshot; None is the table before its first one."""
    first: int | None = None
    append_only, repacked = True, False
    parent: int | None = None
    for snapshot in metadata.ancestors(metadata.current_snapshot_id):
        if snapshot.snapshot_id == since:
            return Lineage(True, first, append_only, repacked)
        if snapshot.operation == OPERATION_REPLACE:
            repacked = True
        else:
            first = snapshot.snapshot_id
            append_only = append_only and snapshot.operation == OPERATION_APPEND
        parent = snapshot.parent_snapshot_id
    return Lineage(since is None and parent is None, first, append_only, repacked)


def _column(
    files: pa.Table | None,
    field_id: int,
    kind: PrimitiveType,
    *,
    deletes: bool,
    distinct: Mapping[int, int],
) -> ColumnFacts:
    if files is None:
        return ColumnFacts(values=0, nulls=0, nans=0, tight=True, bytes=0)
    values, nulls = _total(files, "value_count", field_id), _total(files, "null_count", field_id)
    floating = str(kind) in ("float", "double")
    lower, upper = _bound(files, field_id, kind, "lower"), _bound(files, field_id, kind, "upper")
    return ColumnFacts(
        values=values,
        nulls=nulls,
        nans=_total(files, "nan_count", field_id) if floating else 0,
        lower=lower,
        upper=upper,
        tight=not deletes and not isinstance(kind, _ENCLOSING),
        bytes=_total(files, "column_size", field_id),
        distinct=Distinct.of(distinct[field_id], may_be_empty=isinstance(kind, _MAY_BE_EMPTY))
        if field_id in distinct and not floating  # the sketch counts bytes: zero has two forms
        else None,
    )


def _distinct_of_same_rows(metadata: TableMetadata, snapshot_id: int | None) -> dict[int, int]:
    """Field id -> different values, counted at this snapshot or at one with the same rows."""
    counts: dict[int, int] = {}
    for snapshot in metadata.ancestors(snapshot_id) if metadata.statistics else ():
        counts = recorded_distinct(metadata, snapshot.snapshot_id) | counts
        if snapshot.operation != OPERATION_REPLACE:
            break
    return counts


def _total(files: pa.Table, prefix: str, field_id: int) -> int | None:
    """The sum over the files; None when one of them does not say."""
    name = f"{prefix}.{field_id}"
    if name not in files.column_names or files[name].null_count:
        return None
    return int(pc.sum(files[name]).as_py() or 0)


def _bound(files: pa.Table, field_id: int, kind: PrimitiveType, side: str) -> Any:
    """The outermost bound; None when a file that has values does not say."""
    name = f"{side}.{field_id}"
    if name not in files.column_names:
        return None
    column = files[name]
    if column.null_count:
        counts = [f"{prefix}.{field_id}" for prefix in ("value_count", "null_count")]
        if any(count not in files.column_names for count in counts):
            return None
        empty = pc.fill_null(pc.equal(files[counts[0]], files[counts[1]]), fill_value=False)
        if not pc.all(pc.or_(pc.is_valid(column), empty)).as_py():
            return None
    if pa.types.is_fixed_size_binary(column.type):
        return None
    outermost = pc.min(column) if side == "lower" else pc.max(column)
    try:
        return _python_value(outermost.as_py(), kind)
    except OverflowError:  # a time that Python's calendar does not reach
        return None


def _python_value(physical: Any, kind: PrimitiveType) -> Any:
    if physical is None:
        return None
    if isinstance(kind, DateType) and isinstance(physical, int):
        return (_EPOCH + dt.timedelta(days=physical)).date()
    if isinstance(kind, (TimestampType, TimestamptzType)) and isinstance(physical, int):
        moment = _EPOCH + dt.timedelta(microseconds=physical)
        return moment.replace(tzinfo=dt.UTC) if isinstance(kind, TimestamptzType) else moment
    if isinstance(kind, (TimestampNanoType, TimestamptzNanoType)):
        return None  # Python's times end at microseconds: a bound would be rounded
    return physical
