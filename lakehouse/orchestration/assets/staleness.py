"""Which partitions of a derived table do not follow from its inputs any more, by metadata alone.

A derived table says in the summary of the snapshot that it writes from which snapshots of its
inputs it was computed, and which partitions were left out: its refresh state. What is stale are
those left out, and those that a snapshot of an input has changed since. Snapshots that only rewrite
files (operation `replace`) change none. Where the history between is gone, or the table's
definition has changed, every partition is stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
from typing import Any, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lakehouse.errors import CorruptMetadataError
from lakehouse.ingestion.landing_ledger import day_ranges
from lakehouse.ingestion.stamp import CHANGED_DAYS
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.orchestration.assets.partition_filter import (
    TIMES,
    Partitioning,
    Windows,
    partition_column,
)
from lakehouse.spec.manifests.data_file import STATUS_DELETED, STATUS_EXISTING, DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE, PARTITION, REFRESH_STATE, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.internal_values import decode_bounds
from lakehouse.table import Table

_EPOCH = date(1970, 1, 1)
_DAY = 86_400_000_000
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RefreshState:
    """What a derived table was computed from.

    Attributes:
        inputs: table -> its snapshot; None: it had none.
        behind: keys of partitions that do not follow from these snapshots and this definition yet,
            sorted.
        definition: digest of the definition that computed it; empty: it was not recorded.
    """

    inputs: Mapping[str, int | None]
    behind: tuple[str, ...] = ()
    definition: str = ""

    def to_json(self) -> str:
        """As text; snapshot ids are text, partitions are ranges, first and last."""
        inputs = {
            name: None if snapshot_id is None else str(snapshot_id)
            for name, snapshot_id in self.inputs.items()
        }
        document = {"inputs": inputs, "behind": key_ranges(self.behind)}
        if self.definition:
            document["definition"] = self.definition
        return orjson.dumps(document).decode()

    @classmethod
    def from_json(cls, text: str) -> RefreshState:
        """A state from its text. Raises CorruptMetadataError."""
        try:
            document = orjson.loads(text)
            inputs = {
                str(name): None if snapshot_id is None else int(snapshot_id)
                for name, snapshot_id in document["inputs"].items()
            }
            behind = {
                key
                for first, last in document["behind"]
                for key in ([first] if first == last else map(str, _days_between(first, last)))
            }
            definition = str(document.get("definition", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptMetadataError(f"{REFRESH_STATE} cannot be read: {text[:200]}") from error
        return cls(inputs, tuple(sorted(behind)), definition)


@dataclass(frozen=True, slots=True)
class Staleness:
    """What of a derived table does not follow from its inputs.

    Attributes:
        inputs: snapshots of the inputs that were looked at.
        partitions: keys of those that are stale -> the newest snapshot that changed them.
        whole: whether anything has changed at all.
        cause: names what has changed last.
        definition: digest of the table's definition as it is.
        redefined: whether the table, or a part of it, was computed by another definition.
    """

    inputs: Mapping[str, int | None]
    partitions: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    cause: str = ""
    definition: str = ""
    redefined: bool = False

    def after(self, done: Iterable[str]) -> RefreshState:
        """The state once these partitions were computed from the inputs."""
        behind = tuple(sorted(self.partitions.keys() - set(done)))
        return RefreshState(self.inputs, behind, self.definition)


def key_ranges(keys: Collection[str]) -> list[tuple[str, str]]:
    """First and last of days that follow each other; any other key is alone."""
    days = {key: date.fromisoformat(key) for key in keys if _is_day(key)}
    others = [(key, key) for key in sorted(set(keys) - days.keys())]
    return [*((str(a), str(b)) for a, b in day_ranges(sorted(days.values()))), *others]


def _is_day(key: str) -> bool:
    try:
        return str(date.fromisoformat(key)) == key
    except ValueError:
        return False


def refresh_state(table: Table | None) -> RefreshState | None:
    """What the newest snapshot that says so was computed from; None: none says so.

    Raises:
        CorruptMetadataError: it cannot be read.
    """
    if table is None:
        return None
    return next(refresh_states(table.metadata, table.metadata.current_snapshot_id), None)


def refresh_states(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[RefreshState]:
    """What a snapshot and its ancestors were computed from, as they say, newest first."""
    for snapshot in metadata.ancestors(snapshot_id):
        if REFRESH_STATE in snapshot.summary:
            yield RefreshState.from_json(snapshot.summary[REFRESH_STATE])


def redefined_partitions(table: Table, definition: str) -> dict[str, str]:
    """Partitions that were written by other code than what a plain asset has now.

    Args:
        table: of the asset.
        definition: digest of its code; empty: unknown.

    Returns:
        Partition, or range `first...last` of one run, -> the digest that its newest snapshot
        records; empty text for an asset without partitions. Snapshots that recorded none, or have
        expired, tell nothing.
    """
    newest: dict[str, str] = {}
    for snapshot in table.metadata.ancestors(table.metadata.current_snapshot_id):
        if REFRESH_STATE in snapshot.summary:
            state = RefreshState.from_json(snapshot.summary[REFRESH_STATE])
            newest.setdefault(snapshot.summary.get(PARTITION, ""), state.definition)
    return {
        partition: code
        for partition, code in sorted(newest.items())
        if code and definition and code != definition
    }


def staleness(
    table: Table | None,
    inputs: Mapping[str, Table],
    partitioning: Partitioning | None,
    read_by: Partitioning | None,
    definition: str = "",
) -> Staleness:
    """Compare a derived table with its inputs as they are. Reads manifests, never data.

    Data is read only of a column whose values files do not tell.

    Args:
        table: the derived table; None: it does not exist.
        inputs: what it reads, by name.
        partitioning: of the table; None: it is one unit.
        read_by: the same partitions by columns of each input.
        definition: digest of how the table is computed; empty: unknown. A table that was computed
            by another one is stale as a whole; one that recorded none is judged by its inputs.

    Raises:
        CorruptMetadataError: its refresh state cannot be read.
    """
    heads = {name: table.metadata.current_snapshot_id for name, table in inputs.items()}
    cause = ",".join(f"{name}@{head}" for name, head in sorted(heads.items()))
    state = refresh_state(table)
    redefined = bool(
        state is not None and state.definition and definition and state.definition != definition
    )
    if redefined:
        cause = f"definition@{definition},{cause}"
    known = {} if state is None else state.inputs
    since = {
        name: snapshots_since(table.metadata, known[name]) if name in known else None
        for name, table in inputs.items()
    }
    changing = {
        name: None if later is None else [s for s in later if s.operation != OPERATION_REPLACE]
        for name, later in since.items()
    }
    if partitioning is None or read_by is None:
        newer = any(count is None or count for count in changing.values())
        is_any_written = any(head is not None for head in heads.values())
        return Staleness(
            heads,
            whole=(newer or redefined) and is_any_written,
            cause=cause,
            definition=definition,
            redefined=redefined,
        )
    stale: dict[str, str] = {} if state is None else dict.fromkeys(state.behind, "left out before")
    for name, snapshots in changing.items():
        changed = _changes(inputs[name], snapshots, read_by)
        if changed is None or redefined:
            everything = partitions_of(inputs[name], read_by)
            if table is not None:
                everything |= partitions_of(table, partitioning)
            changed = dict.fromkeys(everything, heads[name] or 0)
        stale |= {key: f"{name}@{snapshot_id}" for key, snapshot_id in changed.items()}
    if redefined:
        stale = {key: f"definition@{definition},{why}" for key, why in stale.items()}
    return Staleness(heads, stale, bool(stale), cause, definition, redefined)


def snapshots_since(metadata: TableMetadata, since: int | None) -> list[Snapshot] | None:
    """Snapshots of `main` after an ancestor, newest first; None if the history has a gap.

    Args:
        metadata: of the table.
        since: the ancestor, which may be expired itself; None: from the beginning.
    """
    snapshots: list[Snapshot] = []
    parent = metadata.current_snapshot_id
    for snapshot in metadata.ancestors(parent):
        if snapshot.snapshot_id == since:
            return snapshots
        snapshots.append(snapshot)
        parent = snapshot.parent_snapshot_id
    return snapshots if parent == since else None


def partitions_of(table: Table, partitioning: Partitioning) -> set[str]:
    """The keys of the partitions that a table has rows of."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return set()
    entries = [
        part.filter(pc.not_equal(part.table["status"], STATUS_DELETED))
        for part in _entries(table, snapshot)
    ]
    keys = _keys(table, entries, partitioning)
    if keys is None:
        columns = [name for name, _ in partitioning.dimensions]
        keys = set(partitioning.keys_of(table.scan(select=columns).to_arrow()).unique().to_pylist())
    return keys - {None}


