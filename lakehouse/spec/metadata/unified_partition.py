"""Partition values over all specs of a table (spec: Partition Statistics File)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField, StructType

from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS, PARTITION, PARTITION_FIELDS
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.spec.types.internal_values import typed_array

Partition = tuple[int, tuple[Any, ...]]
"""A spec's id and one internal value for each of its fields."""


@dataclass(frozen=True, slots=True)
class UnifiedPartition:
    """The partition struct over all specs: one field for each partition field id, in their order.

    Each is named as in the newest spec that has it. What version 1 keeps as `void`, because fields
    are never taken out there, has the type that it had.

    Attributes:
        fields: name and type by field id; the type is None where the source column is in no schema
            and the transform keeps its type.
        positions: by spec id, where each field lies in the spec's partition tuples.
    """

    fields: Mapping[int, tuple[str, IcebergType | None]]
    positions: Mapping[int, Mapping[int, int]]

    @classmethod
    def of(cls, metadata: TableMetadata) -> UnifiedPartition:
        """For every spec that the metadata keeps."""
        types = types_of(metadata)
        newest_first = sorted(metadata.partition_specs, key=lambda spec: -spec.spec_id)
        names: dict[int, str] = {}
        kinds: dict[int, IcebergType | None] = {}
        void: set[int] = set()
        for spec in newest_first:
            results = partition_types(spec, types)
            for field in spec.fields:
                names.setdefault(field.field_id, field.name)
                if field.field_id not in kinds or field.field_id in void:
                    kinds[field.field_id] = results[field.field_id]
                    is_void = isinstance(field.transform, VoidTransform)
                    void = void | {field.field_id} if is_void else void - {field.field_id}
        positions = {
            spec.spec_id: {field.field_id: at for at, field in enumerate(spec.fields)}
            for spec in newest_first
        }
        return cls({name: (names[name], kinds[name]) for name in sorted(names)}, positions)

    def column(self) -> NestedField:
        """The metadata column `_partition`: what the partitions of data files are, by field id.

        Fields whose type nobody knows any more are left out.
        """
        fields = [
            NestedField(PARTITION_FIELDS + field_id, name, kind, required=False)
            for field_id, (name, kind) in self.fields.items()
            if kind is not None
        ]
        return PARTITION.model_copy(update={"field_type": StructType(*fields)})

    def values(self, partition: Partition) -> tuple[Any, ...]:
        """One value a field of the struct; None where the spec lacks the field."""
        positions, values = self.positions[partition[0]], partition[1]
        return tuple(
            None if (at := positions.get(field)) is None else values[at] for field in self.fields
        )

    def array(self, partitions: Sequence[Partition]) -> pa.StructArray:
        """Partitions as structs."""
        if not self.fields:
            return pa.array([{}] * len(partitions), pa.struct([]))
        rows = [self.values(partition) for partition in partitions]
        arrays = [
            typed_array([row[at] for row in rows], kind)
            for at, (_, kind) in enumerate(self.fields.values())
        ]
        return pa.StructArray.from_arrays(arrays, names=[name for name, _ in self.fields.values()])


def metadata_columns(
    metadata: TableMetadata, select: Sequence[str] | None
) -> Mapping[str, NestedField]:
    """Columns that a scan may select beside the table's own, by name (spec: Reserved Field IDs).

    `_partition`, whose type is the table's, is made only where `select` names it.
    """
    if select is None or PARTITION.name not in select:
        return METADATA_COLUMNS
    return {**METADATA_COLUMNS, PARTITION.name: UnifiedPartition.of(metadata).column()}
