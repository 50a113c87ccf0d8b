"""The source of a MERGE: its rows, held, and which rows of the target belong to which of them.

They are in memory, or in files where there are too many.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lakehouse.data.writing.input_columns import ArrowData, coerce
from lakehouse.errors import (
    InvalidExpressionError,
    InvalidInputError,
    StorageError,
    UnsupportedTypeError,
)
from lakehouse.expressions.bound_filter import (
    TRUE,
    Bound,
    Call,
    Column,
    Mask,
    Term,
    Value,
    conjunction,
)
from lakehouse.expressions.filter_binding import to_bound
from lakehouse.expressions.functions.sql_functions import type_of
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.row_changes.merge.merge_binding import BoundMerge, KeyPair
from lakehouse.row_changes.merge.target_rows import PairedRows, empty_rows, top_level
from lakehouse.scan.planner import ScanPlan
from lakehouse.scan.pruning.entry_pruning import statistics_of_files
from lakehouse.scan.scan_tasks import FileScanTask, LazyItems
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.arrow_types import (
    schema_from_arrow,
    schema_to_arrow,
    type_from_arrow,
    type_to_arrow,
)
from lakehouse.spec.types.internal_values import internal_values
from lakehouse.spec.types.sorted_numbers import distinct
from lakehouse.transaction.decided_rows import KeyTest

DEFAULT_MEMORY_BYTES = 1 << 30
_LEAST_MEMORY_BYTES = 1 << 10
# Beside the rows of a part there are, at the same time, their keys, the rows of the table that they
# meet, both side by side, and what waits to be written.
_PARTS_IN_MEMORY = 8
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class SpillFolder:
    """A temporary folder, made when the first file goes there."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def file(self, name: str) -> Path:
        """Where a file of the name is to be written."""
        if self._path is None:
            with _spilling(Path(tempfile.gettempdir())):
                self._path = Path(tempfile.mkdtemp(prefix="lakehouse-merge-"))
        return self._path / name

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        if self._path is not None:
            shutil.rmtree(self._path)
            self._path = None


class SpillFile:
    """Batches of one schema in a file, in the order in which they came.

    Raises StorageError where the disk is full.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self.schema = schema
        self.num_rows = 0
        with _spilling(path):
            self._writer = pa.ipc.new_stream(str(path), schema, options=_COMPRESSED)

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows."""
        self.num_rows += rows.num_rows
        with _spilling(self._path):
            self._writer.write(rows)

    def close(self) -> None:
        """End the file: it can be read then, as often as needed."""
        with _spilling(self._path):
            self._writer.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the closed file."""
        with _spilling(self._path), pa.OSFile(str(self._path)) as source:
            yield from pa.ipc.open_stream(source)

    def table(self) -> pa.Table:
        """All rows at once."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)


@contextmanager
def _spilling(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"cannot keep rows of a merge in {path}: {error}; TMPDIR names another folder, "
            "memory_bytes lets more of them stay in memory"
        ) from error


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Source rows that can be read as often as a merge is decided on.

    Attributes:
        schema: theirs, in the types that Iceberg has for what was given.
        rows: all of them, in memory or in a file.
        num_rows: how many.
        parts: into how many parts they have to be split to be handled in memory; 1 when they are
            there.
        filter_bytes: what marks of its keys may take.
        folder: for files.
    """

    schema: Schema
    rows: pa.Table | SpillFile
    num_rows: int
    parts: int
    filter_bytes: int
    folder: SpillFolder

    @classmethod
    def in_memory(cls, schema: Schema, rows: pa.Table) -> SourceRows:
        """Rows of the schema that are there, and stay there."""
        return cls(schema, rows, rows.num_rows, 1, DEFAULT_MEMORY_BYTES, SpillFolder())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the order in which they were given."""
        yield from (
            self.rows.to_batches() if isinstance(self.rows, pa.Table) else (self.rows.batches())
        )