def _changes(
    table: Table, snapshots: Sequence[Snapshot] | None, partitioning: Partitioning
) -> dict[str, int] | None:
    """Partitions that snapshots changed -> the newest of these; None: unknown.

    A snapshot's own manifests tell of what it added, removed or deleted rows, whether its parent
    exists or not; of files of many days, whose other rows it may have kept, its writer tells it.
    """
    if snapshots is None:
        return None
    changed: dict[str, int] = {}
    for snapshot in reversed(snapshots):
        entries = [
            part.filter(
                pc.and_(
                    pc.equal(part.table["snapshot_id"], snapshot.snapshot_id),
                    pc.not_equal(part.table["status"], STATUS_EXISTING),
                )
            )
            for part in _entries(table, snapshot, own=True)
        ]
        keys = _keys(table, entries, partitioning, _declared_days(snapshot))
        if keys is None:
            return None
        changed |= dict.fromkeys(keys, snapshot.snapshot_id)
    return changed


def _entries(table: Table, snapshot: Snapshot, *, own: bool = False) -> Iterator[Entries]:
    reader = ManifestReader.of(table.storage, table.metadata, DEFAULT_CACHE)
    for manifest in load_manifests(table.storage, snapshot):
        if not own or manifest.added_snapshot_id == snapshot.snapshot_id:
            yield reader.entries(manifest)


