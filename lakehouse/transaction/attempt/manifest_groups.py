"""What may share a manifest: UUIDs in partition values that everybody orders alike.

A row of the manifest list bounds the partition values of its manifest, and writers disagree on the
order of UUIDs. Where all of a manifest are of one class, its bounds mean the same to everybody.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np
import pyarrow as pa
from pyiceberg.types import UUIDType

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import FieldSummary, ManifestFile
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.physical_types import partition_types
from lakehouse.spec.types.uuid_order import holds_uuids, order_classes


def split_by_order(entries: Entries) -> Iterator[Entries]:
    """The entries, in order, apart where UUIDs of their partitions are of different classes."""
    names = [f"partition.{field.field_id}" for field in entries.spec.fields]
    uuids = [name for name in names if holds_uuids(entries.table[name])]
    classes = np.zeros(len(entries), np.int64)
    for name in uuids:
        classes = classes * 4 + order_classes(entries.table[name])
    for one in np.unique(classes):
        alike = classes == one
        yield entries if alike.all() else entries.filter(pa.array(alike))


class Grouping:
    """Which manifests of a table may be merged: those of one content, spec and order of UUIDs.

    Args:
        metadata: knows the specs and their types.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        types = types_of(metadata)
        self._uuids: dict[int, list[bool]] = {}
        for spec_id, spec in metadata.specs().items():
            kinds = partition_types(spec, types)
            self._uuids[spec_id] = [
                isinstance(kinds[field.field_id], UUIDType) for field in spec.fields
            ]

    def group(self, manifest: ManifestFile) -> tuple[int, int, Hashable]:
        """Content, spec id and class of each UUID field; None where UUIDs are mixed or unknown.

        Raises:
            CorruptMetadataError: the table has no such partition spec.
        """
        uuids = self._uuids.get(manifest.partition_spec_id)
        if uuids is None:
            path = manifest.manifest_path
            raise CorruptMetadataError(
                f"{path} has the partition spec {manifest.partition_spec_id}, which the table does "
                "not know",
                location=path,
            )
        summaries = manifest.partitions or ()
        classes: Hashable = ()
        if any(uuids):
            known = zip(summaries, uuids, strict=False)
            classes = tuple(_class(summary) for summary, is_uuid in known if is_uuid) or None
        return manifest.content, manifest.partition_spec_id, classes


def _class(summary: FieldSummary) -> int | None:
    bounds = [one for one in (summary.lower_bound, summary.upper_bound) if one is not None]
    classes = {int(one) for one in order_classes(pa.array(bounds, pa.binary(16)))}
    return classes.pop() if len(classes) == 1 else None
