"""Tables and data files for tests that commit without writing Parquet."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_POSITION_DELETES,
    STATUS_DELETED,
    DataFile,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
NOW_MS = 1_767_225_600_000
EVENTS = Identifier.parse("raw.events")
FILES = "/data"


def table_metadata(
    location: str, properties: Mapping[str, str] | None = None, *, version: int = 2
) -> TableMetadata:
    return new_table_metadata(
        SCHEMA,
        BY_P,
        UNSORTED_SORT_ORDER,
        location,
        dict(properties or {}),
        version,
        str(uuid.uuid4()),
        NOW_MS,
    )


def allow_files(catalog: Catalog) -> None:
    """Let tables of this catalog take in the files of `data_file`, which lie nowhere."""
    catalog.properties["allowed-locations"] = FILES  # type: ignore[index]


def create_table(
    catalog: Catalog,
    identifier: Identifier = EVENTS,
    properties: Mapping[str, str] | None = None,
    *,
    version: int = 2,
) -> TableVersion:
    allow_files(catalog)
    if not catalog.namespace_exists(identifier.namespace):
        catalog.create_namespace(identifier.namespace)
    return catalog.create(
        identifier,
        table_metadata(catalog.default_location(identifier), properties, version=version),
    )


def data_file(name: str, partition: str = "a", *, rows: int = 10) -> DataFile:
    return DataFile(
        file_path=f"{FILES}/{name}.parquet",
        partition=(partition,),
        record_count=rows,
        file_size_in_bytes=100,
    )


def delete_file(name: str, target: DataFile | None = None, partition: str = "a") -> DataFile:
    return DataFile(
        content=CONTENT_POSITION_DELETES,
        file_path=f"{FILES}/{name}-deletes.parquet",
        partition=(partition,),
        record_count=1,
        file_size_in_bytes=10,
        referenced_data_file=None if target is None else target.file_path,
    )


def live_files(
    catalog: Catalog, version: TableVersion, *, branch: str = "main", content: int = CONTENT_DATA
) -> list[str]:
    """Sorted names of the live files of a branch, each as often as it is listed."""
    snapshot = version.metadata.snapshot_for_ref(branch)
    storage = catalog.storage(version.metadata.location)
    found = []
    for manifest in load_manifests(storage, snapshot) if snapshot else []:
        entries = (
            ManifestReader.of(storage, version.metadata).entries(manifest).to_manifest_entries()
        )
        files = [
            entry.data_file
            for entry in entries
            if entry.status != STATUS_DELETED and entry.data_file.content == content
        ]
        found.extend(file.file_path.rpartition("/")[2].removesuffix(".parquet") for file in files)
    return sorted(found)
