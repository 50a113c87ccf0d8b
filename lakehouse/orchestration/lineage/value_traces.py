"""Which files hold values of a column: every byte decoded, whatever the metadata says of it.

A value is looked for as itself in the column, in the bounds of the column and in partitions by it.
As text it is looked for everywhere else, where its text is long enough to be no other's.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cached_property, reduce
from typing import Any, cast
from urllib.parse import quote_plus, unquote, unquote_plus
from uuid import UUID

import fastavro
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In
from pyiceberg.types import (
    DateType,
    IcebergType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakehouse.data.statistics.puffin import parse_footer
from lakehouse.delta_log.delta_actions import LOG_FOLDER
from lakehouse.errors import LakehouseError
from lakehouse.ingestion.source import LANDING_FILE, LANDING_LINE
from lakehouse.maintenance.reachability.location_keys import LocationKeys
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.arrow_types import type_to_arrow
from lakehouse.spec.types.internal_values import typed_array
from lakehouse.storage.storage_protocol import Storage

ANY_COLUMN = -2
"""Field id of a key whose values are looked for in the bounds of every column, and as text."""
LONG_TEXT = 6
"""So many characters make a text that is looked for beside its own column."""
_COMMON = (DateType, TimeType, TimestampType, TimestamptzType)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = {"lower_bounds": "lower bound", "upper_bounds": "upper bound"}
_SHORTENED = 16
"""Characters or bytes of a text that bounds keep, at least."""
_NUMBER = re.compile(r"(?<![\w.+-])[+-]?\d+(?:[.]\d+)?(?:[eE][+-]?\d+)?(?!\w|[.]\d)")
_SPELLED_OTHERWISE = r"\\|\d[eE][+-]?\d"
"""Texts in which a value may stand without its letters: escaped, or as a power of ten."""
_UNREAD = (b"ORC", b"PARE")


@dataclass(frozen=True)
class Key:
    """Values of a column that are looked for.

    Attributes:
        column: its name.
        field_id: of the column; 0: the table has none; `ANY_COLUMN`: texts of whichever column.
        type: of the column.
        values: internal ones.
        aliases: what else records call it.
    """

    column: str
    field_id: int
    type: IcebergType
    values: tuple[Any, ...]
    aliases: tuple[str, ...] = ()

    @cached_property
    def texts(self) -> frozenset[str]:
        """How the values are spelled, in lower case."""
        return frozenset(
            text.lower() for value in self.values for text in _spelled(value, self.type)
        )

    @cached_property
    def long_texts(self) -> list[bytes]:
        """Those of the spellings that are nobody else's; of letters beyond ASCII also as given."""
        if isinstance(self.type, _COMMON):
            return []
        given = {spelling for value in self.values for spelling in _spelled(value, self.type)}
        long = [spelling for spelling in given if len(spelling) >= LONG_TEXT]
        return sorted({cased for text in long for cased in (text.lower().encode(), _lower(text))})

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        """The values as numbers, however they are spelled."""
        kinds = (int, float, Decimal)
        values = () if isinstance(self.type, _COMMON) else self.values
        return frozenset(Decimal(str(value)) for value in values if isinstance(value, kinds))

    @cached_property
    def names(self) -> frozenset[str]:
        """What records call the column, in lower case."""
        return frozenset(alias.lower() for alias in (self.column, *self.aliases))

    def array(self) -> pa.Array:
        """The values, of the column's type."""
        return typed_array(self.values, self.type).cast(type_to_arrow(self.type))

    @cached_property
    def serialized(self) -> frozenset[bytes]:
        """As bounds hold them whole."""
        assert isinstance(self.type, PrimitiveType)  # noqa: S101 - columns of keys are
        return frozenset(to_bytes(self.type, value) for value in self.values)

    def is_shortened_to(self, bound: Any) -> bool:
        """Whether a bound is the beginning of a value, or was raised above it.

        Others have the same beginning.
        """
        texts: list[Any] = [value for value in self.values if isinstance(value, (str, bytes))]
        return any(
            isinstance(bound, type(text))
            and len(bound) >= _SHORTENED
            and text.startswith(bound[:-1])
            for text in texts
        )

    def may_be_in(self, texts: pa.Array) -> pa.Array:
        """Which texts have the letters of a value, or may spell it otherwise."""
        parts = [pc.match_substring(texts, text, ignore_case=True) for text in sorted(self.texts)]
        parts.append(pc.match_substring_regex(texts, _SPELLED_OTHERWISE))
        return pc.fill_null(reduce(pc.or_, parts), fill_value=False)

    def in_text(self, text: str | None) -> bool:
        """Whether a record's text has a value: in the field of the column, or a long one anywhere.

        Of text that is no JSON, a value counts wherever it stands by itself.
        """
        if text is None:
            return False
        if self._is_long_in(text):
            return True
        try:
            record = json.loads(text, object_pairs_hook=tuple, parse_float=Decimal)
            return self._in_record(record, mine=False)
        except (ValueError, RecursionError):  # no JSON
            lower = text.lower()
            return any(_alone(text).search(lower) for text in self.texts) or any(
                Decimal(match.group()) in self.numbers
                for match in (_NUMBER.finditer(text) if self.numbers else ())
            )

    def is_spelled(self, value: object) -> bool:
        """Whether a value of a record is one of these."""
        text = str(value).strip()
        if text.lower() in self.texts:
            return True
        try:
            return bool(self.numbers) and Decimal(text) in self.numbers
        except InvalidOperation:
            return False

    def _is_long_in(self, text: str) -> bool:
        data = _lower(text)
        return any(long in data for long in self.long_texts) or (
            not text.isascii() and any(long in text.lower().encode() for long in self.long_texts)
        )

    def _in_record(self, record: object, *, mine: bool) -> bool:
        """Of JSON with objects as tuples of pairs: fields come twice, too."""
        if isinstance(record, tuple):
            return any(
                self._is_long_in(name)
                or self._in_record(value, mine=mine or name.lower() in self.names)
                for name, value in record
            )
        if isinstance(record, list):
            return any(self._in_record(item, mine=mine) for item in record)
        return (mine and self.is_spelled(record)) or (
            isinstance(record, str) and self._is_long_in(record)
        )


