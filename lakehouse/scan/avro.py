"""Avro manifests to entries: in bulk where that is possible, entry by entry where it is not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec

from lakehouse.scan.bulk_avro import BulkRefusedError, bulk_decode
from lakehouse.spec.entries import Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest import decode_entries
from lakehouse.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class DecodedManifest:
    """Entries as they stand in a manifest, nothing inherited.

    Attributes:
        entries: all of them, deleted ones too.
        kind: `bulk` or `slow`.
        bytes_read: size of the manifest.
        refused: why bulk decoding was refused, None when it was not.
    """

    entries: Entries
    kind: str
    bytes_read: int
    refused: str | None = None


def decode_avro(
    storage: Storage, location: str, spec: PartitionSpec, types: FieldTypes, *, columns: Collection[str] | None = None
) -> DecodedManifest:
    """Decode the manifest at `location`; `columns` are the entry columns needed, None all of them (more may come).

    Raises:
        CorruptMetadataError: it is damaged.
        NoSuchFileError: it is missing.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    data = storage.read(location)
    try:
        entries = bulk_decode(location, data, spec, types, wanted=columns)
    except BulkRefusedError as error:
        return DecodedManifest(decode_entries(data, location, spec, types), "slow", len(data), str(error))
    return DecodedManifest(entries, "bulk", len(data))
