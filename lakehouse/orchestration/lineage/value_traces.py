"""Which files hold values of a column: every byte decoded, whatever the metadata says of it.

A value is looked for as itself in the column, in the bounds of the column and in partitions by it.
As text it is looked for everywhere else, where its text is long enough to be no other's.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, cast
from uuid import UUID

import fastavro
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    DateType,
    IcebergType,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakehouse.data.statistics.puffin import parse_footer
from lakehouse.errors import LakehouseError
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.arrow_types import type_to_arrow
from lakehouse.spec.types.internal_values import typed_array
from lakehouse.storage.storage_protocol import Storage

LONG_TEXT = 6
"""So many characters make a text that is looked for beside its own column."""
_COMMON = (DateType, TimeType, TimestampType, TimestamptzType)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = {"lower_bounds": "lower bound", "upper_bounds": "upper bound"}
_SHORTENED = 16
"""Characters or bytes of a text that bounds keep."""


@dataclass(frozen=True, slots=True)
class Key:
    """Values of a column that are looked for.

    Attributes:
        column: its name.
        field_id: of the column; 0: the table has none.
        type: of the column.
        values: internal ones.
    """

    column: str
    field_id: int
    type: IcebergType
    values: tuple[Any, ...]

    @property
    def texts(self) -> frozenset[str]:
        """How the values are spelled, in lower case."""
        return frozenset(
            text.lower() for value in self.values for text in _spelled(value, self.type)
        )

    @property
    def long_texts(self) -> list[bytes]:
        """Those of the spellings that are nobody else's."""
        if isinstance(self.type, _COMMON):
            return []
        return [text.encode() for text in sorted(self.texts) if len(text) >= LONG_TEXT]

    def array(self) -> pa.Array:
        """The values, of the column's type."""
        return typed_array(self.values, self.type).cast(type_to_arrow(self.type))

    def serialized(self) -> dict[str, set[bytes]]:
        """As bounds hold them: whole or shortened."""
        assert isinstance(self.type, PrimitiveType)  # noqa: S101 - columns of keys are
        found = set()
        for value in self.values:
            if isinstance(value, str):
                found |= {value.encode(), value[:_SHORTENED].encode()}
            elif isinstance(value, bytes):
                found |= {value, value[:_SHORTENED]}
            else:
                found.add(to_bytes(self.type, value))
        return dict.fromkeys(_BOUNDS, found)

    def may_be_in(self, texts: pa.Array) -> pa.Array:
        """Which texts have the letters of a value."""
        parts = [pc.match_substring(texts, one, ignore_case=True) for one in sorted(self.texts)]
        return pc.fill_null(reduce(pc.or_, parts), fill_value=False)

    def in_text(self, text: str | None) -> bool:
        """Whether a record's text has a value: in the field of the column, or a long one anywhere.

        Of text that is no JSON, a value counts wherever it stands by itself.
        """
        if text is None:
            return False
        lower = text.lower()
        if any(long.decode() in lower for long in self.long_texts):
            return True
        if not any(one in lower for one in self.texts):
            return False
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            return any(_alone(one).search(lower) for one in self.texts)
        return self._in_record(record, self.column.lower())

    def _in_record(self, record: object, name: str) -> bool:
        if isinstance(record, dict):
            return any(
                (str(key).lower() == name and str(value).lower() in self.texts)
                or self._in_record(value, name)
                for key, value in record.items()
            )
        return isinstance(record, list) and any(self._in_record(one, name) for one in record)


def _alone(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.+-]){re.escape(text)}(?!\w|[.]\d)")