@contextmanager
def held_rows(
    data: ArrowData, table: str, memory_bytes: int, target: Schema
) -> Iterator[SourceRows]:
    """The rows of a source, read once and held until the block ends.

    Args:
        data: rows.
        table: name of the table that they are merged into, for messages.
        target: its schema: columns of types that Iceberg lacks take those of their names there.
        memory_bytes: what the merge may take; with more rows than an eighth of that they go to a
            temporary folder, which is removed whatever happens.

    Raises:
        InvalidInputError: too little memory to work in.
        InvalidSchemaError: types that Iceberg does not have.
        StorageError: no room in the temporary folder.
    """
    if memory_bytes < _LEAST_MEMORY_BYTES:
        raise InvalidInputError(
            f"{table}: a merge needs memory_bytes of {_LEAST_MEMORY_BYTES} at least, not "
            f"{memory_bytes}",
            table=table,
        )
    limit = memory_bytes // _PARTS_IN_MEMORY
    folder = SpillFolder()
    try:
        yield _held(data, table, limit, folder, target)
    finally:
        folder.remove()


def whole_source(data: ArrowData, table: str) -> tuple[Schema, pa.Table]:
    """All rows of a source in memory, and their schema; errors as `held_rows`."""
    given, data = _arrow_schema(data)
    schema = schema_from_arrow(given)
    batches = coerce(data, schema, table=table)
    return schema, pa.Table.from_batches(batches, schema=schema_to_arrow(schema))


