"""What to read, filter and return, by field id: of a scan, and of one task of it.

The columns are shared by all tasks of a scan with the same filter and deletes.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StructType

from lakehouse.data.conversion.nested_arrays import make_struct
from lakehouse.data.deletes.delete_loader import EqualityKeys, alive
from lakehouse.data.deletes.deletion_vector import Positions
from lakehouse.data.reading.column_projection import FileColumn, Projection, file_columns
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.expressions.bound_filter import columns as columns_of
from lakehouse.expressions.row_evaluation import passing
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.schema.iceberg_types import (
    LAST_UPDATED,
    METADATA_COLUMNS,
    PARTITION,
    PARTITION_FIELDS,
    ROW_ID,
    child_fields,
    field_paths,
    field_types,
    fields_by_id,
    fields_of,
    schema_bytes,
)
from lakehouse.spec.types.arrow_types import column_at, field_to_arrow, schema_to_arrow
from lakehouse.spec.types.internal_values import typed_array

_BY_ID = {column.field_id: column for column in (*METADATA_COLUMNS.values(), PARTITION)}
_STORED = {METADATA_COLUMNS[name].field_id for name in (ROW_ID, LAST_UPDATED)}
_POSITION = "\x00position"
_DELETED = "\x00deleted"
_SHAPE_BYTES = 65_536
"""Of the footer that a shape holds, which takes about four times as much when it is parsed."""


@dataclass(frozen=True, slots=True)
class FileShape:
    """What files of the same Parquet schema share; most files of a table do.

    Attributes:
        schema: of the files.
        hint: the Arrow schema that they carry, which decides how types are read.
        columns: of the files.
        projection: a plain one.
        name_mapping: of the table, by which files without field ids were understood.
        groups: what equal schemas may not have in common, names and ids of structs and lists.
        size: bytes of a footer that says so.
    """

    schema: pq.ParquetSchema
    hint: bytes | None
    columns: Sequence[FileColumn]
    projection: Projection
    name_mapping: str | None
    groups: str
    size: int


class _LastShape:
    """The shape of the last file with a small footer that was opened, whichever scan did."""

    shape: FileShape | None = None


class ScanColumns:
    """Columns of a scan.

    Args:
        schema: to return; may hold metadata columns.
        table_schema: what the filter refers to.
        where: bound filter.
        extra: fields needed beside (equality deletes) by id, with the schema that has them.
        specs: partition specs by id.

    Attributes:
        where: bound filter.
        types: field id -> type, for pruning.
        read_fields: columns to make out of each file; `read_arrow` are their Arrow fields.
        filter_fields: only those that the filter needs; `filter_arrow` are their Arrow fields.
        needs_positions: whether something reads the position of each row in its file.
        shows_deleted: whether `_deleted` is selected: then deleted rows come too, marked.
        can_probe: whether the columns of a file alone decide the filter.
    """

    def __init__(
        self,
        schema: Schema,
        table_schema: Schema,
        where: Bound,
        extra: Mapping[int, Schema],
        specs: Mapping[int, PartitionSpec],
    ) -> None:
        self.where = where
        self._shape: FileShape | None = None
        self._last = _LastShape()
        self.types = field_types(table_schema)
        self._fields = schema.fields
        self._arrow = schema_to_arrow(schema)
        self._specs = specs
        asked = _asked(where)
        filter_ids = {field_id for field_id in asked if field_id not in _BY_ID}
        metadata_ids = {field.field_id for field in schema.fields} | asked
        metadata_ids &= _BY_ID.keys()
        self.read_fields = _read_fields(schema, table_schema, filter_ids, extra, metadata_ids)
        known = {id(field): arrow for field, arrow in zip(schema.fields, self._arrow, strict=True)}
        self.read_arrow = [
            known[id(field)] if id(field) in known else field_to_arrow(field)
            for field in self.read_fields
        ]
        self._read_schema = pa.schema(self.read_arrow)
        paths = field_paths(self.read_fields)
        self._by_id = {field_id: paths[field_id] for field_id in extra}
        self.filter_fields = _pruned(table_schema, filter_ids) if filter_ids else []
        self.filter_arrow = [field_to_arrow(field) for field in self.filter_fields]
        self.can_probe = where != TRUE and asked == filter_ids
        self._filtered = paths
        self._probed = field_paths(self.filter_fields)
        names = {_BY_ID[field_id].name for field_id in metadata_ids}
        self.needs_positions = bool(names & {"_pos", "_row_id"})
        self.shows_deleted = "_deleted" in names
        data = [field for field in schema.fields if field.field_id not in _BY_ID]
        whole = data == self.read_fields and len(data) == len(schema.fields)
        self._as_read = whole and not self.needs_positions
        self._arrange = self._arrangement()

    @classmethod
    def shared(
        cls,
        schema: Schema,
        table_schema: Schema,
        where: Bound,
        extra: Mapping[int, Schema],
        specs: Mapping[int, PartitionSpec],
    ) -> ScanColumns:
        """The same as the constructor gives, which works once for filters of the same columns."""
        known = sorted(specs)
        made = _SHARED.of(
            (schema, table_schema, *extra.values(), *(specs[spec_id] for spec_id in known)),
            (_asked(where), where == TRUE, tuple(known), tuple(extra)),
            lambda: cls(schema, table_schema, where, extra, specs),
            lambda _: 4 * _SHAPE_BYTES + 2 * schema_bytes(table_schema) + schema_bytes(schema),
        )
        columns = copy.copy(made)
        columns.where, columns._shape = where, made._last.shape  # noqa: SLF001 - of the same class
        return columns

    def _arrangement(self) -> Projection | None:
        """From the columns that are read to those that are returned; None where they are these."""
        if self._as_read:
            return None
        chosen = [
            (field, target)
            for field, target in zip(self._fields, self._arrow, strict=True)
            if field.field_id not in _BY_ID
        ]
        return Projection(
            file_columns(self._read_schema, "[]", "the scan"),
            [field for field, _ in chosen],
            [target for _, target in chosen],
            {},
            "the scan",
            pruned=False,
        )

    @property
    def shape(self) -> FileShape | None:
        """Of the last file that was opened, for the next ones."""
        return self._shape

    @shape.setter
    def shape(self, shape: FileShape) -> None:
        self._shape = shape
        if shape.size <= _SHAPE_BYTES:
            self._last.shape = shape

    def constants(self, file: DataFile) -> dict[int, Any]:
        """Values of columns by identity partitioning, for files that lack the column."""
        spec = self._specs.get(file.spec_id)
        if spec is None:
            return {}
        return {
            part.source_id: value
            for part, value in zip(spec.fields, file.partition, strict=False)
            if isinstance(part.transform, IdentityTransform)
        }

    def by_id(self, columns: Sequence[pa.Array], field_id: int) -> pa.Array:
        """An extra column, out of the read columns."""
        path = self._by_id[field_id]
        return (
            columns[path[0]]
            if len(path) == 1
            else pc.struct_field(columns[path[0]], list(path[1:]))
        )

    def assemble(
        self,
        columns: Sequence[pa.Array],
        rows: int,
        *,
        positions: pa.Array | None = None,
        deleted: pa.Array | None = None,
    ) -> pa.RecordBatch:
        """The read columns as a batch, with positions and a mask of deleted rows if selected."""
        schema, arrays = self._read_schema, list(columns)
        for name, kind, values in (
            (_POSITION, pa.int64(), positions),
            (_DELETED, pa.bool_(), deleted),
        ):
            if values is not None:
                schema, arrays = schema.append(pa.field(name, kind)), [*arrays, values]
        return make_batch(arrays, schema, rows)

    def keep_matching(self, working: pa.RecordBatch, task: FileScanTask) -> pa.RecordBatch | None:
        """The rows that pass the filter; None when there are none."""
        if self.where == TRUE:
            return working

        def read(field_id: int) -> pa.Array:
            if field_id in _BY_ID:
                return self._metadata_column(_BY_ID[field_id].name, working, task)
            return column_at(working, self._filtered[field_id])

        chosen = np.flatnonzero(passing(self.where, read, working.num_rows))
        if len(chosen) == 0:
            return None
        return working if len(chosen) == working.num_rows else working.take(pa.array(chosen))

    def any_matches(self, probed: pa.RecordBatch) -> bool:
        """Whether any row passes the filter, by the columns it needs; only if `can_probe`."""

        def read(field_id: int) -> pa.Array:
            return column_at(probed, self._probed[field_id])

        return bool(passing(self.where, read, probed.num_rows).any())

    def output(self, working: pa.RecordBatch, task: FileScanTask) -> pa.RecordBatch:
        """The wanted columns of filtered rows, metadata columns included."""
        if self._arrange is None:
            return working
        rows = working.num_rows
        data = iter(self._arrange.columns(working.select(range(len(self.read_fields))), rows))
        columns = [
            self._metadata_column(_BY_ID[field.field_id].name, working, task)
            if field.field_id in _BY_ID
            else next(data)
            for field in self._fields
        ]
        return make_batch(columns, self._arrow, rows)

    def _metadata_column(self, name: str, working: pa.RecordBatch, task: FileScanTask) -> pa.Array:
        rows = working.num_rows
        if name == "_file":
            return pa.repeat(pa.scalar(task.data_file.file_path), rows)
        if name == "_pos":
            return working.column(_POSITION)
        if name == "_deleted":
            return working.column(_DELETED)
        if name == "_spec_id":
            return pa.repeat(pa.scalar(task.data_file.spec_id, pa.int32()), rows)
        if name == PARTITION.name:
            return self._partition(task.data_file, rows)
        stored = column_at(
            working, (self._read_schema.get_field_index(_hidden(METADATA_COLUMNS[name])),)
        )
        if task.data_file.first_row_id is None:
            return stored
        if name == LAST_UPDATED:
            return pc.fill_null(stored, task.sequence_number)
        return pc.coalesce(stored, pc.add(working.column(_POSITION), task.data_file.first_row_id))

    def _partition(self, file: DataFile, rows: int) -> pa.StructArray:
        """The file's partition for each of its rows; null where its spec lacks a field."""
        at = [field.field_id for field in self._fields].index(PARTITION.field_id)
        values = {
            PARTITION_FIELDS + part.field_id: value
            for part, value in zip(self._specs[file.spec_id].fields, file.partition, strict=True)
        }
        same = pa.array(np.zeros(rows, np.int64))
        children = [
            typed_array([values.get(field.field_id)], field.field_type).take(same)
            for field in child_fields(self._fields[at].field_type)
        ]
        return make_struct(children, self._arrow.field(at).type, None, rows)


