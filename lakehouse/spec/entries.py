"""Many manifest entries as one Arrow table: what pruning, rewriting and inspection work on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from lakehouse.spec.data_file import ManifestEntry
from lakehouse.spec.field_types import FieldTypes


@dataclass(frozen=True, slots=True)
class Entries:
    """Manifest entries of one partition spec.

    Columns, one row an entry, in manifest order (values in Iceberg's internal representation: dates are int32, timestamps int64):
    `status, snapshot_id, sequence_number, file_sequence_number, content, file_path, file_format, record_count,
    file_size_in_bytes, partition.<partition field id>, lower.<field id>, upper.<field id>, value_count.<field id>,
    null_count.<field id>, nan_count.<field id>, column_size.<field id>, split_offsets, equality_ids, sort_order_id,
    first_row_id, referenced_data_file, content_offset, content_size_in_bytes, key_metadata`. A column that no entry fills may be
    absent, and the planner reads only the columns that it needs.

    Attributes:
        table: the columns.
        spec: the partition spec of every entry.
    """

    table: pa.Table
    spec: PartitionSpec

    @classmethod
    def from_manifest_entries(cls, entries: Iterable[ManifestEntry], spec: PartitionSpec, types: FieldTypes) -> Entries:
        """Columns from values. `types` come from `field_types(schema)`; bounds of unknown fields are kept as raw bytes."""
        raise AssertionError(entries, spec, types)

    def to_manifest_entries(self) -> list[ManifestEntry]:
        """Values from columns, in order."""
        raise AssertionError(self)

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
        """Entries of one spec after each other; columns missing in a part are null. Needs at least one part."""
        raise AssertionError(parts)
