"""Files that lie somewhere become part of a table without being rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakehouse.data.writing.foreign_file import ForeignRequest, describe_file
from lakehouse.errors import InvalidInputError
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spec.identifier import full_uri
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.partitioning.partition_terms import is_hidden, partition_texts
from lakehouse.spec.schema.name_mapping import covering
from lakehouse.spec.table_properties import NAME_MAPPING
from lakehouse.storage.location import canonical
from lakehouse.storage.storage_protocol import FileInfo, Storage
from lakehouse.transaction.transaction import Transaction

_THREADS = 8
_Texts = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """Files that become part of a table without being rewritten.

    Attributes:
        files: the files, described.
        properties: what the table's properties have to say so that the files can be read: a name
            mapping, or nothing new.
    """

    files: tuple[DataFile, ...]
    properties: Mapping[str, str]

    def add_to(self, transaction: Transaction) -> Transaction:
        """Add properties and files to a transaction: one commit."""
        if self.properties:
            transaction.set_properties(self.properties)
        return transaction.append(self.files, must_be_new=True)


def describe_paths(
    paths: Iterable[str],
    metadata: TableMetadata,
    snapshot_id: int | None,
    storage: Storage,
    table: str,
) -> AddedFiles:
    """Parquet files without field ids, by location; footers tell their partitions.

    Args:
        paths: locations that the table's storage reaches.
        metadata: the table.
        snapshot_id: head of the branch that takes them; None for an empty table.
        storage: the table's.
        table: its name, for messages.

    Raises:
        InvalidInputError: no files, a file that is in the table already, rows of more than one
            partition.
        InvalidSchemaError: see `describe_file`.
    """
    listed: list[tuple[FileInfo, _Texts]] = [
        (FileInfo(full_uri(path), storage.size(path), 0), {}) for path in paths
    ]
    return describe_files(listed, metadata, snapshot_id, storage, table)


def describe_hive(
    location: str,
    partitions: Mapping[str, str],
    metadata: TableMetadata,
    snapshot_id: int | None,
    storage: Storage,
    table: str,
) -> AddedFiles:
    """All Parquet files below a folder laid out like Hive's (`dt=2026-06-09/region=eu/0.parquet`).

    Partition values come from the path, URL-decoded, `__HIVE_DEFAULT_PARTITION__` being null. Files
    and folders whose names begin with `_` or `.` are passed over, as Hive does, and those whose
    path says something else than `partitions`. Other arguments and errors as for `describe_paths`.
    """
    root = full_uri(location.rstrip("/"))
    listed: list[tuple[FileInfo, _Texts]] = []
    for info in sorted(storage.list(root), key=lambda info: info.location):
        relative = info.location[len(root) :].lstrip("/")
        if is_hidden(relative):
            continue
        if not relative.endswith((".parquet", ".parq")):
            raise InvalidInputError(
                f"{info.location} is not named like a Parquet file: move it away, or add files one "
                "by one"
            )
        texts = partition_texts(relative)
        if _is_in(partitions, texts, info.location):
            listed.append((info, texts))
    return describe_files(listed, metadata, snapshot_id, storage, table)


def _is_in(partitions: Mapping[str, str], texts: _Texts, location: str) -> bool:
    unknown = sorted(partitions.keys() - texts.keys())
    if unknown:
        raise InvalidInputError(f"no partition {unknown[0]!r} in the path {location}")
    return all(texts[name] == value for name, value in partitions.items())


def describe_files(
    listed: Sequence[tuple[FileInfo, _Texts]],
    metadata: TableMetadata,
    snapshot_id: int | None,
    storage: Storage,
    table: str,
) -> AddedFiles:
    """Parquet files without field ids, each with texts of partition values that it lacks.

    Other arguments and errors as for `describe_paths`.
    """
    if not listed:
        raise InvalidInputError(f"no files to add to {table}", table=table)
    _refuse_known([info.location for info, _ in listed], metadata, snapshot_id, storage, table)
    stated = metadata.properties.get(NAME_MAPPING)
    mapping = covering(stated, metadata.schema())
    request = ForeignRequest(
        schema=metadata.schema(),
        spec=metadata.spec(),
        properties=metadata.properties,
        name_mapping=mapping,
        table=table,
    )
    with ThreadPoolExecutor(_THREADS) as pool:
        files = tuple(
            pool.map(lambda file: describe_file(file[0], request, storage, file[1]), listed)
        )
    return AddedFiles(files, {} if mapping == stated else {NAME_MAPPING: mapping})


def _refuse_known(
    locations: list[str],
    metadata: TableMetadata,
    snapshot_id: int | None,
    storage: Storage,
    table: str,
) -> None:
    if snapshot_id is None:
        return
    live = plan_scan(ScanRequest(metadata=metadata, snapshot_id=snapshot_id), storage).locations()
    known = {canonical(path) for path in live["file_path"].to_pylist()}
    twice = [location for location in locations if canonical(location) in known]
    if twice:
        raise InvalidInputError(
            f"{twice[0]} is a file of {table} already; its rows would count twice",
            file=twice[0],
            table=table,
        )