def _asked(where: Bound) -> frozenset[int]:
    """Ids of the columns that a filter asks for."""
    return frozenset(column.field_id for column in columns_of(where))


def _hidden(field: NestedField) -> str:
    """The name of a column that filters must not meet: another column can have had its name."""
    return f"\x00{field.field_id}"


def _read_fields(
    schema: Schema,
    table_schema: Schema,
    filter_ids: set[int],
    extra: Mapping[int, Schema],
    metadata_ids: set[int],
) -> list[NestedField]:
    data = [field for field in schema.fields if field.field_id not in _BY_ID]
    known = set(fields_by_id(data))
    in_table = fields_of(table_schema)
    needed = filter_ids | {field_id for field_id in extra if field_id in in_table}
    fields = data if needed <= known else _pruned(table_schema, known | needed)
    for field_id, older in extra.items():
        if field_id not in in_table:
            (top,) = _pruned(older, {field_id})
            fields = _with_dropped(fields, top)
    return [
        *fields,
        *(
            NestedField(field_id, _hidden(_BY_ID[field_id]), LongType(), required=False)
            for field_id in sorted(metadata_ids)
            if field_id in _STORED
        ),
    ]


def _with_dropped(fields: Sequence[NestedField], dropped: NestedField) -> list[NestedField]:
    """The fields and a dropped one, which is inside their structs where these are still there."""
    for position, field in enumerate(fields):
        kind, within = field.field_type, dropped.field_type
        if field.field_id != dropped.field_id:
            continue
        if isinstance(kind, StructType) and isinstance(within, StructType):
            inner = _with_dropped(kind.fields, within.fields[0])
            merged = field.model_copy(update={"field_type": StructType(*inner)})
            return [*fields[:position], merged, *fields[position + 1 :]]
    return [*fields, _optional(dropped).model_copy(update={"name": _hidden(dropped)})]


