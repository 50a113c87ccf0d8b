"""Which days of a derived table do not follow from its inputs any more, told by metadata alone.

A derived table says in the summary of the snapshot that it writes from which snapshots of its
inputs it was computed, and which days were left out: its refresh state. What is stale are the days
left out, and those that a snapshot of an input has changed since. Snapshots that only rewrite files
(operation `replace`) change no day. Where the history between is gone, or the table's definition
has changed, every day is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DateType, IcebergType, TimestampNanoType, TimestamptzNanoType

from lakehouse.errors import CorruptMetadataError
from lakehouse.ingestion.landing_ledger import day_ranges
from lakehouse.ingestion.stamp import CHANGED_DAYS
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.data_file import STATUS_DELETED, STATUS_EXISTING, DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.snapshot import (
    OPERATION_REPLACE,
    PARTITION,
    REFRESH_STATE,
    Snapshot,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.internal_values import decode_bounds
from lakehouse.table import Table

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class RefreshState:
    """What a derived table was computed from.

    Attributes:
        inputs: table -> its snapshot; None: it had none.
        behind: days that do not follow from these snapshots and this definition yet, sorted.
        definition: digest of the definition that computed it; empty: it was not recorded.
    """

    inputs: Mapping[str, int | None]
    behind: tuple[date, ...] = ()
    definition: str = ""

    def to_json(self) -> str:
        """As text; snapshot ids are text, days are ranges, first and last."""
        inputs = {name: None if one is None else str(one) for name, one in self.inputs.items()}
        behind = [(str(first), str(last)) for first, last in day_ranges(self.behind)]
        found = {"inputs": inputs, "behind": behind}
        if self.definition:
            found["definition"] = self.definition
        return orjson.dumps(found).decode()

    @classmethod
    def from_json(cls, text: str) -> RefreshState:
        """A state from its text. Raises CorruptMetadataError."""
        try:
            found = orjson.loads(text)
            inputs = {
                str(name): None if one is None else int(one)
                for name, one in found["inputs"].items()
            }
            ends = [(date.fromisoformat(a), date.fromisoformat(b)) for a, b in found["behind"]]
            definition = str(found.get("definition", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptMetadataError(f"{REFRESH_STATE} cannot be read: {text[:200]}") from error
        return cls(inputs, tuple(sorted(_days_between(ends))), definition)


@dataclass(frozen=True, slots=True)
class Staleness:
    """What of a derived table does not follow from its inputs.

    Attributes:
        inputs: snapshots of the inputs that were looked at.
        days: stale days -> the newest snapshot that changed them, for a daily table.
        whole: whether anything has changed at all.
        cause: names what has changed last.
        definition: digest of the table's definition as it is.
        redefined: whether the table, or days of it, were computed by another definition.
    """

    inputs: Mapping[str, int | None]
    days: Mapping[date, str] = field(default_factory=dict)
    whole: bool = False
    cause: str = ""
    definition: str = ""
    redefined: bool = False

    def after(self, done: Iterable[date]) -> RefreshState:
        """The state once these days were computed from the inputs."""
        behind = tuple(sorted(self.days.keys() - set(done)))
        return RefreshState(self.inputs, behind, self.definition)


def refresh_state(table: Table | None) -> RefreshState | None:
    """What the newest snapshot that says so was computed from; None: none says so.

    Raises:
        CorruptMetadataError: it cannot be read.
    """
    if table is None:
        return None
    for snapshot in table.metadata.ancestors(table.metadata.current_snapshot_id):
        if REFRESH_STATE in snapshot.summary:
            return RefreshState.from_json(snapshot.summary[REFRESH_STATE])
    return None


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
    day_column: str | None,
    input_day: str,
    definition: str = "",
) -> Staleness:
    """Compare a derived table with its inputs as they are. Reads manifests, never data.

    Args:
        table: the derived table; None: it does not exist.
        inputs: what it reads, by name.
        day_column: its column that tells the day, a date or a timestamp; None: it is one unit.
        input_day: the column of each input that tells the day.
        definition: digest of how the table is computed; empty: unknown. A table that was computed
            by another one is stale as a whole; one that recorded none is judged by its inputs.

    Raises:
        CorruptMetadataError: its refresh state cannot be read.
    """
    heads = {name: one.metadata.current_snapshot_id for name, one in inputs.items()}
    cause = ",".join(f"{name}@{head}" for name, head in sorted(heads.items()))
    state = refresh_state(table)
    redefined = bool(
        state is not None and state.definition and definition and state.definition != definition
    )
    if redefined:
        cause = f"definition@{definition},{cause}"
    known = {} if state is None else state.inputs
    since = {
        name: snapshots_since(one.metadata, known[name]) if name in known else None
        for name, one in inputs.items()
    }
    changing = {
        name: None if found is None else [s for s in found if s.operation != OPERATION_REPLACE]
        for name, found in since.items()
    }
    if day_column is None:
        newer = any(one is None or one for one in changing.values())
        some = any(head is not None for head in heads.values())
        return Staleness(
            heads,
            whole=(newer or redefined) and some,
            cause=cause,
            definition=definition,
            redefined=redefined,
        )
    days: dict[date, str] = {} if state is None else dict.fromkeys(state.behind, "left out before")
    for name, snapshots in changing.items():
        changed = _changes(inputs[name], snapshots, input_day)
        if changed is None or redefined:
            everything = days_of(inputs[name], input_day)
            if table is not None:
                everything |= days_of(table, day_column)
            changed = dict.fromkeys(everything, heads[name] or 0)
        days |= {day: f"{name}@{snapshot_id}" for day, snapshot_id in changed.items()}
    if redefined:
        days = {day: f"definition@{definition},{why}" for day, why in days.items()}
    return Staleness(heads, days, bool(days), cause, definition, redefined)


def snapshots_since(metadata: TableMetadata, since: int | None) -> list[Snapshot] | None:
    """Snapshots of `main` after an ancestor, newest first; None if the history has a gap.

    Args:
        metadata: of the table.
        since: the ancestor, which may be expired itself; None: from the beginning.
    """
    found: list[Snapshot] = []
    parent = metadata.current_snapshot_id
    for snapshot in metadata.ancestors(parent):
        if snapshot.snapshot_id == since:
            return found
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
    return found if parent == since else None


def days_of(table: Table, column: str) -> set[date]:
    """The days that a table has rows of."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return set()
    entries = [
        one.filter(pc.not_equal(one.table["status"], STATUS_DELETED))
        for one in _entries(table, snapshot)
    ]
    found = _days(table, entries, column)
    return _days_by_rows(table, column) if found is None else found


