"""Which data files surely lack a key: filters of a column's values, one a data file, in Puffin.

The blob type `lakehouse-key-filter-v1` is ours; readers that do not know it pass it over. Data
files never change, so what a filter says of a file stays true in every snapshot; a file that has
no filter may hold any key. A filter knows the values of all rows of its file, deleted ones too.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    UUIDType,
)

from lakehouse.data.statistics.puffin import parse_footer
from lakehouse.errors import CorruptMetadataError, NoSuchFileError, StorageError
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.internal_values import serialized_values
from lakehouse.spec.types.sorted_numbers import distinct
from lakehouse.storage.storage_protocol import Storage

BLOB_TYPE = "lakehouse-key-filter-v1"
KEYS_AS, CHECKSUM = "keys-as", "crc32"

_LOG = logging.getLogger(__name__)
_SEED = 0
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False),
        pa.field("filter", pa.binary(), nullable=False),
    ]
)
_WHOLE = (IntegerType, LongType)
_TYPES = (*_WHOLE, StringType, BinaryType, FixedType, UUIDType, DateType)


def keys_as(kind: IcebergType) -> str | None:
    """The type as which keys of a column are hashed; None where there are no filters of it.

    An `int` is hashed as the `long` that it may become.

    >>> keys_as(IntegerType()), keys_as(StringType())
    ('long', 'string')
    """
    if not isinstance(kind, _TYPES):
        return None
    return str(LongType()) if isinstance(kind, _WHOLE) else str(kind)


def key_hashes(values: pa.Array, kind: IcebergType) -> Hashes:
    """A number for each distinct value: MurmurHash3 of its single-value serialization.

    Args:
        values: of the type, or of another one of whole numbers; nulls are left out.
        kind: one that `keys_as` knows.
    """
    target = LongType() if isinstance(kind, _WHOLE) else kind
    hash64 = mmh3.hash64
    serialized = serialized_values(values, target).to_pylist()
    return np.array([hash64(value, seed=_SEED, signed=False)[0] for value in serialized], np.uint64)


def encode_filters(filters: Mapping[str, SplitBlockFilter]) -> bytes:
    """The payload of a blob: an Arrow IPC stream of `file_path` and `filter`."""
    rows = {"file_path": list(filters), "filter": [bits.to_bytes() for bits in filters.values()]}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_table(pa.table(rows, schema=_SCHEMA))
    return bytes(sink.getvalue())


def checksum(payload: bytes) -> str:
    """What the blob's property `crc32` says of its payload."""
    return f"{zlib.crc32(payload):08x}"


@dataclass(frozen=True, slots=True)
class KeyFilters:
    """Filters of one column, by the location of the data file."""

    by_file: Mapping[str, SplitBlockFilter]

    def may_hold(self, file_path: str, hashes: Hashes) -> bool:
        """Whether a file may hold one of the keys; one without a filter may."""
        known = self.by_file.get(file_path)
        return known is None or bool(known.may_hold(hashes).any())


NO_FILTERS = KeyFilters({})


def load_key_filters(
    metadata: TableMetadata,
    snapshot_id: int | None,
    field_id: int,
    kind: IcebergType,
    storage: Storage,
    *,
    most_bytes: int | None = None,
) -> KeyFilters:
    """The newest filters of a column that a snapshot's history has; none where there are none.

    Statistics are informational (spec: Table Statistics): what cannot be read, or is damaged, is
    not used, and the log says so.

    Args:
        metadata: of the table.
        snapshot_id: whose history is looked through.
        field_id: of the column.
        kind: of the column; filters of a column that had another type are not used.
        storage: where the statistics file is.
        most_bytes: filters of more than that are not read.
    """
    wanted = keys_as(kind)
    records = {
        statistic["snapshot-id"]: statistic
        for statistic in metadata.statistics
        if any(_is_about(blob, field_id, wanted) for blob in statistic.get("blob-metadata", ()))
    }
    if not records or wanted is None:
        return NO_FILTERS
    record = next(
        (
            records[ancestor.snapshot_id]
            for ancestor in metadata.ancestors(snapshot_id)
            if ancestor.snapshot_id in records
        ),
        None,
    )
    if record is None:
        return NO_FILTERS
    location = str(record["statistics-path"])
    try:
        return _read(record, location, field_id, wanted, storage, most_bytes)
    except (StorageError, NoSuchFileError, CorruptMetadataError, pa.ArrowException) as error:
        _LOG.warning("key filters in %s are not used: %s", location, error)
        return NO_FILTERS


