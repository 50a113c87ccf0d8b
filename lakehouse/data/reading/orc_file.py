"""ORC data files as Arrow batches, with the field ids that they have.

pyarrow decodes them, a stripe at a time. Types that ORC lacks are said by attributes of its types
(Iceberg's Appendix A): `iceberg.id`, and what a number or bytes stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import orc

from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.spec.types.arrow_types import FIELD_ID_KEY

_ID, _LONG, _BINARY = b"iceberg.id", b"iceberg.long-type", b"iceberg.binary-type"
_LENGTH = b"iceberg.length"
_BEYOND = "out of range for nanosecond resolution"


class OrcFile:
    """An ORC file as record batches with the columns, and the field ids, that it has.

    Args:
        path: for messages.
        data: the whole file.

    Raises:
        CorruptMetadataError: it is not valid ORC.
        UnsupportedFeatureError: pyarrow has no Arrow type for one of ORC's.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        with self._readable():
            self._file = orc.ORCFile(pa.BufferReader(data))
            self.schema = pa.schema([_field(field) for field in self._file.schema])

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows, at most `rows` at a time.

        Raises:
            CorruptMetadataError: a stripe cannot be decoded.
            UnsupportedFeatureError: a time before 1677 or after 2262, which pyarrow, that reads
                nanoseconds, does not hold.
        """
        for stripe in range(self._file.nstripes):
            with self._readable():
                table = pa.Table.from_batches([self._file.read_stripe(stripe)]).cast(self.schema)
            yield from table.to_batches(max_chunksize=rows)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowNotImplementedError as error:
            raise UnsupportedFeatureError(
                f"file {self._path} has an ORC type that is not read: {error}", file=self._path
            ) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            if _BEYOND in str(error):
                raise UnsupportedFeatureError(
                    f"file {self._path} is ORC and has a time before 1677 or after 2262, which "
                    f"is not read: {error}",
                    file=self._path,
                ) from error
            raise CorruptMetadataError(
                f"file {self._path} is not readable ORC: {error}", file=self._path
            ) from error


def _field(field: pa.Field) -> pa.Field:
    attributes = field.metadata or {}
    metadata = {FIELD_ID_KEY: attributes[_ID]} if _ID in attributes else None
    return pa.field(field.name, _type(field.type, attributes), field.nullable, metadata)


def _type(kind: pa.DataType, attributes: dict[bytes, bytes]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if pa.types.is_int64(kind) and attributes.get(_LONG) == b"TIME":
        return pa.time64("us")
    if pa.types.is_binary(kind) and attributes.get(_BINARY) == b"UUID":
        return pa.binary(16)
    if pa.types.is_binary(kind) and attributes.get(_BINARY) == b"FIXED":
        return pa.binary(int(attributes[_LENGTH]))
    return kind
