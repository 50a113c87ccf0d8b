"""Data files, delete files and manifest entries as values (spec: Manifests, Data File Fields)."""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from lakehouse.errors import InvalidInputError

CONTENT_DATA = 0
CONTENT_POSITION_DELETES = 1
CONTENT_EQUALITY_DELETES = 2

PATH_FIELD_ID = 2147483546
"""Field id of `file_path` in position delete files (spec: Reserved Field IDs)."""

FILE_FIELD_ID = 2147483646
"""Field id of `_file`: DuckDB keeps the bounds of `file_path` under it in delete files."""

DATA_FILE_ENDINGS = (b".parquet", b".avro", b".orc")
"""How the name of a data file ends, unless a writer cut it."""

STATUS_EXISTING = 0
STATUS_ADDED = 1
STATUS_DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data or delete file, with the field names of the spec.

    Attributes:
        content: `CONTENT_DATA`, `CONTENT_POSITION_DELETES` (also deletion vectors) or
            `CONTENT_EQUALITY_DELETES`.
        file_path: full location.
        file_format: lower-case name: `parquet`, `avro`, `orc` or `puffin`.
        partition: one value a field of the partition spec, in its order, in Iceberg's internal
            representation (date = days, timestamp = microseconds, decimal = Decimal, uuid = UUID,
            fixed and binary = bytes).
        spec_id: partition spec that `partition` belongs to.
        record_count: rows, or the cardinality of a deletion vector.
        file_size_in_bytes: size of the whole file.
        column_sizes: field id -> compressed bytes.
        value_counts: field id -> values, nulls and NaN included.
        null_value_counts: field id -> nulls.
        nan_value_counts: field id -> NaN values.
        lower_bounds: field id -> single-value serialization (spec, Appendix D).
        upper_bounds: field id -> single-value serialization.
        key_metadata: encryption key metadata.
        split_offsets: ascending offsets at which a reader can start, such as Parquet row groups.
        equality_ids: field ids an equality delete file compares.
        sort_order_id: sort order the rows follow; None or 0 is unsorted.
        first_row_id: `_row_id` of the first row; None inherits from the manifest.
        referenced_data_file: the one data file that all deletes of this file refer to.
        content_offset: where a deletion vector starts in its Puffin file.
        content_size_in_bytes: length of that deletion vector.
        data_sequence_number: of its entry, where it was read from a manifest: no manifest with a
            lower number lists it. No part of the file: equal files may differ in it.
    """

    content: int = CONTENT_DATA
    file_path: str
    file_format: str = "parquet"
    partition: tuple[Any, ...] = ()
    spec_id: int = 0
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    data_sequence_number: int | None = field(default=None, compare=False)

    @property
    def is_deletion_vector(self) -> bool:
        """True for a v3 deletion vector stored as a Puffin blob."""
        return self.content == CONTENT_POSITION_DELETES and self.file_format == "puffin"

    @property
    def named_file(self) -> str | None:
        """The one data file that all position deletes of this file are about, if there is one.

        Known by reference, or by equal bounds of their paths: unless a writer cut these, which
        leaves no file name with an extension.
        """
        if self.content != CONTENT_POSITION_DELETES:
            return None
        if self.referenced_data_file:
            return self.referenced_data_file
        for field_id in (PATH_FIELD_ID, FILE_FIELD_ID):
            path = self.lower_bounds.get(field_id)
            if (
                path is not None
                and path == self.upper_bounds.get(field_id)
                and path.endswith(DATA_FILE_ENDINGS)
            ):
                return path.decode("utf-8", "replace")
        return None

    def may_name(self, path: str) -> bool:
        """Whether its position deletes can be about a data file.

        Bounds of several paths exclude none: some writers' do not cover what the file names, and
        the rows that it deletes would be back.
        """
        return self.named_file in (None, path)

    @property
    def partition_key(self) -> tuple[Any, ...]:
        """`partition_key` of the file."""
        return partition_key(self.spec_id, self.partition)

    def to_record(self) -> dict[str, Any]:
        """Plain JSON-able values; what a Spark worker ships to the driver.

        Defaults are left out.
        """
        record: dict[str, Any] = {}
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if value is None or (isinstance(value, Mapping) and not value):
                continue
            record[spec.name] = _encode(value)
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> DataFile:
        """Inverse of `to_record`, also after a trip through JSON.

        Raises:
            InvalidInputError: the record has unknown or missing fields.
        """
        values = {name: _decode(value) for name, value in record.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise InvalidInputError(
                f"not a data file record: {error}", fields=sorted(record)
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file in a manifest and what happened to it (spec: Manifest Entry Fields).

    Attributes:
        status: `STATUS_EXISTING`, `STATUS_ADDED` or `STATUS_DELETED`.
        snapshot_id: snapshot that added the file, or deleted it; None inherits.
        sequence_number: data sequence number; None inherits when status is added.
        file_sequence_number: sequence number of the snapshot that added the file; None inherits
            when added.
        data_file: the file.
    """

    status: int
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None
    data_file: DataFile


def partition_key(spec_id: int, partition: Iterable[Any]) -> tuple[Any, ...]:
    """Spec and partition, equal for equal partitions (spec: Scan Planning, note 3).

    Floats are compared by their bits, NaN normalised.
    """
    return (spec_id, *(_bits(value) if isinstance(value, float) else value for value in partition))


def _bits(value: float) -> tuple[str, bytes]:
    return ("float", struct.pack("<d", float("nan") if value != value else value))


def _encode(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping):
        return {"map": [[key, _encode(item)] for key, item in value.items()]}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    (kind, payload), *rest = value.items()
    if rest or kind not in _DECODERS:
        raise InvalidInputError(f"not a value of a data file record: {sorted(value)}")
    return _DECODERS[kind](payload)


_DECODERS: dict[str, Any] = {
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "decimal": Decimal,
    "uuid": UUID,
    "float": float.fromhex,
    "map": lambda items: {key: _decode(item) for key, item in items},
}
