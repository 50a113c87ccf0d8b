"""Avro manifests to entries: in bulk where that is possible, entry by entry where it is not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec

from lakehouse.scan.manifests.bulk_avro import BulkRefusedError, bulk_decode
from lakehouse.scan.manifests.partition_prefix import Keep
from lakehouse.spec.manifests.manifest import decode_entries
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.storage.storage_protocol import Storage


@dataclass(frozen=True, slots=True)
class DecodedManifest:
    """Entries as they stand in a manifest, nothing inherited.

    Attributes:
        entries: all of them, deleted ones too.
        kind: `bulk` or `slow`.
        bytes_read: size of the manifest.
        refused: why bulk decoding was refused, None when it was not.
        skipped: live entries that `keep` left out.
    """

    entries: Entries
    kind: str
    bytes_read: int
    refused: str | None = None
    skipped: int = 0


def decode_avro(
    storage: Storage,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    *,
    columns: Collection[str] | None = None,
    keep: Keep | None = None,
) -> DecodedManifest:
    """Decode the manifest at `location`; `columns` are the entry columns needed (None: all).

    Entries that `keep` does not choose may be left out.

    Raises:
        CorruptMetadataError: it is damaged.
        NoSuchFileError: it is missing.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    data = storage.read(location)
    try:
        entries, skipped = bulk_decode(location, data, spec, types, wanted=columns, keep=keep)
    except BulkRefusedError as error:
        return DecodedManifest(
            decode_entries(data, location, spec, types), "slow", len(data), str(error)
        )
    return DecodedManifest(entries, "bulk", len(data), skipped=skipped)
