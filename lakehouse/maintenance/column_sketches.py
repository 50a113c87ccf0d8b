"""Distinct counts: theta sketches in a Puffin file that metadata names (spec: Table Statistics)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType
from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.confinement import check_table
from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.maintenance.shown_plan import Report, human_bytes, listing
from lakehouse.maintenance.statistics_file import NewBlob, attach_statistics, statistics_snapshot
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import (
    SKETCH_ENTRIES,
    THETA_SKETCH,
    TableMetadata,
    recorded_distinct,
)
from lakehouse.spec.types.internal_values import serialized_values
from lakehouse.spec.types.sorted_numbers import union
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsPlan(Report):
    """What counting would read.

    Attributes:
        identifier: the table.
        snapshot_id: what would be counted.
        columns: their names.
        files, rows, bytes: of the data files, whole: fewer bytes are read where there are other
            columns.
    """

    identifier: Identifier
    snapshot_id: int
    columns: tuple[str, ...]
    files: int
    rows: int
    bytes: int
    action_name: ClassVar[str] = "analyze"

    def title(self) -> str:
        return f"Count distinct values of {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshot", str(self.snapshot_id)
        yield "columns", ", ".join(self.columns)
        yield "files to read", f"{self.files:,}, {self.rows:,} rows"
        yield "bytes of these files", human_bytes(self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsResult(Report):
    """Distinct counts of one snapshot.

    Attributes:
        identifier: the table.
        snapshot_id: what was counted.
        distinct: column name -> estimated number of different values, nulls not counted: exact up
            to 4,096, then within about 3 percent.
        location: of the statistics file.
        bytes: its size.
    """

    identifier: Identifier
    snapshot_id: int
    distinct: Mapping[str, int]
    location: str
    bytes: int

    def title(self) -> str:
        return f"Distinct counts of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "analyze",
            "snapshot_id": self.snapshot_id,
            "distinct": dict(self.distinct),
            "statistics_file": self.location,
            "bytes": self.bytes,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshot", str(self.snapshot_id)
        yield "statistics file", self.location
        yield "size", human_bytes(self.bytes)

    def detail(self) -> RenderableType | None:
        return listing(
            ("column", "#different values"),
            ((name, f"{count:,}") for name, count in self.distinct.items()),
        )


def plan_statistics(
    catalog: Catalog,
    identifier: Identifier | str,
    *,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
) -> StatisticsPlan:
    """What `compute_statistics` would read; changes nothing. Arguments and errors as there."""
    table = Identifier.parse(identifier)
    metadata = catalog.load(table).metadata
    snapshot = statistics_snapshot(metadata, snapshot_id, table)
    fields = _countable(metadata.schema_for(snapshot), columns, str(table))
    scan = ScanRequest(metadata=metadata, snapshot_id=snapshot.snapshot_id)
    files = plan_scan(scan, catalog.storage(metadata.location)).files
    return StatisticsPlan(
        identifier=table,
        snapshot_id=snapshot.snapshot_id,
        columns=tuple(field.name for field in fields),
        files=len(files),
        rows=sum(file.record_count for file in files),
        bytes=sum(file.file_size_in_bytes for file in files),
    )


def compute_statistics(
    catalog: Catalog,
    identifier: Identifier | str,
    *,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    environment: Environment | None = None,
) -> StatisticsResult:
    """Count the distinct values of columns, into the snapshot's statistics file.

    What the file says of other columns, or besides these counts, stays. Every live row is read, of
    the given columns alone; memory is that of a streamed scan and some kilobytes a column.

    Args:
        catalog: where the table is.
        identifier: the table.
        columns: top-level columns of a primitive type; all of these when None.
        snapshot_id: the current snapshot when None.
        environment: clock and ids.

    Raises:
        InvalidInputError: the table has no snapshot, or nothing to count.
        InvalidSchemaError: a name is no column of a primitive type.
        NoSuchSnapshotError: no such snapshot.
        InvalidLocationError: the table's metadata says to write outside the warehouse.
    """
    table = Identifier.parse(identifier)
    env = environment if environment is not None else Environment.system()
    version = catalog.load(table)
    metadata = version.metadata
    check_table(catalog, metadata)
    snapshot = statistics_snapshot(metadata, snapshot_id, table)
    storage = catalog.storage(metadata.location)
    fields = _countable(metadata.schema_for(snapshot), columns, str(table))
    sketches = _sketches(metadata, snapshot, fields, storage)
    blobs = [
        NewBlob(THETA_SKETCH, field_id, sketch.to_bytes(), {"ndv": str(sketch.estimate)})
        for field_id, sketch in sketches.items()
    ]
    transaction = Transaction(catalog, table, decided_on=version, environment=env)
    written = attach_statistics(transaction, snapshot, blobs, storage, env)
    names = {field.field_id: field.name for field in fields}
    distinct = {names[field_id]: sketch.estimate for field_id, sketch in sketches.items()}
    return StatisticsResult(
        identifier=table,
        snapshot_id=snapshot.snapshot_id,
        distinct=distinct,
        location=written.location,
        bytes=written.bytes,
    )


def distinct_counts(metadata: TableMetadata, snapshot_id: int | None = None) -> dict[str, int]:
    """Column name -> distinct count recorded for a snapshot (the current one), by any engine."""
    wanted = metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    schema = metadata.schema()
    counts = recorded_distinct(metadata, wanted)
    names = {field_id: schema.find_column_name(field_id) for field_id in counts}
    return {name: counts[field_id] for field_id, name in names.items() if name is not None}


def _countable(schema: Schema, columns: Sequence[str] | None, table: str) -> list[NestedField]:
    primitive = {
        field.name: field for field in schema.fields if isinstance(field.field_type, PrimitiveType)
    }
    wanted = list(primitive) if columns is None else list(dict.fromkeys(columns))
    if unknown := [name for name in wanted if name not in primitive]:
        raise InvalidSchemaError(
            f"{table}: {', '.join(unknown)} cannot be counted; columns of a primitive type are "
            f"{', '.join(primitive) or 'none'}"
        )
    if not wanted:
        raise InvalidInputError(f"{table} has no column of a primitive type to count")
    return [primitive[name] for name in wanted]


def _sketches(
    metadata: TableMetadata, snapshot: Snapshot, fields: Sequence[NestedField], storage: Storage
) -> dict[int, ThetaSketch]:
    request = ScanRequest(metadata=metadata, snapshot_id=snapshot.snapshot_id)
    read = replace(
        ReadRequest.of(metadata, Schema(*fields), table_schema=metadata.schema_for(snapshot)),
        batch_rows=131_072,
    )
    sketches = {field.field_id: ThetaSketch() for field in fields}
    for batch in read_tasks(plan_scan(request, storage).tasks, read, storage):
        for field, column in zip(fields, batch.columns, strict=True):
            sketches[field.field_id].add(serialized_values(column, field.field_type))
    return sketches


_SEED = 9001
_SEED_HASH = 0x93CC
"""Of 9001; sketches with another one are not comparable."""
_FOREVER = (1 << 63) - 1
_COMPACT, _SERIAL_VERSION = 3, 3
_READ_ONLY, _EMPTY, _IS_COMPACT, _ORDERED = 0x02, 0x04, 0x08, 0x10


class ThetaSketch:
    """A theta sketch of 4,096 nominal entries, mergeable across engines.

    It keeps the smallest hashes of the values; how close together they lie says how many there are.
    The values are hashed as bytes of Iceberg's single-value serialization, with the hash and in the
    form of Apache DataSketches, as the Puffin spec asks for `apache-datasketches-theta-v1`. (The
    library's own Python build takes no bytes; in the tests it reads and unites these.)

    Exact up to as many values, beyond within about 3 percent (two standard errors).
    """

    def __init__(self) -> None:
        self._hashes: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._theta = _FOREVER

    def add(self, values: pa.BinaryArray) -> None:
        """Take in values as bytes; nulls and empty ones do not count, as in the library.

        Different ones only is faster.
        """
        hash64 = mmh3.hash64
        hashes = np.array(
            [hash64(value, seed=_SEED, signed=False)[0] for value in values.to_pylist() if value],
            np.uint64,
        ) >> np.uint64(1)
        hashes = hashes[(hashes < self._theta) & (hashes > 0)]
        kept = union(self._hashes, hashes)
        if len(kept) > SKETCH_ENTRIES:
            self._theta = int(kept[SKETCH_ENTRIES])
            kept = kept[:SKETCH_ENTRIES]
        self._hashes = kept

    @property
    def estimate(self) -> int:
        """Different values, rounded."""
        return (
            len(self._hashes)
            if self._theta == _FOREVER
            else round(len(self._hashes) * (1 << 63) / self._theta)
        )

    def to_bytes(self) -> bytes:
        """The compact, ordered form."""
        flags = _READ_ONLY | _IS_COMPACT | _ORDERED
        count, exact = len(self._hashes), self._theta == _FOREVER
        if not count:
            flags |= _EMPTY
        longs = (1 if count < 2 else 2) if exact else 3
        parts = [struct.pack("<BBBBBBH", longs, _SERIAL_VERSION, _COMPACT, 0, 0, flags, _SEED_HASH)]
        if longs > 1:
            parts.append(struct.pack("<II", count, 0))
        if longs > 2:
            parts.append(struct.pack("<Q", self._theta))
        return b"".join([*parts, self._hashes.astype("<u8").tobytes()])
