"""Whether the rows that an overwrite adds are rows that it would replace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_text import describe
from lakehouse.scan.pruning.entry_pruning import must_match
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import STATUS_ADDED, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.storage.storage_protocol import Storage


def refuse_other_rows(
    files: Iterable[DataFile],
    where: Bound,
    metadata: TableMetadata,
    storage: Storage,
    table: str,
) -> None:
    """Refuse data files with rows for which `where` is not true.

    Partition values and metrics tell for most files. Of the others the columns of the filter are
    read: a bound that was cut short refuses nothing.

    Args:
        files: new data files of the table's present schema, no row of them deleted.
        where: the filter, bound to the table's schema.
        metadata: of the table.
        storage: where the files are.
        table: its name, for messages.

    Raises:
        InvalidExpressionError: a function of the filter cannot be computed for a row.
        InvalidInputError: rows for which it is false or unknown (null).
        StorageError | CorruptMetadataError: a file could not be read.
    """
    types = types_of(metadata)
    by_spec: defaultdict[int, list[DataFile]] = defaultdict(list)
    for one in files:
        by_spec[one.spec_id].append(one)
    for spec_id, group in by_spec.items():
        entries = Entries.from_manifest_entries(
            [ManifestEntry(status=STATUS_ADDED, data_file=one) for one in group],
            metadata.spec(spec_id),
            types,
        )
        proven = must_match(entries, where, types)
        for file in (one for one, known in zip(group, proven, strict=True) if not known):
            others = file.record_count - _matching(file, where, metadata, storage)
            if others:
                raise InvalidInputError(
                    f"Table {table}: {others} of {file.record_count} rows of a new file do not "
                    f"match the filter of the overwrite, {describe(where)}. They would be there "
                    "twice after a second run: leave them out, widen the filter, or append them.",
                    table=table,
                    file=file.file_path,
                )


def _matching(file: DataFile, where: Bound, metadata: TableMetadata, storage: Storage) -> int:
    read = ReadRequest.of(metadata, Schema(METADATA_COLUMNS["_pos"]), where=where)
    task = FileScanTask(data_file=file, length=file.file_size_in_bytes)
    return int(read_table([task], read, storage).num_rows)
