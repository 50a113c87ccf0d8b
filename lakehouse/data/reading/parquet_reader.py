"""Reading one Parquet data file: from row groups that may match to batches of wanted columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.types import NestedField, PrimitiveType

from lakehouse.data.reading.column_projection import FileColumn, Projection, file_columns
from lakehouse.data.reading.parquet_footer import (
    MANY_ROWS,
    ColumnChunk,
    WholeParquet,
    column_chunks,
    load_footer,
    open_parquet,
    plain_value,
    readable,
)
from lakehouse.data.reading.scan_columns import FileShape, RowGroup, TaskReader, WantedRows
from lakehouse.data.statistics.column_metrics import decode_statistic
from lakehouse.errors import CorruptMetadataError
from lakehouse.expressions.bound_filter import TRUE, Bound, leaves
from lakehouse.scan.pruning.entry_pruning import may_match
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.arrow_types import physical_type, to_physical
from lakehouse.storage.storage_protocol import Storage

_ARROW_SCHEMA = b"ARROW:schema"
# Decoding the filter's columns first pays when the others are this many times larger.
_PROBE_RATIO = 4
# What pays for large ones only: opening again to read dictionaries, decoding the filter's columns
# first.
_TWICE_ROWS = 50_000


class ParquetTaskReader(TaskReader):
    """Reads one scan task over a Parquet file.

    Args:
        rows: what is wanted of the file.
        storage: where the file is.

    Raises:
        see `open_parquet`; InvalidSchemaError when a column cannot be resolved.
    """

    def __init__(self, rows: WantedRows, storage: Storage) -> None:
        super().__init__(rows)
        self._storage = storage
        self._footer = load_footer(storage, rows.task.data_file)
        self._opened: pq.ParquetFile | WholeParquet | None = None
        with readable(self.path):
            self._columns = self._shape(rows.name_mapping)
            self.row_groups = self._select(self._columns)

    @cached_property
    def _file(self) -> pq.ParquetFile | WholeParquet:
        """The file, opened for its only row group."""
        if self._dictionaries or self._opened is None:
            self._opened = open_parquet(
                self._storage, self._task.data_file, self._footer, self._dictionaries
            )
        return self._opened

    @cached_property
    def _probe(self) -> Projection | None:
        """The columns of the filter alone; None where they do not decide it."""
        if not self._scan.can_probe:
            return None
        return self._project(self._columns, self._scan.filter_fields, self._scan.filter_arrow)

    def _shape(self, name_mapping: str | None) -> Sequence[FileColumn]:
        """The file's columns and projection, shared with the last file if schemas are equal."""
        parsed, scan = self._footer.parsed, self._scan
        hint = (parsed.metadata or {}).get(_ARROW_SCHEMA)
        known = scan.shape
        if (
            known is not None
            and known.hint == hint
            and known.name_mapping == name_mapping
            and known.schema.equals(parsed.schema)
            and known.groups == _groups(parsed.schema, known.columns, name_mapping)
        ):
            self._projection = known.projection.of(self.path)
            return known.columns
        self._opened = open_parquet(self._storage, self._task.data_file, self._footer)
        columns = file_columns(self._opened.schema_arrow, name_mapping, self.path)
        self._projection = self._project(columns, scan.read_fields, scan.read_arrow)
        if self._projection.plain:
            scan.shape = FileShape(
                parsed.schema,
                hint,
                columns,
                self._projection,
                name_mapping,
                _groups(parsed.schema, columns, name_mapping),
                len(self._footer.data),
            )
        return columns

    def ready(self) -> list[pa.RecordBatch] | None:
        """All wanted batches of a small file; None for larger ones, read by row group."""
        if len(self.row_groups) > 1 or self._footer.whole is None:
            return None
        return [batch for group in self.row_groups for batch in self.batches(group)]

    def _project(
        self,
        columns: Sequence[FileColumn],
        fields: Sequence[NestedField],
        targets: Sequence[pa.Field],
    ) -> Projection:
        return Projection(
            columns, fields, targets, self._scan.constants(self._task.data_file), self.path
        )

    def close(self) -> None:
        """Release the file."""
        if self._opened is not None:
            self._opened.close()

    def batches(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of a row group.

        Row groups may be read by several threads at a time.
        """
        with readable(self.path):
            if len(self.row_groups) > 1:
                # A ParquetFile buffers ahead for one reader at a time.
                source = open_parquet(
                    self._storage, self._task.data_file, self._footer, self._dictionaries
                )
            else:
                source = self._file
            if self._should_probe(group) and not self._any_match(source, group):
                return
            position = group.first_row
            for batch, rows in self._decoded(source, group, self._projection.leaves):
                wanted = self.wanted(batch, rows, position)
                position += rows
                if wanted is not None and wanted.num_rows:
                    yield wanted

    @cached_property
    def _chunks(self) -> list[list[ColumnChunk]]:
        """Column chunks by row group, parsed on demand: small files never need them."""
        return column_chunks(self._footer.data, self._footer.parsed.num_columns, self.path)

    def _select(self, columns: Sequence[FileColumn]) -> list[RowGroup]:
        footer = self._footer.parsed
        chosen = list(range(footer.num_row_groups))
        if len(chosen) > 1:
            start, length = self._task.start, self._task.length
            if length > 0 and (start > 0 or length < self._task.data_file.file_size_in_bytes):
                chosen = in_range(self._chunks, start, length)
            if self._scan.where != TRUE:
                leaf_of = _primitive_leaves(columns, self._scan.types)
                chosen = prune(
                    footer, self._chunks, chosen, self._scan.where, leaf_of, self._scan.types
                )
        keep = set(chosen)
        groups, first = [], 0
        for index in range(footer.num_row_groups):
            rows = footer.row_group(index).num_rows
            if index in keep and rows > 0:
                groups.append(RowGroup(index, first, rows))
            first += rows
        return groups

    @cached_property
    def _dictionaries(self) -> list[int]:
        """Text columns with few distinct values: faster to read as dictionaries, by Arrow."""
        if sum(group.rows for group in self.row_groups) < _TWICE_ROWS:
            return []
        wanted = set(self._projection.leaves)
        texts = [
            column
            for column in self._columns
            if not column.children and column.leaves[0] in wanted and _is_text(column.type)
        ]
        return [text.leaves[0] for text in texts if self._refers_to_dictionary(text.leaves[0])]

    def _refers_to_dictionary(self, leaf: int) -> bool:
        chunks = [self._chunks[group.index][leaf] for group in self.row_groups]
        # Plain text takes more than the four bytes of its length a value: below that, pages refer
        # to a dictionary.
        compact = sum(chunk.uncompressed_bytes for chunk in chunks) < 4 * sum(
            chunk.values for chunk in chunks
        )
        return compact and all(chunk.has_dictionary for chunk in chunks)

    def _decoded(
        self, source: pq.ParquetFile | WholeParquet, group: RowGroup, columns: Sequence[int]
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """Decoded batches and their rows; no batch when no column of the file is needed."""
        if not columns:
            for start in range(0, group.rows, self._rows.batch_rows):
                yield None, min(self._rows.batch_rows, group.rows - start)
            return
        decoded = 0
        for batch in source.reader.iter_batches(
            self._rows.batch_rows,
            [group.index],
            column_indices=list(columns),
            use_threads=group.rows >= MANY_ROWS,
        ):
            decoded += batch.num_rows
            yield batch, batch.num_rows
        if decoded != group.rows:
            raise CorruptMetadataError(
                f"row group {group.index} of {self.path} holds {decoded} rows, its footer says "
                f"{group.rows}",
                file=self.path,
            )

    def _should_probe(self, group: RowGroup) -> bool:
        """Whether decoding the filter's columns alone first is cheap beside decoding everything."""
        if (
            group.rows < _TWICE_ROWS
            or self._probe is None
            or len(self._probe.leaves) == len(self._projection.leaves)
        ):
            return False
        chunks = self._chunks[group.index]
        everything = sum(chunks[leaf].compressed_bytes for leaf in self._projection.leaves)
        first = sum(chunks[leaf].compressed_bytes for leaf in self._probe.leaves)
        return everything >= (_PROBE_RATIO + 1) * first

    def _any_match(self, source: pq.ParquetFile | WholeParquet, group: RowGroup) -> bool:
        if self._probe is None:
            return True
        for batch, rows in self._decoded(source, group, self._probe.leaves):
            columns = pa.RecordBatch.from_arrays(
                self._probe.columns(batch, rows), schema=pa.schema(self._scan.filter_arrow)
            )
            if self._scan.any_matches(columns):
                return True
        return False


def _groups(
    schema: pq.ParquetSchema, columns: Sequence[FileColumn], name_mapping: str | None
) -> str:
    """Names and ids around the leaf columns, where there are groups or names tell columns apart.

    Schemas are equal where their leaf columns are, whatever the groups around these are called, and
    whichever ids they have: a list that was dropped and one that took its name can be alike.
    """
    if name_mapping is None and not any(column.children for column in columns):
        return ""
    return str(schema).partition("\n")[2]  # the first line says where it is in memory


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _by_id(columns: Sequence[FileColumn]) -> dict[int, FileColumn]:
    """Columns outside lists and maps by field id."""
    result: dict[int, FileColumn] = {}
    for column in columns:
        if column.field_id is not None:
            result[column.field_id] = column
        if pa.types.is_struct(column.type):
            result.update(_by_id(column.children))
    return result


def _primitive_leaves(
    columns: Sequence[FileColumn], types: Mapping[int, PrimitiveType]
) -> dict[int, int]:
    return {
        field_id: one.leaves[0]
        for field_id, one in _by_id(columns).items()
        if not one.children and field_id in types
    }


def in_range(chunks: Sequence[Sequence[ColumnChunk]], start: int, length: int) -> list[int]:
    """Row groups whose first byte lies in the byte range."""
    return [
        group
        for group, columns in enumerate(chunks)
        if columns and start <= columns[0].start < start + length
    ]


def prune(
    footer: pq.FileMetaData,
    chunks: Sequence[Sequence[ColumnChunk]],
    groups: Sequence[int],
    where: Bound,
    columns: Mapping[int, int],
    types: Mapping[int, PrimitiveType],
) -> list[int]:
    """The row groups that may hold a matching row.

    Args:
        footer: of the file.
        chunks: its column chunks by row group.
        groups: candidates.
        where: the filter.
        columns: field id -> Parquet leaf column, for unrepeated primitive fields that are in the
            file.
        types: field id -> type in the table's schema.
    """
    wanted = sorted({leaf.field_id for leaf in leaves(where)} & columns.keys())
    if not wanted or not groups:
        return list(groups)
    table: dict[str, pa.Array] = {
        "record_count": pa.array(
            [footer.row_group(group).num_rows for group in groups], pa.int64()
        ),
        "split_offsets": pa.array([[chunks[group][0].start] for group in groups]),
    }
    for field_id in wanted:
        index = columns[field_id]
        column = [chunks[group][index] for group in groups]
        table.update(_statistics(column, footer.schema.column(index), field_id, types[field_id]))
    mask = may_match(Entries(pa.table(table), UNPARTITIONED_PARTITION_SPEC), where, types)
    return [group for group, keep in zip(groups, np.asarray(mask).tolist(), strict=True) if keep]


def _statistics(
    chunks: Sequence[ColumnChunk], column: Any, field_id: int, kind: PrimitiveType
) -> dict[str, pa.Array]:
    def bound(raw: bytes | None) -> Any:
        return _usable(decode_statistic(plain_value(raw, column.physical_type), column, kind))

    target = physical_type(kind)
    return {
        f"lower.{field_id}": _array([bound(chunk.minimum) for chunk in chunks], target),
        f"upper.{field_id}": _array([bound(chunk.maximum) for chunk in chunks], target),
        f"null_count.{field_id}": pa.array([chunk.null_count for chunk in chunks], pa.int64()),
        f"value_count.{field_id}": pa.array([chunk.values for chunk in chunks], pa.int64()),
    }


def _usable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target):
        values = [None if value is None else _decimal(value, target.scale) for value in values]
    return pa.array([to_physical(value) for value in values], target)


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -scale))
