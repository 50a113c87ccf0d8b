"""A few rows of a table, from one small read: of one file's first row group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader, listed_manifests
from lakehouse.scan.delete_index import DeleteIndex
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import STATUS_DELETED, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage, path_on_disk

ROWS = 20
COLUMNS_MAX = 100
"""The first ones of a table."""
_DELETES_MAX = 200
"""Delete files that are read, so that no deleted row is shown."""
_BYTES_MAX = 64 << 20
"""Of delete files that are read; and of a row group far away, whose columns come whole."""
_MANIFEST_BYTES_MAX = 16 << 20
_MANIFESTS_TRIED = 8
_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows as text.

    Attributes:
        columns: names.
        rows: a text for each column; None: null.
        file: the data file that they are of; empty: there are none.
        left: columns that are not shown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    file: str = ""
    left: int = 0


def sample_rows(metadata: TableMetadata, storage: Storage) -> Sample:
    """The first rows of one of the newest files, without those that are deleted.

    Raises:
        UnsupportedFeatureError: finding out what is deleted, or one row group, takes too much.
        LakehouseError: a file is missing or damaged.
    """
    snapshot = metadata.current_snapshot()
    task = None if snapshot is None else _task(metadata, snapshot, storage)
    shown, left = _columns(metadata.schema(), task, storage)
    names = [field.name for field in shown.fields]
    if task is None:
        return Sample(names, (), left=left)
    request = replace(ReadRequest.of(metadata, shown, threads=1), batch_rows=ROWS, buffer_bytes=1)
    rows: list[list[str | None]] = []
    with closing(read_tasks([task], request, storage)) as batches:
        for batch in batches:
            cells = [_texts(column.slice(0, ROWS)) for column in batch.columns]
            rows += map(list, zip(*cells, strict=True))
            if len(rows) >= ROWS:
                break
    return Sample(names, rows[:ROWS], task.data_file.file_path, left)


def _columns(schema: Schema, task: FileScanTask | None, storage: Storage) -> tuple[Schema, int]:
    """The columns that are shown, and how many are not."""
    fields = list(schema.fields[:COLUMNS_MAX])
    if task is not None and path_on_disk(storage, task.data_file.file_path) is None:
        file = task.data_file
        sizes, share = file.column_sizes, task.length / max(file.file_size_in_bytes, 1)
        ends = accumulate(
            sum(sizes.get(field_id, 0) for field_id in Schema(field).field_ids) for field in fields
        )
        if not sizes and task.length > _BYTES_MAX:
            raise UnsupportedFeatureError("The first row group of its newest file is too large.")
        fields = [
            field
            for field, end in zip(fields, ends, strict=True)
            if field is fields[0] or end * share <= _BYTES_MAX
        ]
    return Schema(*fields, schema_id=schema.schema_id), len(schema.fields) - len(fields)


def _task(metadata: TableMetadata, snapshot: Snapshot, storage: Storage) -> FileScanTask | None:
    reader = ManifestReader.of(storage, metadata, DEFAULT_CACHE)
    manifests = listed_manifests(storage, snapshot)
    of_data = [manifest for manifest in manifests if manifest.content == CONTENT_DATA_MANIFEST]
    entry = next(iter(_data_entries(of_data, reader)), None)
    if entry is None:
        return None
    of_deletes = [manifest for manifest in manifests if manifest.content != CONTENT_DATA_MANIFEST]
    index = DeleteIndex(_delete_entries(of_deletes, reader), reader.specs)
    number = entry.sequence_number or 0
    deletes = index.deletes_for(entry.data_file, number)
    sizes = (delete.content_size_in_bytes or delete.file_size_in_bytes for delete in deletes)
    if sum(sizes) > _BYTES_MAX:
        raise UnsupportedFeatureError("The deletes of its newest file are too large for a page.")
    return FileScanTask(
        data_file=entry.data_file,
        deletes=deletes,
        start=0,
        length=_first_group(entry.data_file),
        sequence_number=number,
    )


def _data_entries(
    manifests: Sequence[ManifestFile], reader: ManifestReader
) -> Iterable[ManifestEntry]:
    """Live files with rows, of some of the newest manifests."""
    newest = sorted(manifests, key=lambda manifest: manifest.sequence_number or 0, reverse=True)
    small = [manifest for manifest in newest if manifest.manifest_length <= _MANIFEST_BYTES_MAX]
    for manifest in small[:_MANIFESTS_TRIED]:
        entries = _live(reader.entries(manifest))
        filled = entries.filter(pc.greater(entries.table["record_count"], 0))
        yield from filled.slice(0, 1).to_manifest_entries()
    if len(manifests) > _MANIFESTS_TRIED or len(small) < len(manifests):
        raise UnsupportedFeatureError("None of its newest manifests that a page reads has rows.")


def _delete_entries(
    manifests: Sequence[ManifestFile], reader: ManifestReader
) -> list[ManifestEntry]:
    counts = [(manifest.added_files_count, manifest.existing_files_count) for manifest in manifests]
    if any(None in pair for pair in counts) or (
        sum((added or 0) + (existing or 0) for added, existing in counts) > _DELETES_MAX
    ):
        raise UnsupportedFeatureError(
            f"It has more than {_DELETES_MAX} delete files, too many for a page to find out which "
            "rows are left."
        )
    return [
        entry
        for manifest in manifests
        for entry in _live(reader.entries(manifest)).to_manifest_entries()
    ]


def _live(entries: Entries) -> Entries:
    return entries.filter(pc.not_equal(entries.table["status"], STATUS_DELETED))


def _first_group(file: DataFile) -> int:
    """Bytes from the start of the file that hold the first byte of its first row group alone."""
    offsets = file.split_offsets or ()
    return offsets[1] if len(offsets) > 1 else file.file_size_in_bytes


def _texts(column: pa.Array) -> list[str | None]:
    return [None if not cell.is_valid else _text(cell) for cell in column]


def _text(value: pa.Scalar) -> str:
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):  # a time that Python has no value for
        plain = value.cast(pa.string()).as_py()
    text = plain.hex() if isinstance(plain, bytes) else str(plain)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