def _declared_days(snapshot: Snapshot) -> list[Span] | None:
    """The days that a snapshot says it changed, as times; None: it does not say."""
    text = snapshot.summary.get(CHANGED_DAYS)
    if text is None:
        return None
    try:
        ends = [(date.fromisoformat(a), date.fromisoformat(b)) for a, b in orjson.loads(text)]
    except (ValueError, TypeError) as error:
        raise CorruptMetadataError(f"{CHANGED_DAYS} cannot be read: {text[:200]}") from error
    return [
        ((a - _EPOCH).days * _DAY, ((b - _EPOCH).days + 1) * _DAY - 1) for a, b in ends if a <= b
    ]


def _days_between(first: str, last: str) -> Iterator[date]:
    day, end = date.fromisoformat(first), date.fromisoformat(last)
    return (day + timedelta(days=n) for n in range((end - day).days + 1))


def _keys(
    table: Table,
    parts: Sequence[Entries],
    partitioning: Partitioning,
    declared: Sequence[Span] | None = None,
) -> set[str] | None:
    """Partitions that files may hold rows of; None: one tells nothing.

    Of files of several days, or that tell no time, those of the times that are `declared`.
    """
    dimensions = [
        (partition_column(table.schema(), name, partitioning.asset), windows)
        for name, windows in partitioning.dimensions
    ]
    partitions: set[str] = set()
    for part in filter(len, parts):
        for entry in part.to_manifest_entries():
            keys = [
                _values(entry.data_file, table.metadata, column)
                if windows is None or not isinstance(column.field_type, TIMES)
                else _windows(entry.data_file, table.metadata, column, windows, declared)
                for column, windows in dimensions
            ]
            if None in keys:
                return None
            partitions |= set(map("|".join, product(*cast("list[set[str]]", keys))))
    return partitions


def _windows(
    file: DataFile,
    metadata: TableMetadata,
    column: NestedField,
    windows: Windows,
    declared: Sequence[Span] | None,
) -> set[str] | None:
    """The windows of a file's rows: by its partition, where that is one of them, or its bounds."""

    def keys(spans: Iterable[Span]) -> set[str]:
        return {key for span in spans for key in windows.between(*span, instants=instants)}

    instants = isinstance(column.field_type, TimestamptzType | TimestamptzNanoType)
    span = _span_of_partition(file, metadata, column)
    if span is None or len(keys([span])) > 1:
        span = _span_of_bounds(file, column) or span
    if span is None:
        return None if declared is None else keys(declared)
    if declared is None or span[0] // _DAY == span[1] // _DAY:
        return keys([span])
    both = [(max(span[0], low), min(span[1], high)) for low, high in declared]
    return keys((low, high) for low, high in both if low <= high)


def _span_of_partition(file: DataFile, metadata: TableMetadata, column: NestedField) -> Span | None:
    """First and last microsecond of its hour or day."""
    for value, transform in _partition(file, metadata, column):
        if isinstance(transform, DayTransform | HourTransform):
            length = _DAY if isinstance(transform, DayTransform) else _DAY // 24
            return value * length, (value + 1) * length - 1
    return None


def _span_of_bounds(file: DataFile, column: NestedField) -> Span | None:
    low, high = _bounds(file, column)
    if low is None or high is None or low > high:
        return None
    if isinstance(column.field_type, DateType):
        return low * _DAY, (high + 1) * _DAY - 1
    is_nano = isinstance(column.field_type, TimestampNanoType | TimestamptzNanoType)
    return (low // 1000, high // 1000) if is_nano else (low, high)


def _values(file: DataFile, metadata: TableMetadata, column: NestedField) -> set[str] | None:
    """The only value of a file as a key, by its partition, else by its bounds; none of null."""
    if not isinstance(column.field_type, StringType | IntegerType | LongType):
        return None
    for value, transform in _partition(file, metadata, column):
        if isinstance(transform, IdentityTransform):
            return {str(value)}
    low, high = _bounds(file, column)
    return {str(low)} if low is not None and low == high else None


def _partition(
    file: DataFile, metadata: TableMetadata, column: NestedField
) -> Iterator[tuple[Any, Transform[Any, Any]]]:
    for term, value in zip(metadata.spec(file.spec_id).fields, file.partition, strict=True):
        if term.source_id == column.field_id and value is not None:
            yield value, term.transform


def _bounds(file: DataFile, column: NestedField) -> list[Any]:
    bounds = [
        bounds_of_side.get(column.field_id)
        for bounds_of_side in (file.lower_bounds, file.upper_bounds)
    ]
    values: list[Any] = decode_bounds(pa.array(bounds, pa.binary()), column.field_type).to_pylist()
    return values
