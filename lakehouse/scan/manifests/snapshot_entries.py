"""Reading the manifests of a snapshot as entries."""

from __future__ import annotations

from collections.abc import Collection

from lakehouse.scan.manifests.manifest_cache import ManifestCache
from lakehouse.scan.manifests.manifest_list_cache import LISTS, Listed
from lakehouse.spec.manifests.inheritance import inherit
from lakehouse.spec.manifests.manifest import decode_entries, decode_manifest, manifest_spec_id
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage


def load_manifests(storage: Storage, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot, data and delete, in the order of its manifest list.

    Raises:
        CorruptMetadataError: the manifest list is damaged.
        NoSuchFileError: it is missing.
    """
    return list(listed_manifests(storage, snapshot))


def listed_manifests(storage: Storage, snapshot: Snapshot) -> Listed:
    """`load_manifests`, with what earlier plans worked out of the same list."""
    if snapshot.manifest_list:
        return LISTS.listed(storage.read(snapshot.manifest_list), snapshot.manifest_list)
    return Listed(_v1_manifest(storage, location, snapshot) for location in snapshot.manifests)


def load_entries(
    storage: Storage,
    manifest: ManifestFile,
    metadata: TableMetadata,
    *,
    wanted: Collection[str] | None = None,
) -> Entries:
    """All entries of a manifest, deleted ones too, inheritance applied.

    Reads the Avro manifest, the truth.

    `wanted` are the columns that are needed, None every column.

    Raises:
        CorruptMetadataError: the manifest is damaged, or its partition spec is not in the table.
        NoSuchFileError: it is missing.
    """
    data = storage.read(manifest.manifest_path)
    return decode_manifest(
        data, manifest, metadata.spec(manifest.partition_spec_id), types_of(metadata), wanted=wanted
    )


def cached_entries(
    storage: Storage, manifest: ManifestFile, metadata: TableMetadata, cache: ManifestCache
) -> Entries:
    """Like `load_entries`, from a cache of decoded manifests, for repeated planning.

    Raises:
        CorruptMetadataError, NoSuchFileError: see there.
    """
    types = types_of(metadata)
    spec = metadata.spec(manifest.partition_spec_id)
    key = cache.key(storage, manifest, types)
    entries = cache.get(key, None)
    if entries is None:
        entries = cache.load(key, manifest, spec, types)
    if entries is None:
        entries = decode_entries(
            storage.read(manifest.manifest_path), manifest.manifest_path, spec, types
        )
        cache.put(key, None, entries)
    return inherit(entries, manifest)


def _v1_manifest(storage: Storage, location: str, snapshot: Snapshot) -> ManifestFile:
    """A manifest that a v1 snapshot names directly: nothing is known about its content."""
    data = storage.read(location)
    return ManifestFile(
        manifest_path=location,
        manifest_length=len(data),
        partition_spec_id=manifest_spec_id(data, location),
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=snapshot.snapshot_id,
    )