def _changes(
    table: Table, snapshots: Sequence[Snapshot] | None, column: str
) -> dict[date, int] | None:
    """Days that snapshots changed -> the newest of these; None: it cannot be told.

    What a snapshot added, removed or deleted rows of is told by its own manifests, whether its
    parent exists or not; of files of many days, whose other rows it may have kept, by its writer.
    """
    if snapshots is None:
        return None
    changed: dict[date, int] = {}
    for snapshot in reversed(snapshots):
        entries = [
            one.filter(
                pc.and_(
                    pc.equal(one.table["snapshot_id"], snapshot.snapshot_id),
                    pc.not_equal(one.table["status"], STATUS_EXISTING),
                )
            )
            for one in _entries(table, snapshot, own=True)
        ]
        days = _days(table, entries, column, _told_days(snapshot))
        if days is None:
            return None
        changed |= dict.fromkeys(days, snapshot.snapshot_id)
    return changed


def _entries(table: Table, snapshot: Snapshot, *, own: bool = False) -> Iterator[Entries]:
    reader = ManifestReader.of(table.storage, table.metadata, DEFAULT_CACHE)
    for manifest in load_manifests(table.storage, snapshot):
        if not own or manifest.added_snapshot_id == snapshot.snapshot_id:
            yield reader.entries(manifest)


def _told_days(snapshot: Snapshot) -> set[date] | None:
    """The days that a snapshot says it changed; None: it does not say."""
    text = snapshot.summary.get(CHANGED_DAYS)
    if text is None:
        return None
    try:
        ends = [(date.fromisoformat(a), date.fromisoformat(b)) for a, b in orjson.loads(text)]
    except (ValueError, TypeError) as error:
        raise CorruptMetadataError(f"{CHANGED_DAYS} cannot be read: {text[:200]}") from error
    return _days_between(ends)


def _days_between(ends: Iterable[tuple[date, date]]) -> set[date]:
    return {a + timedelta(days=n) for a, b in ends for n in range((b - a).days + 1)}


def _days(
    table: Table, parts: Sequence[Entries], column: str, told: set[date] | None = None
) -> set[date] | None:
    """The days of files; None: one tells nothing, as a delete file of many partitions does.

    Of files of several days, or that tell nothing, those that are `told`.
    """
    metadata = table.metadata
    found: set[date] = set()
    for part in filter(len, parts):
        for entry in part.to_manifest_entries():
            span = _span(entry.data_file, metadata, column)
            if span is None:
                if told is None:
                    return None
                found |= told
                continue
            days = _days_between([span])
            found |= days if told is None or len(days) == 1 else days & told
    return found


def _span(file: DataFile, metadata: TableMetadata, column: str) -> tuple[date, date] | None:
    """First and last day of a file, by its partition, else by its bounds; None: unknown."""
    source = metadata.schema().find_field(column)
    for term, value in zip(metadata.spec(file.spec_id).fields, file.partition, strict=True):
        if (
            term.source_id == source.field_id
            and isinstance(term.transform, DayTransform)
            and value is not None
        ):
            day = _EPOCH + timedelta(days=value)
            return day, day
    bounds = [each.get(source.field_id) for each in (file.lower_bounds, file.upper_bounds)]
    low, high = decode_bounds(pa.array(bounds, pa.binary()), source.field_type).to_pylist()
    if low is None or high is None or low > high:
        return None
    unit = _units_a_day(source.field_type)
    return _EPOCH + timedelta(days=low // unit), _EPOCH + timedelta(days=high // unit)


def _units_a_day(kind: IcebergType) -> int:
    """How many units of a type's values are a day."""
    if isinstance(kind, DateType):
        return 1
    is_nano = isinstance(kind, TimestampNanoType | TimestamptzNanoType)
    return 86_400_000_000_000 if is_nano else 86_400_000_000


def _days_by_rows(table: Table, column: str) -> set[date]:
    values = table.scan(select=[column]).to_arrow()[column]
    return set(values.cast(pa.date32(), safe=False).unique().drop_null().to_pylist())