def _spelled(value: Any, kind: IcebergType) -> Iterator[str]:
    """Texts of an internal value."""
    if isinstance(value, bytes):
        yield value.hex()
        if value.isascii():
            yield value.decode()
    elif isinstance(value, UUID):
        yield from (str(value), value.hex)
    elif isinstance(value, Decimal):
        yield from {str(value), f"{value.normalize():f}"}
    elif isinstance(kind, DateType):
        yield str((_EPOCH + timedelta(days=value)).date())
    elif isinstance(kind, (TimestampType, TimestamptzType)):
        moment = (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
        yield from (moment.isoformat(), str(moment))
    elif isinstance(value, str):
        yield value
        yield from {orjson.dumps(value).decode()[1:-1], _escaped(value)} - {value}
    elif isinstance(value, float) and value.is_integer():
        yield from (str(value), str(int(value)))
    else:
        yield str(value)


def _escaped(value: str) -> str:
    """As JSON in ASCII has it."""
    return "".join(one if ord(one) < 128 else f"\\u{ord(one):04x}" for one in value)


@dataclass(frozen=True, slots=True)
class Traces:
    """Looks for values in files of a table.

    Attributes:
        key: the values.
        storage: of the table.
        metadata: of the table.
        texts: columns of text whose records are read as `Key.in_text` says.
    """

    key: Key
    storage: Storage
    metadata: TableMetadata
    texts: frozenset[str] = field(default_factory=frozenset)

    def of(self, location: str) -> list[str]:
        """What of a file holds a value, in words; empty: nothing does.

        Raises:
            LakehouseError: the file cannot be read.
        """
        data = self.storage.read(location)
        name = location.rsplit("/", 1)[-1]
        whole = {"bytes": data.lower(), "path": location.lower().encode()}
        found = dict.fromkeys(
            what for what, text in whole.items() if any(one in text for one in self.key.long_texts)
        )
        reader = self._reader(name, data)
        try:
            found |= dict.fromkeys(reader(data, location))
        except LakehouseError:
            raise
        except Exception as error:
            raise LakehouseError(
                f"{location} cannot be searched: {error!r}. It may hold the value"
            ) from error
        return list(found)

    def _reader(self, name: str, data: bytes) -> Callable[[bytes, str], Iterator[str]]:
        if data[:4] == b"PAR1":
            return self._in_parquet
        if data[:4] == b"Obj\x01":
            return self._in_avro
        if data[:4] == b"PFA1":
            return self._in_puffin
        return self._in_json if name.endswith((".json", ".json.gz")) else _in_nothing

    def _in_parquet(self, data: bytes, location: str) -> Iterator[str]:
        file = pq.ParquetFile(io.BytesIO(data))
        schema = file.schema_arrow
        if location.endswith(".columnar.parquet"):
            mine = {f"lower.{self.key.field_id}", f"upper.{self.key.field_id}"}
            mine |= {f"partition.{one}" for one in self._partitions().values()}
        else:
            ids = {
                one.name: int((one.metadata or {}).get(b"PARQUET:field_id", b"-1"))
                for one in schema
            }
            mine = {name for name, one in ids.items() if one == self.key.field_id}
            if not any(one >= 0 for one in ids.values()):
                mine = {self.key.column}
        for number in range(file.num_row_groups):
            for column in schema.names:
                values = file.read_row_group(number, [column])[column]
                if column in mine:
                    yield from self._equal(column, values)
                yield from self._as_text(column, values)

    def _equal(self, column: str, values: pa.ChunkedArray) -> Iterator[str]:
        wanted = _stored(self.key.array())
        values = (
            pa.chunked_array([_stored(chunk) for chunk in values.chunks], wanted.type)
            if (isinstance(values.type, pa.BaseExtensionType))
            else values
        )
        try:
            same = pc.is_in(values.cast(wanted.type), wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            same = pc.is_in(values, pa.array(list(self.key.values), values.type))
        count = pc.sum(same).as_py() or 0
        if count:
            yield f"{count} values of {column}"

    def _as_text(self, column: str, values: pa.ChunkedArray) -> Iterator[str]:
        for leaf in _leaves(values):
            if pa.types.is_dictionary(leaf.type):
                leaf = leaf.cast(leaf.type.value_type)
            if not (pa.types.is_string(leaf.type) or pa.types.is_large_string(leaf.type)):
                if not (pa.types.is_binary(leaf.type) or pa.types.is_large_binary(leaf.type)):
                    continue
            elif column in self.texts:
                some = leaf.filter(self.key.may_be_in(leaf)).to_pylist()
                if any(map(self.key.in_text, some)):
                    yield f"text of {column}"
                    continue
            for text in self.key.long_texts:
                ignore = not pa.types.is_binary(leaf.type)
                if pc.any(pc.match_substring(leaf, text, ignore_case=ignore)).as_py():
                    yield f"text of {column}"

    def _in_avro(self, data: bytes, _: str) -> Iterator[str]:
        reader = cast("Iterator[Any]", fastavro.reader(io.BytesIO(data)))
        bounds, partitions = self.key.serialized(), self._partitions()
        for record in reader:
            file = record.get("data_file", record)
            for name, words in _BOUNDS.items():
                for one in file.get(name) or ():
                    if one["key"] == self.key.field_id and one["value"] in bounds[name]:
                        yield words
            for name, value in (file.get("partition") or {}).items():
                if name in partitions and _internal(value) in self.key.values:
                    yield f"partition {name}"
            specs = record.get("partition_spec_id")
            if specs is not None:
                spec = self.metadata.spec(specs)
                for one, summary in zip(spec.fields, record.get("partitions") or (), strict=False):
                    ends = {summary.get("lower_bound"), summary.get("upper_bound")}
                    if one.name in partitions and ends & bounds["lower_bounds"]:
                        yield f"range of partition {one.name}"
            yield from self._in_tree(record, "manifest")

    def _in_puffin(self, data: bytes, location: str) -> Iterator[str]:
        for blob in parse_footer(data, location):
            payload = data[blob.offset : blob.offset + blob.length]
            if blob.compression_codec == "zstd":
                payload = zstandard.ZstdDecompressor().decompress(payload, len(payload) * 1000)
            if any(text in payload.lower() for text in self.key.long_texts):
                yield f"blob {blob.type}"

    def _in_json(self, data: bytes, _: str) -> Iterator[str]:
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        if any(text in plain.lower() for text in self.key.long_texts):
            yield "metadata"
        # a summary of partitions
        for name in self._partitions():
            for text in self.key.texts:
                if f"{name}={text}".encode() in plain.lower():
                    yield f"summary of partition {name}"

    def _in_tree(self, value: object, what: str) -> Iterator[str]:
        if isinstance(value, Mapping):
            for one in value.values():
                yield from self._in_tree(one, what)
        elif isinstance(value, (list, tuple)):
            for one in value:
                yield from self._in_tree(one, what)
        elif isinstance(value, (str, bytes)):
            plain = value.encode() if isinstance(value, str) else value
            if any(text in plain.lower() for text in self.key.long_texts):
                yield what

    def _partitions(self) -> dict[str, int]:
        """Fields of partition specs that hold the value itself."""
        return {
            one.name: one.field_id
            for spec in self.metadata.partition_specs
            for one in spec.fields
            if one.source_id == self.key.field_id and str(one.transform) == "identity"
        }


def _stored(values: pa.Array) -> pa.Array:
    """Without the extension, as of a uuid."""
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


def _in_nothing(_: bytes, __: str) -> Iterator[str]:
    return iter(())


def _internal(value: Any) -> Any:
    """A value of Avro as an internal one."""
    if hasattr(value, "toordinal") and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH.toordinal()
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    return value


def _leaves(values: pa.ChunkedArray) -> Sequence[pa.Array]:
    """Primitive arrays of a column, nested ones too."""
    found, left = [], list(values.chunks)
    while left:
        one = left.pop()
        if pa.types.is_struct(one.type):
            left += one.flatten()
        elif pa.types.is_list(one.type) or pa.types.is_large_list(one.type):
            left.append(one.flatten())
        elif pa.types.is_map(one.type):
            left += [one.keys, one.items]
        else:
            found.append(one)
    return found
