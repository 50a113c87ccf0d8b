"""Many manifest entries as one Arrow table: what pruning, rewriting and inspection work on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec

from lakehouse.spec.manifests.data_file import (
    CONTENT_POSITION_DELETES,
    DATA_FILE_ENDINGS,
    FILE_FIELD_ID,
    PATH_FIELD_ID,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import (
    from_physical,
    partition_types,
    physical_type,
    to_physical,
)
from lakehouse.spec.types.internal_values import decode_bounds, encode_bounds

ENTRY_COLUMNS: dict[str, pa.DataType] = {
    "status": pa.int32(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "file_sequence_number": pa.int64(),
}
FILE_COLUMNS: dict[str, pa.DataType] = {
    "content": pa.int32(),
    "file_path": pa.string(),
    "file_format": pa.string(),
    "record_count": pa.int64(),
    "file_size_in_bytes": pa.int64(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
    "key_metadata": pa.binary(),
}
FIXED_COLUMNS = {**ENTRY_COLUMNS, **FILE_COLUMNS}
COUNTS = {
    "column_size": "column_sizes",
    "value_count": "value_counts",
    "null_count": "null_value_counts",
    "nan_count": "nan_value_counts",
}
BOUNDS = {"lower": "lower_bounds", "upper": "upper_bounds"}


@dataclass(frozen=True, slots=True)
class Entries:
    """Manifest entries of one partition spec.

    Columns, one row an entry, in manifest order (values in Iceberg's internal representation: dates
    are int32, timestamps int64): `status, snapshot_id, sequence_number, file_sequence_number,
    content, file_path, file_format, record_count, file_size_in_bytes, partition.<partition field
    id>, lower.<field id>, upper.<field id>, value_count.<field id>, null_count.<field id>,
    nan_count.<field id>, column_size.<field id>, split_offsets, equality_ids, sort_order_id,
    first_row_id, referenced_data_file, content_offset, content_size_in_bytes, key_metadata`. A
    column that no entry fills may be absent, and the planner reads only the columns that it needs.

    Attributes:
        table: the columns.
        spec: the partition spec of every entry.
    """

    table: pa.Table
    spec: PartitionSpec

    @classmethod
    def from_manifest_entries(
        cls,
        entries: Iterable[ManifestEntry],
        spec: PartitionSpec,
        types: FieldTypes,
        *,
        with_metrics: bool = True,
    ) -> Entries:
        """Columns from values.

        `types` come from `field_types(schema)`; bounds of unknown fields are kept as raw bytes.
        Without metrics there are no columns of counts and bounds.
        """
        rows = list(entries)
        files = [row.data_file for row in rows]
        columns: dict[str, pa.Array] = {}
        for name, kind in ENTRY_COLUMNS.items():
            columns[name] = pa.array([getattr(row, name) for row in rows], kind)
        for name, kind in FILE_COLUMNS.items():
            columns[name] = pa.array([getattr(file, name) for file in files], kind)
        kinds = partition_types(spec, types)
        for position, field in enumerate(spec.fields):
            values = [to_physical(file.partition[position]) for file in files]
            kind = kinds[field.field_id]
            column = pa.array(values, None if kind is None else physical_type(kind))
            columns[f"partition.{field.field_id}"] = column
        for prefix, attribute in COUNTS.items() if with_metrics else ():
            _spread(
                columns,
                prefix,
                [getattr(file, attribute) for file in files],
                pa.int64(),
                lambda array, _: array,
            )
        for prefix, attribute in BOUNDS.items() if with_metrics else ():
            maps = [getattr(file, attribute) for file in files]
            _spread(
                columns,
                prefix,
                maps,
                pa.binary(),
                lambda array, field_id: decode_bounds(array, types.get(field_id)),
            )
        return cls(pa.table(columns), spec)

    def to_manifest_entries(self) -> list[ManifestEntry]:
        """Values from columns, in order."""
        names = set(self.table.column_names)
        fixed = {name: self.table[name].to_pylist() for name in ENTRY_COLUMNS if name in names}
        files = self.to_data_files()
        status = fixed.pop("status")
        return [
            ManifestEntry(
                status=status[row],
                data_file=file,
                **{name: values[row] for name, values in fixed.items()},
            )
            for row, file in enumerate(files)
        ]

    def to_data_files(self) -> list[DataFile]:
        """Only the files, in order."""
        names = set(self.table.column_names)
        fixed = {name: self.table[name].to_pylist() for name in FILE_COLUMNS if name in names}
        for name in ("split_offsets", "equality_ids"):
            if name in fixed:
                fixed[name] = [None if value is None else tuple(value) for value in fixed[name]]
        if "sequence_number" in names:
            fixed["data_sequence_number"] = self.table["sequence_number"].to_pylist()
        partitions = self.partitions()
        field_ids = self.field_ids()
        columns: dict[str, list[Any]] = fixed | {
            attribute: self._gather(prefix, field_ids[prefix])
            for prefix, attribute in (COUNTS | BOUNDS).items()
            if prefix in field_ids
        }
        return [
            DataFile(
                spec_id=self.spec.spec_id,
                partition=partition,
                **{name: values[row] for name, values in columns.items()},
            )
            for row, partition in enumerate(partitions)
        ]

    def named_files(self) -> pa.ChunkedArray:
        """`DataFile.named_file` of every entry, as UTF-8 bytes."""
        names = set(self.table.column_names)
        nothing = pa.chunked_array([pa.nulls(len(self), pa.binary())])
        files = nothing
        if "referenced_data_file" in names:
            stated = self.table["referenced_data_file"].cast(pa.binary())
            files = pc.if_else(pc.equal(pc.binary_length(stated), 0), None, stated)
        for field_id in (PATH_FIELD_ID, FILE_FIELD_ID):
            if {f"lower.{field_id}", f"upper.{field_id}"} <= names:
                lower, upper = (self.table[f"{end}.{field_id}"] for end in ("lower", "upper"))
                whole = reduce(
                    pc.or_, (pc.ends_with(lower, pattern=ending) for ending in DATA_FILE_ENDINGS)
                )
                named = pc.and_(pc.equal(lower, upper), whole)
                files = pc.coalesce(files, pc.if_else(named, lower, None))
        by_position = pc.equal(self.table["content"], CONTENT_POSITION_DELETES)
        return pc.if_else(by_position, files, nothing)

    def naming(self, paths: Iterable[str]) -> pa.ChunkedArray:
        """Which entries are position deletes or vectors that name one of these data files."""
        wanted = pa.array(sorted(path.encode() for path in paths), pa.binary())
        return pc.fill_null(pc.is_in(self.named_files(), value_set=wanted), False)

    def partitions(self) -> list[tuple[Any, ...]]:
        """The partition tuple of every entry, internal values in the order of the spec's fields."""
        columns = []
        for field in self.spec.fields:
            column = self.table[f"partition.{field.field_id}"]
            columns.append([from_physical(value, column.type) for value in column.to_pylist()])
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)

    def field_ids(self) -> Mapping[str, list[int]]:
        """By prefix the field ids that have a column `<prefix>.<field id>`, ascending."""
        ids_by_prefix: dict[str, list[int]] = defaultdict(list)
        for name in self.table.column_names:
            prefix, _, field_id = name.partition(".")
            if field_id:
                ids_by_prefix[prefix].append(int(field_id))
        return {prefix: sorted(ids) for prefix, ids in ids_by_prefix.items()}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def filter(self, mask: pa.BooleanArray | pa.ChunkedArray) -> Entries:
        """The entries where `mask` is true."""
        return Entries(self.table.filter(mask), self.spec)

    def slice(self, offset: int, length: int | None = None) -> Entries:
        """A range of the entries."""
        return Entries(self.table.slice(offset, length), self.spec)

    @staticmethod
    def concat(parts: Sequence[Entries]) -> Entries:
        """Entries of one spec after each other; columns missing in a part are null.

        Needs at least one part.
        """
        tables = [part.table for part in parts]
        return Entries(pa.concat_tables(tables, promote_options="permissive"), parts[0].spec)

    def _gather(self, prefix: str, field_ids: Iterable[int]) -> list[dict[int, Any]]:
        """Per entry, field id -> value of the columns with a prefix."""
        rows: list[dict[int, Any]] = [{} for _ in range(len(self))]
        for field_id in field_ids:
            column = self.table[f"{prefix}.{field_id}"].combine_chunks()
            values = encode_bounds(column) if prefix in BOUNDS else column
            for row, value in zip(rows, values.to_pylist(), strict=True):
                if value is not None:
                    row[field_id] = value
        return rows


def _spread(
    columns: dict[str, pa.Array],
    prefix: str,
    maps: list[Any],
    raw_type: pa.DataType,
    convert: Callable[[pa.Array, int], pa.Array],
) -> None:
    """One column a field id that any of the maps has."""
    for field_id in sorted({key for values in maps for key in values}):
        array = pa.array([values.get(field_id) for values in maps], raw_type)
        columns[f"{prefix}.{field_id}"] = convert(array, field_id)