def _optional(field: NestedField) -> NestedField:
    """A dropped field: files written since lack it, whatever was required."""
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*(_optional(child) for child in kind.fields))
    return field.model_copy(update={"required": False, "field_type": kind})


def _pruned(schema: Schema, ids: set[int]) -> list[NestedField]:
    """The columns that hold the fields of `ids`: structs trimmed to these, lists and maps whole."""
    fields = fields_of(schema)
    nested = (ListType, MapType)
    whole = {i for i in ids if isinstance(fields[i].field_type, nested)}
    below = {field_id for i in whole for field_id in fields_by_id([fields[i]])}
    # pyiceberg takes lists and maps by what they hold, never by their own ids
    selected = {i for i in ids | below if not isinstance(fields[i].field_type, nested)}
    return list(prune_columns(schema, selected, select_full_types=False).fields)


_SHARED: MadeOnce[ScanColumns] = MadeOnce()


# One task: the wanted rows and columns of a data file, whatever its format


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A unit of reading: one row group of an open file."""

    index: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows and columns a scan wants of the file of one task.

    Attributes:
        task: the task.
        scan: columns and filter of the scan, for this task's residual and deletes.
        deleted: positions deleted.
        keys: equality deletes.
        name_mapping: of the table.
        batch_rows: most rows of a batch.
    """

    task: FileScanTask
    scan: ScanColumns
    deleted: Positions | None = None
    keys: Sequence[EqualityKeys] = ()
    name_mapping: str | None = None
    batch_rows: int = 32_768


