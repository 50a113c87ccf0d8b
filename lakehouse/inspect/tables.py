"""`MetadataTables(version, storage)`: one method per metadata table, each returns a `pa.Table`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakehouse.catalog.protocol import TableVersion
from lakehouse.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class MetadataTables:
    """Metadata tables of one table version. `snapshot_id` None means the current snapshot; a table without one gives empty tables.

    Names: snapshots, history, refs, metadata_log_entries, manifests, entries, files, data_files, delete_files, partitions,
    all_manifests, all_entries, all_files, all_data_files, all_delete_files. `.table(name)` finds one by name.
    """

    version: TableVersion
    storage: Storage

    def table(self, name: str, snapshot_id: int | None = None) -> pa.Table: ...