def _lower(text: str) -> bytes:
    """As files are searched: letters of ASCII in lower case."""
    return text.encode(errors="surrogatepass").lower()


def _alone(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.+-]){re.escape(text)}(?!\w|[.]\d)")


def _spelled(value: Any, kind: IcebergType) -> Iterator[str]:
    """Texts of an internal value; records that are kept as JSON have bytes as base64."""
    if isinstance(value, (str, bytes)):
        data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        yield base64.b64encode(data).decode()
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
        for text in (moment.isoformat(), moment.isoformat(timespec="microseconds"), str(moment)):
            yield from (text, f"{text}Z")
    elif isinstance(value, str):
        yield from (value, quote_plus(value), value.replace('"', '""'))
        for text in (orjson.dumps(value).decode()[1:-1], json.dumps(value)[1:-1]):
            yield from (text, text.replace("/", "\\/"))
    elif isinstance(value, float) and value.is_integer():
        yield from (str(value), str(int(value)))
    else:
        yield str(value)


@dataclass(frozen=True, slots=True)
class LandedLines:
    """Lines of a landing file, as the columns of a table name them.

    Attributes:
        file: as `landing_file` has it.
        lines: numbers of them; none: all.
    """

    file: str
    lines: frozenset[int] = frozenset()

    def where(self) -> BooleanExpression:
        """Passes rows that are of them."""
        of_file = EqualTo(term=LANDING_FILE, value=self.file)
        return And(of_file, In(term=LANDING_LINE, literals=self.lines)) if self.lines else of_file

    def rows_in(self, data: bytes) -> int:
        """How many rows of a data file are of them: live or deleted."""
        names = [LANDING_FILE, LANDING_LINE]
        if data[:4] == b"PAR1":
            file = pq.ParquetFile(io.BytesIO(data))
            if not set(names) <= set(file.schema_arrow.names):
                return 0
            places = file.read(names).to_pylist()
        elif data[:4] == b"Obj\x01":
            places = cast("list[dict[str, Any]]", list(fastavro.reader(io.BytesIO(data))))
        else:
            return 0
        return sum(
            place.get(LANDING_FILE) == self.file
            and (not self.lines or place.get(LANDING_LINE) in self.lines)
            for place in places
        )