def _held(
    data: ArrowData, table: str, limit: int, folder: SpillFolder, target: Schema
) -> SourceRows:
    given, data = _arrow_schema(data)
    schema = schema_from_arrow(_storable(given, target))
    arrow = schema_to_arrow(schema)
    batches = coerce(data, schema, table=table)
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > limit:
            break
    else:
        rows = pa.Table.from_batches(waiting, schema=arrow)
        return SourceRows(schema, rows, rows.num_rows, 1, limit, folder)
    file = SpillFile(folder.file("source.arrows"), arrow)
    for batch in waiting:
        file.write(batch)
    waiting.clear()
    for batch in batches:
        size += batch.nbytes
        file.write(batch)
    file.close()
    return SourceRows(schema, file, file.num_rows, size // limit + 1, limit, folder)


def _storable(given: pa.Schema, target: Schema) -> pa.Schema:
    """Arrow types, with the target's for those that Iceberg lacks but an append takes."""
    known = {field.name: field for field in target.fields if field.field_type.is_primitive}

    def kept(field: pa.Field) -> pa.Field:
        try:
            type_from_arrow(field.type, column=field.name)
        except UnsupportedTypeError:
            if field.name not in known:
                raise
            return field.with_type(type_to_arrow(known[field.name].field_type))
        return field

    return pa.schema([kept(field) for field in given])


def _arrow_schema(data: ArrowData) -> tuple[pa.Schema, ArrowData]:
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data.schema, data
    batches: Iterable[pa.RecordBatch] = data
    first = next(iterator := iter(batches), None)
    if first is None:
        raise InvalidInputError("rows without a schema: give a table, or a stream with a schema")
    return first.schema, itertools.chain([first], iterator)


if TYPE_CHECKING:
    import polars as pl

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_COUNTED = (
    IntegerType,
    LongType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
)
_SPELLED = (StringType, BinaryType)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows that belong together: row `target[i]` of a file and row `source[i]` of the source."""

    target: Rows
    source: Rows


class KeyColumns:
    """The keys of both sides as plain columns of common types: equal where the keys are.

    Args:
        merge: what makes rows belong together.
        target: columns of the target that the keys are made of.
    """

    def __init__(self, merge: BoundMerge, target: Schema) -> None:
        self.merge = merge
        nothing = PairedRows(0, empty_rows(target), target, empty_rows(merge.source), merge.source)
        self._kinds = [
            type_of([nothing.values(pair.target), nothing.values(pair.source)])
            for pair in merge.keys
        ]
        self._never_null = [
            f"k{number}" for number, pair in enumerate(merge.keys) if not pair.nulls_match
        ]

    def of_target(self, rows: PairedRows) -> list[pa.Array]:
        """The target's side of each key."""
        return [rows.values(pair.target) for pair in self.merge.keys]

    def of_source(self, rows: pa.Table) -> list[pa.Array]:
        """The source's side of each key."""
        beside_nothing = PairedRows(rows.num_rows, None, self.merge.target, rows, self.merge.source)
        return [beside_nothing.values(pair.source) for pair in self.merge.keys]

    def frame(self, keys: Sequence[pa.Array]) -> pl.DataFrame:
        """Keys with the number of their row, without those that match nothing.

        Raises:
            InvalidExpressionError: a key has no value in the type that both sides have in common.
        """
        import polars as pl  # noqa: PLC0415 - takes long to load: only merges need it

        columns = {
            f"k{number}": _plain(one, kind)
            for number, (one, kind) in enumerate(zip(keys, self._kinds, strict=True))
        }
        rows = np.arange(len(keys[0]), dtype=np.int64)
        frame = pl.DataFrame(pl.from_arrow(pa.table({**columns, "row": rows})))
        return frame.drop_nulls(self._never_null) if self._never_null else frame


def hashes(keys: pl.DataFrame) -> Hashes:
    """A number for each row of a frame of keys: the same for equal keys, in this process."""
    return keys.drop("row").hash_rows().to_numpy()


class KeyFilter:
    """Which keys are surely none of those added: a table of marks, 16 for each key or fewer.

    Args:
        keys: how many will be added.
        most_bytes: what it may take.
    """

    def __init__(self, keys: int, most_bytes: int) -> None:
        bits = min(max(keys * 16, 1 << 10), most_bytes).bit_length() - 1
        self._marks = np.zeros(1 << bits, bool)
        self._shift = np.uint64(64 - bits)

    def add(self, keys: Hashes) -> None:
        """Remember keys."""
        self._marks[self._places(keys)] = True

    def may_hold(self, keys: Hashes) -> Mask:
        """Which of the keys may have been added."""
        return self._marks.take(self._places(keys))

    def _places(self, keys: Hashes) -> Rows:
        return (keys >> self._shift).view(np.int64)  # numpy is slow with other indices


class SourcePart:
    """Source rows in memory, ready to be met by rows of the target.

    Attributes:
        rows: theirs.
        keys: frame of their keys.
        matched: which rows have met one of the target so far.
        acted: on the meeting of which a clause acted.
    """

    def __init__(self, columns: KeyColumns, rows: pa.Table) -> None:
        self.rows = rows
        self.values = columns.of_source(rows)
        self.keys = columns.frame(self.values)
        self.matched = np.zeros(rows.num_rows, bool)
        self.acted = np.zeros(rows.num_rows, bool)
        self._columns = columns

    def repeated(self) -> tuple[int, str] | None:
        """How many rows share a key that can match with another, and one of these keys."""
        again = self.keys.drop("row").is_duplicated()
        if not again.any():
            return None
        first = self.rows.take(self.keys.filter(again)["row"].head(1).to_arrow())
        merge = self._columns.merge
        shown = PairedRows(1, None, merge.target, first, merge.source)
        return int(again.sum()), ", ".join(shown.shown(pair.source) for pair in merge.keys)

    def pairs(self, rows: PairedRows) -> Pairs:
        """Rows of the target, with what they match here."""
        target = self._columns.frame(self._columns.of_target(rows))
        names = target.columns[:-1]
        joined = target.join(
            self.keys, on=names, how="inner", nulls_equal=True, suffix="_source"
        ).sort("row", "row_source")
        return Pairs(joined["row"].to_numpy(), joined["row_source"].to_numpy())

    def alike(self, chosen: Mask) -> Mask:
        """The rows that have a key of one of the chosen rows, which have keys that can match."""
        names = self.keys.columns[:-1]
        wanted = self.keys.filter(chosen[self.keys["row"].to_numpy()]).select(names).unique()
        found = np.zeros(len(chosen), bool)
        found[self.keys.join(wanted, on=names, how="semi", nulls_equal=True)["row"].to_numpy()] = (
            True
        )
        return found


class KeyRange:
    """The range that the keys of a source lie in, taken together from one batch after the other."""

    def __init__(self, merge: BoundMerge) -> None:
        self._merge = merge
        self._extremes: list[list[pa.Array]] = [[] for _ in merge.keys]

    def add(self, values: Sequence[pa.Array]) -> None:
        """Take in the source's side of each key of some rows."""
        for found, keys in zip(self._extremes, values, strict=True):
            found.append(_extremes(keys))

    def filter(self) -> Bound:
        """Passes every target row that may match."""
        return conjunction(
            _range(pair, pa.concat_arrays(found))
            for pair, found in zip(self._merge.keys, self._extremes, strict=True)
            if found
        )


class KeysInOrder:
    """Keys of a source that bounds of files can be held against, sorted, by column of the target.

    Args:
        merge: what makes rows belong together.
        values: the source's side of each key.
    """

    def __init__(self, merge: BoundMerge, values: Sequence[pa.Array]) -> None:
        self._columns: list[tuple[int, IcebergType, npt.NDArray[Any]]] = []
        for column, keys in compared_columns(merge, values):
            ordered = sorted_keys(keys, column.type)
            if ordered is not None:
                self._columns.append((column.field_id, column.type, ordered))

    def tasks(self, plan: ScanPlan) -> Sequence[FileScanTask]:
        """The tasks of a plan whose files may hold a key, by the column that rules out most."""
        found: Sequence[FileScanTask] = plan.tasks
        for field_id, kind, ordered in self._columns:
            fewer = tasks_with_keys(plan, field_id, kind, ordered)
            found = fewer if len(fewer) < len(found) else found
        return found

    def may_hold(self, entries: Entries) -> Mask:
        """Which files may hold a key."""
        found = np.ones(len(entries), bool)
        for field_id, kind, ordered in self._columns:
            found &= may_hold_key(entries, field_id, kind, ordered)
        return found


def compared_columns(
    merge: BoundMerge, values: Sequence[pa.Array]
) -> Iterator[tuple[Column, pa.Array]]:
    """Columns of the target whose value has to be a key, with the keys of the source.

    Args:
        merge: what makes rows belong together.
        values: the source's side of each key.
    """
    for pair, keys in zip(merge.keys, values, strict=True):
        column = _column_of(pair.target)
        if column is not None and not pair.nulls_match and _alike(column.type, pair.source):
            yield column, keys


def key_test(columns: KeyColumns, known: SourcePart | KeyFilter) -> KeyTest:
    """Holds rows of others against the keys; what a filter takes for one of them is one.

    Args:
        columns: of the keys.
        known: all source rows, or a filter of their keys where they are not in memory.
    """
    read = top_level(columns.merge.target, columns.merge.key_columns)

    def may_hold(entries: Entries) -> Mask:
        if isinstance(known, SourcePart):
            return KeysInOrder(columns.merge, known.values).may_hold(entries)
        return np.ones(len(entries), bool)

    def count(rows: pa.Table) -> int:
        given = PairedRows(rows.num_rows, rows, read, None, columns.merge.source)
        if isinstance(known, SourcePart):
            return len(distinct(known.pairs(given).target))
        return int(known.may_hold(hashes(columns.frame(columns.of_target(given)))).sum())

    return KeyTest(read, may_hold, count)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys that are equal where theirs are: bits of floats (0.0 is -0.0, NaN is NaN), bytes."""
    try:
        # an integer becomes the nearest floating point number, as in filters
        found = array.cast(kind, safe=not pa.types.is_floating(kind))
    except pa.ArrowInvalid as error:
        raise InvalidExpressionError(
            f"a key of type {array.type} cannot be compared as {kind}: {error}"
        ) from error
    if pa.types.is_floating(kind):
        one_zero = pc.add(found, pa.scalar(0.0, kind))
        one_nan = pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, kind), one_zero)
        return one_nan.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return found.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else found


def _column_of(term: Term) -> Column | None:
    if isinstance(term, Call) and term.name == "widen":
        return _column_of(term.args[0])
    return term if isinstance(term, Column) else None


def _alike(kind: IcebergType, source: Term) -> bool:
    whole = (IntegerType, LongType)
    other = sql.type_of(source)
    return other == kind or (isinstance(kind, whole) and isinstance(other, whole))


def _extremes(keys: pa.Array) -> pa.Array:
    """Least and greatest key; NaN where there is one; one key of a type without an order."""
    if pa.types.is_floating(keys.type) and pc.any(pc.is_nan(keys)).as_py():
        return pa.array([math.nan], keys.type)
    try:
        limits = pc.min_max(keys)
    except pa.ArrowNotImplementedError:
        return keys.slice(0, 1)
    return pa.array([limits["min"], limits["max"]], keys.type)


def _range(pair: KeyPair, keys: pa.Array) -> Bound:
    """Where the target's side of a pair lies, of rows that match; TRUE where that is not known."""
    if pair.nulls_match or not len(keys) or keys.null_count == len(keys):
        return TRUE
    kind = sql.type_of(pair.source)
    if pa.types.is_floating(keys.type) and pc.any(pc.is_nan(keys)).as_py():
        return TRUE  # NaN, which is above every number, matches NaN
    try:
        limits = pc.min_max(keys)
        low, high = internal_values(pa.array([limits["min"], limits["max"]], keys.type), kind)
        return conjunction(_limits(pair.target, kind, low, high))
    except (InvalidExpressionError, pa.ArrowNotImplementedError):
        return TRUE  # a type without an order prunes nothing


def _limits(target: Term, kind: IcebergType, low: object, high: object) -> Iterator[Bound]:
    yield to_bound(sql.compare(">=", target, Value(low, kind)))
    yield to_bound(sql.compare("<=", target, Value(high, kind)))


def sorted_keys(keys: pa.Array, kind: IcebergType) -> npt.NDArray[Any] | None:
    """Distinct keys without nulls, in the order of bounds; None for types that are not looked up.

    Args:
        keys: Arrow values of the type.
        kind: of the column that is looked into.
    """
    if not isinstance(kind, (*_COUNTED, *_SPELLED)):
        return None
    return distinct(_comparable(keys.drop_null(), kind))


def tasks_with_keys(
    plan: ScanPlan, field_id: int, kind: IcebergType, keys: npt.NDArray[Any]
) -> Sequence[FileScanTask]:
    """The tasks of a plan whose files may hold a key; those with unknown bounds may.

    Args:
        plan: with the metrics of the column at hand (`include_metrics`, or a filter that names it).
        field_id: of the column.
        kind: of the column, `int` for the bounds of an `int`.
        keys: from `sorted_keys`.
    """
    parts: Sequence[Entries] = plan.files.parts if isinstance(plan.files, LazyItems) else ()
    masks = [may_hold_key(part, field_id, kind, keys) for part in parts]
    found = np.flatnonzero(np.concatenate(masks)) if masks else np.empty(0, np.int64)
    return [plan.tasks[int(number)] for number in found]


def may_hold_key(part: Entries, field_id: int, kind: IcebergType, keys: npt.NDArray[Any]) -> Mask:
    """Which entries may hold a key, by their bounds; see `tasks_with_keys`."""
    known = statistics_of_files(part.table, field_id, kind)
    first = _places(keys, known.lower, kind, "left", len(part), unknown=0)
    last = _places(keys, known.upper, kind, "right", len(part), unknown=len(keys))
    return (last > first) & ~known.no_values


def _places(
    keys: npt.NDArray[Any],
    bounds: pa.Array | pa.ChunkedArray | None,
    kind: IcebergType,
    side: Any,
    files: int,
    *,
    unknown: int,
) -> npt.NDArray[np.int64]:
    found = np.full(files, unknown, np.int64)
    if bounds is not None:
        array = bounds.combine_chunks() if isinstance(bounds, pa.ChunkedArray) else bounds
        valid = np.asarray(array.is_valid())
        found[valid] = np.searchsorted(keys, _comparable(array.drop_null(), kind), side)
    return found


def _comparable(array: pa.Array, kind: IcebergType) -> npt.NDArray[Any]:
    """Numbers, or the bytes of texts: both are ordered as bounds are."""
    if isinstance(kind, _SPELLED):
        return np.array(array.cast(pa.binary()).to_pylist(), dtype=object)
    width = array.type.bit_width
    whole = (
        array
        if pa.types.is_integer(array.type)
        else array.view(pa.int32() if width == 32 else pa.int64())
    )
    return np.asarray(whole).astype(np.int64)