class TaskReader(ABC):
    """One opened scan task: the row groups to read, and how wanted batches are made of them.

    Args:
        rows: what is wanted of the file.

    Attributes:
        path: location of the file.
        row_groups: those that are read.
        bloom_filters: reads of Bloom filters that it took to choose them.
    """

    row_groups: list[RowGroup]
    bloom_filters: int = 0
    _projection: Projection

    def __init__(self, rows: WantedRows) -> None:
        self._rows = rows
        self._task, self._scan = rows.task, rows.scan
        self.path = rows.task.data_file.file_path

    def ready(self) -> list[pa.RecordBatch] | None:
        """All wanted batches of a small file; None for those that are read by row group."""
        return None

    @abstractmethod
    def batches(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of a row group."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""

    def wanted(
        self, batch: pa.RecordBatch | None, rows: int, position: int
    ) -> pa.RecordBatch | None:
        """Filter, delete and project one decoded batch; None when no row is left.

        `position` is that of its first row in the file.
        """
        scan, deletes = self._scan, self._rows.deleted
        columns = self._projection.columns(batch, rows)
        mask = alive(deletes, position, rows) if deletes is not None else None
        if mask is not None and not mask.any() and not scan.shows_deleted:
            return None
        for keys in self._rows.keys:
            hit = keys.matches(
                {field_id: scan.by_id(columns, field_id) for field_id in keys.field_ids}
            )
            if hit.any():
                mask = ~hit if mask is None else mask & ~hit
        positions = pa.array(np.arange(position, position + rows)) if scan.needs_positions else None
        if scan.shows_deleted:
            deleted = pa.array(np.zeros(rows, bool) if mask is None else ~mask)
            working = scan.assemble(columns, rows, positions=positions, deleted=deleted)
        else:
            working = scan.assemble(columns, rows, positions=positions)
            working = working if mask is None else working.filter(pa.array(mask))
        filtered = scan.keep_matching(working, self._task)
        return None if filtered is None else scan.output(filtered, self._task)


def make_batch(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of `rows` rows, also where it has no columns.

    `RecordBatch.from_arrays` takes the number of rows from the first column, and 0 without one.
    """
    if not columns:
        return pa.RecordBatch.from_struct_array(make_struct((), pa.struct([]), None, rows))
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)