@dataclass(frozen=True, slots=True)
class Traces:
    """Looks for values in files of a table.

    Attributes:
        key: the values.
        storage: of the table.
        metadata: of the table.
        texts: columns of text whose records are read as `Key.in_text` says.
        landed: lines whose rows are looked for, too.
        clean: keys of files without a value: shortened bounds of theirs are of others.
    """

    key: Key
    storage: Storage
    metadata: TableMetadata
    texts: frozenset[str] = field(default_factory=frozenset)
    landed: LandedLines | None = None
    clean: set[str] = field(default_factory=set)

    def in_all(self, files: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
        """Keys of files that hold a value, with what `of` says; `clean` gets the others.

        Args:
            files: locations by key. Data files come first: what bounds of theirs are of is known
                by then.
        """
        for name, location in sorted(files.items(), key=_tells_of_others):
            if places := self.of(location):
                yield name, places
            else:
                self.clean.add(name)

    def of(self, location: str) -> list[str]:
        """What of a file holds a value, in words; empty: nothing does.

        Raises:
            LakehouseError: the file cannot be read.
        """
        data = self.storage.read(location)
        name = location.rsplit("/", 1)[-1]
        whole = {"bytes": data.lower(), "path": location.lower().encode()}
        places = dict.fromkeys(
            what
            for what, text in whole.items()
            if any(long_text in text for long_text in self.key.long_texts)
        )
        places |= dict.fromkeys(self._in_path(location))
        reader = self._reader(name, data)
        try:
            places |= dict.fromkeys(reader(data, location))
            rows = 0 if self.landed is None else self.landed.rows_in(data)
            places |= {f"{rows} rows of the lines": None} if rows else {}
        except LakehouseError:
            raise
        except Exception as error:
            raise LakehouseError(
                f"{location} cannot be searched: {error!r}. It may hold the value"
            ) from error
        return list(places)

    def _reader(self, name: str, data: bytes) -> Callable[[bytes, str], Iterator[str]]:
        if data[:4] == b"PAR1":
            return self._in_parquet
        if data[:4] == b"Obj\x01":
            return self._in_avro
        if data[:4] == b"PFA1":
            return self._in_puffin
        if data.startswith(_UNREAD):
            raise LakehouseError(f"{name} cannot be searched: ORC, or encrypted")
        is_json = name.endswith((".json", ".json.gz")) or data[:2] == b"\x1f\x8b"
        return self._in_json if is_json else lambda *_: iter(())

    def _in_parquet(self, data: bytes, location: str) -> Iterator[str]:
        file = pq.ParquetFile(io.BytesIO(data))
        schema = file.schema_arrow
        if location.endswith(".columnar.parquet"):
            mine = {f"lower.{self.key.field_id}", f"upper.{self.key.field_id}"}
            mine |= {f"partition.{partition}" for partition in self._partitions().values()}
        else:
            ids = {
                column.name: int((column.metadata or {}).get(b"PARQUET:field_id", b"-1"))
                for column in schema
            }
            mine = {name for name, field_id in ids.items() if field_id == self.key.field_id}
            mine |= {self.key.column}  # also of one that was dropped
        for number in range(file.num_row_groups):
            if location.endswith(".columnar.parquet"):
                yield from self._in_columnar(file, number)
            if f"/{LOG_FOLDER}/" in location:
                for add in file.read_row_group(number, ["add"])["add"].to_pylist():
                    yield from self._in_delta(add)
            for column in schema.names:
                values = file.read_row_group(number, [column])[column]
                if column in mine:
                    yield from self._equal(column, values)
                yield from self._as_text(column, values)

    def _in_columnar(self, file: pq.ParquetFile, number: int) -> Iterator[str]:
        """Shortened bounds."""
        sides = [f"lower.{self.key.field_id}", f"upper.{self.key.field_id}"]
        if set(sides) <= set(file.schema_arrow.names):
            for row in file.read_row_group(number, ["file_path", *sides]).to_pylist():
                for side in sides:
                    if self.key.is_shortened_to(row[side]) and self._is_dirty(row["file_path"]):
                        yield f"beginning of {side}"

    def _in_delta(self, add: Mapping[str, Any] | None) -> Iterator[str]:
        """An action on a file in Delta's log: its path is a URL, its bounds are JSON in JSON."""
        yield from self._in_path(unquote((add or {}).get("path") or ""))
        stats = orjson.loads((add or {}).get("stats") or "{}")
        for side in ("minValues", "maxValues"):
            bound = stats.get(side, {}).get(self.key.column)
            if self.key.is_spelled(bound):
                yield f"{side} of {self.key.column}"
            elif add and self.key.is_shortened_to(bound) and self._is_dirty(unquote(add["path"])):
                yield f"beginning of {side} of {self.key.column}"

    def _in_path(self, location: str) -> Iterator[str]:
        """Partitions that the path of a file names."""
        folders = [unquote_plus(folder).lower() for folder in location.split("/")]
        for name in self._partitions():
            if any(f"{name}={text}".lower() in folders for text in self.key.texts):
                yield f"path by {name}"

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
                texts = leaf.filter(self.key.may_be_in(leaf)).to_pylist()
                if any(map(self.key.in_text, texts)):
                    yield f"text of {column}"
                    continue
            for text in self.key.long_texts:
                ignore = not pa.types.is_binary(leaf.type)
                if pc.any(pc.match_substring(leaf, text, ignore_case=ignore)).as_py():
                    yield f"text of {column}"

    def _in_avro(self, data: bytes, _: str) -> Iterator[str]:
        reader = fastavro.reader(io.BytesIO(data))
        for record in cast("Iterator[Any]", reader):
            if "manifest_path" in record:
                yield from self._in_manifest_list(record)
            elif "data_file" in record:
                yield from self._in_entry(record["data_file"])
            else:
                yield from self._in_row(record, cast("Any", reader).writer_schema["fields"])
            yield from self._in_tree(record, "text")

    def _in_entry(self, file: Mapping[str, Any]) -> Iterator[str]:
        partitions = self._partitions()
        for name, words in _BOUNDS.items():
            for entry in file.get(name) or ():
                if self.key.field_id not in (entry["key"], ANY_COLUMN):
                    continue
                if entry["value"] in self.key.serialized:
                    yield words
                elif self._is_shortened(entry["value"]) and self._is_dirty(file["file_path"]):
                    yield f"beginning of {words}"
        for name, value in (file.get("partition") or {}).items():
            if name in partitions and _internal(value) in self.key.values:
                yield f"partition {name}"

    def _in_manifest_list(self, manifest: Mapping[str, Any]) -> Iterator[str]:
        partitions, spec = self._partitions(), self.metadata.spec(manifest["partition_spec_id"])
        for part, summary in zip(spec.fields, manifest.get("partitions") or (), strict=False):
            ends = {summary.get("lower_bound"), summary.get("upper_bound")}
            if part.name in partitions and ends & self.key.serialized:
                yield f"range of partition {part.name}"

    def _in_row(self, row: Mapping[str, Any], fields: Sequence[Any]) -> Iterator[str]:
        """A row of a data file."""
        for column_field in fields:
            name, value = column_field["name"], row[column_field["name"]]
            if column_field.get("field-id") == self.key.field_id or name == self.key.column:
                if _internal(value) in self.key.values or self.key.is_spelled(value):
                    yield f"values of {name}"
            elif name in self.texts and self.key.in_text(value):
                yield f"text of {name}"

    def _is_dirty(self, path: str) -> bool:
        """Whether a data file, named as manifests and Delta's log do, is not known to be clean."""
        place = path if ":/" in path or path[:1] == "/" else f"{self.metadata.location}/{path}"
        return LocationKeys().key(place) not in self.clean

    def _is_shortened(self, bound: bytes) -> bool:
        is_text = isinstance(self.key.type, StringType)
        return self.key.is_shortened_to(bound.decode(errors="replace") if is_text else bound)

    def _in_puffin(self, data: bytes, location: str) -> Iterator[str]:
        for blob in parse_footer(data, location):
            payload = data[blob.offset : blob.offset + blob.length]
            if blob.compression_codec == "zstd":
                payload = zstandard.ZstdDecompressor().decompress(payload, len(payload) * 1000)
            if any(text in payload.lower() for text in self.key.long_texts):
                yield f"blob {blob.type}"

    def _in_json(self, data: bytes, location: str) -> Iterator[str]:
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        if f"/{LOG_FOLDER}/" in location:
            for line in filter(None, plain.split(b"\n")):
                for kind in ("add", "remove"):
                    yield from self._in_delta(orjson.loads(line).get(kind))
        if any(text in plain.lower() for text in self.key.long_texts):
            yield "metadata"
        # a summary of partitions
        for name in self._partitions():
            for text in self.key.texts:
                if re.search(rf"{re.escape(f'{name}={text}')}(?![\w.-])".encode(), plain.lower()):
                    yield f"summary of partition {name}"

    def _in_tree(self, value: object, what: str) -> Iterator[str]:
        if isinstance(value, Mapping):
            for child in value.values():
                yield from self._in_tree(child, what)
        elif isinstance(value, (list, tuple)):
            for child in value:
                yield from self._in_tree(child, what)
        elif isinstance(value, (str, bytes)):
            plain = value.encode() if isinstance(value, str) else value
            if any(text in plain.lower() for text in self.key.long_texts):
                yield what

    def _partitions(self) -> dict[str, int]:
        """Fields of partition specs that hold the value itself."""
        return {
            field.name: field.field_id
            for spec in self.metadata.partition_specs
            for field in spec.fields
            if field.source_id == self.key.field_id and str(field.transform) == "identity"
        }


def _stored(values: pa.Array) -> pa.Array:
    """Without the extension, as of a uuid."""
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


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
    leaves, left = [], list(values.chunks)
    while left:
        array = left.pop()
        if pa.types.is_struct(array.type):
            left += array.flatten()
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            left.append(array.flatten())
        elif pa.types.is_map(array.type):
            left += [array.keys, array.items]
        else:
            leaves.append(array)
    return leaves


def _tells_of_others(file: tuple[str, str]) -> tuple[bool, str]:
    name, _ = file
    return name.endswith((".avro", ".columnar.parquet")) or f"/{LOG_FOLDER}/" in name, name