def _is_about(blob: Mapping[str, Any], field_id: int, wanted: str | None) -> bool:
    return (
        blob.get("type") == BLOB_TYPE
        and list(blob.get("fields", ())) == [field_id]
        and blob.get("properties", {}).get(KEYS_AS) == wanted
    )


def _read(
    record: Mapping[str, Any],
    location: str,
    field_id: int,
    wanted: str,
    storage: Storage,
    most_bytes: int | None,
) -> KeyFilters:
    size, footer = record["file-size-in-bytes"], record["file-footer-size-in-bytes"]
    blobs = parse_footer(storage.read_range(location, size - footer, footer), location)
    for blob in blobs:
        stated = {"type": blob.type, "fields": blob.fields, "properties": blob.properties}
        if not _is_about(stated, field_id, wanted):
            continue
        if most_bytes is not None and blob.length > most_bytes:
            return NO_FILTERS
        payload = storage.read_range(location, blob.offset, blob.length)
        if checksum(payload) != blob.properties.get(CHECKSUM):
            raise CorruptMetadataError(f"{location}: a key filter is damaged", location=location)
        rows = pa.ipc.open_stream(payload).read_all()
        paths, filters = rows["file_path"].to_pylist(), rows["filter"].to_pylist()
        pairs = zip(paths, filters, strict=True)
        return KeyFilters({path: SplitBlockFilter.from_bytes(data) for path, data in pairs})
    raise CorruptMetadataError(f"{location}: the key filter is not in the file", location=location)


Hashes = npt.NDArray[np.uint64]

BITS_PER_KEY = 16
"""About one key in 1,500 is taken for one of those added."""
_WORDS = 8  # of 32 bits: a block
_SALTS = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip


class SplitBlockFilter:
    """Hashes of keys, a bit in each of the eight words of one block for each of them.

    >>> import numpy as np
    >>> made = SplitBlockFilter.of(np.array([7, 123_456_789], np.uint64))
    >>> made.may_hold(np.array([123_456_789, 987_654_321], np.uint64)).tolist()
    [True, False]

    Args:
        words: blocks, as `to_bytes` writes them.
    """

    def __init__(self, words: npt.NDArray[np.uint32]) -> None:
        self._words = words.reshape(-1, _WORDS)

    @classmethod
    def of(cls, hashes: Hashes) -> SplitBlockFilter:
        """A filter of some keys, with room for them."""
        keys = distinct(hashes)
        blocks = max(1, -(-len(keys) * BITS_PER_KEY // (32 * _WORDS)))
        made = cls(np.zeros(blocks * _WORDS, np.uint32))
        at = made._blocks(keys)
        bits = _bits(keys)
        for word in range(_WORDS):
            np.bitwise_or.at(made._words[:, word], at, bits[:, word])
        return made

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitBlockFilter:
        """A filter that `to_bytes` wrote."""
        return cls(np.frombuffer(data, "<u4"))

    def to_bytes(self) -> bytes:
        """The blocks one after the other, words in little-endian order."""
        return self._words.astype("<u4").tobytes()

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the keys may have been added; those for which it is false surely were not."""
        bits = _bits(hashes)
        held: npt.NDArray[np.bool_] = ((self._words[self._blocks(hashes)] & bits) == bits).all(1)
        return held

    def _blocks(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        high = hashes >> np.uint64(32)
        return ((high * np.uint64(len(self._words))) >> np.uint64(32)).astype(np.int64)


def _bits(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """The bit of each key in each word."""
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    shifts = (low[:, None] * _SALTS) >> np.uint32(27)
    return np.uint32(1) << shifts
