"""The metadata table `position_deletes`, one row for each deleted position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakehouse.data.reading.scan_reader import named_positions
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.unified_partition import UnifiedPartition
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.storage_protocol import Storage


def position_deletes_table(
    deletes: Sequence[DataFile], metadata: TableMetadata, storage: Storage
) -> pa.Table:
    """The positions in position delete files and deletion vectors, ascending for each data file.

    `row` is null: nothing that this project writes keeps deleted rows, and of files that do it is
    not read. `partition` is left out of tables that never had one.

    Raises:
        NoSuchFileError | CorruptMetadataError | UnsupportedFeatureError: of a delete file.
    """
    found = [
        (one, path, positions)
        for one, named in zip(deletes, named_positions(deletes, metadata, storage), strict=True)
        for path, positions in named.items()
    ]
    counts = [len(positions) for _, _, positions in found]
    each = pa.array(np.repeat(np.arange(len(found)), counts))
    columns: list[tuple[pa.Field, pa.Array]] = []

    def add(name: str, values: pa.Array, *, nullable: bool = False) -> None:
        columns.append((pa.field(name, values.type, nullable=nullable), values.take(each)))

    add("file_path", pa.array([path for _, path, _ in found], pa.string()))
    every = [positions for _, _, positions in found]
    pos = pa.array(np.concatenate([np.empty(0, np.int64), *every]), pa.int64())
    columns.append((pa.field("pos", pos.type, nullable=False), pos))
    row = pa.nulls(len(pos), pa.struct(list(schema_to_arrow(metadata.schema()))))
    columns.append((pa.field("row", row.type), row))
    partition = UnifiedPartition.of(metadata)
    if partition.fields:
        add("partition", partition.array([(one.spec_id, one.partition) for one, _, _ in found]))
    add("spec_id", pa.array([one.spec_id for one, _, _ in found], pa.int32()))
    add("delete_file_path", pa.array([one.file_path for one, _, _ in found], pa.string()))
    if metadata.format_version >= 3:
        for name in ("content_offset", "content_size_in_bytes"):
            values = pa.array([getattr(one, name) for one, _, _ in found], pa.int64())
            add(name, values, nullable=True)
    return pa.Table.from_arrays(
        [array for _, array in columns], schema=pa.schema([field for field, _ in columns])
    )
