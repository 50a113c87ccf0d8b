"""Reading one Avro data file into Arrow columns.

Row-oriented files are for landing: they are read whole; compaction turns them into Parquet. Field
ids (`field-id`, `element-id`, `key-id`, `value-id`) become `PARQUET:field_id`, so that columns
resolve as those of Parquet files do. Logical types are applied here, not by the Avro decoder:
numbers stay exact, whatever their range.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa

from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.manifests.avro_decoding import AVRO_PRIMITIVES
from lakehouse.spec.manifests.avro_container import DECODING_ERRORS, inflated_blocks, read_header

_DAMAGE = (*DECODING_ERRORS, pa.ArrowException)


class AvroFile:
    """An Avro file as record batches with the columns, and the field ids, that it has.

    Args:
        path: for messages.
        data: the whole file.

    Raises:
        CorruptMetadataError: it is not valid Avro, or inflates to far more than its size.
        UnsupportedFeatureError: an Avro type that no Iceberg type stands for.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data
        self._header = read_header(data, path)
        self._columns = avro_columns(self._header.schema, path)
        self.schema = pa.schema([column.arrow() for column in self._columns])

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The records, at most `rows` at a time. Raises CorruptMetadataError."""
        for records in self._records(rows):
            try:
                arrays = [
                    column.array([record[column.name] for record in records])
                    for column in self._columns
                ]
                batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            except _DAMAGE as error:
                raise self._damaged(error) from error
            yield batch

    def _records(self, rows: int) -> Iterator[list[dict[str, Any]]]:
        try:
            schema = fastavro.parse_schema(without_logical_types(self._header.schema))
        except _DAMAGE as error:
            raise self._damaged(error) from error
        records: list[dict[str, Any]] = []
        for count, block in inflated_blocks(self._data, self._header, self._path):
            source = io.BytesIO(block)
            for _ in range(count):
                try:
                    record = fastavro.schemaless_reader(source, schema, None)
                except _DAMAGE as error:
                    raise self._damaged(error) from error
                records.append(record)  # type: ignore[arg-type]  # the schema is a record
                if len(records) == rows:
                    yield records
                    records = []
        if records:
            yield records

    def _damaged(self, error: Exception) -> CorruptMetadataError:
        return CorruptMetadataError(
            f"file {self._path} is not readable Avro: {error}", file=self._path
        )


_ID = b"PARQUET:field_id"
_PLAIN: Mapping[str, pa.DataType] = {**AVRO_PRIMITIVES, "enum": pa.string()}
_EXACT = Context(prec=80)


@dataclass(slots=True)
class AvroColumn:
    """One field, item, key or value.

    Attributes:
        name: in the file.
        field_id: Iceberg's; None when the schema has none.
        type: of the Arrow array; `stored` is how the values come out of the decoder.
        children: of a struct, list (one) or map (two).
        decode: turns a decoded value into one that Arrow takes as `stored`; None: as it is.
    """

    name: str
    field_id: int | None
    type: pa.DataType
    stored: pa.DataType | None = None
    children: list[AvroColumn] = field(default_factory=list)
    decode: Callable[[Any], Any] | None = None

    def arrow(self) -> pa.Field:
        """As an Arrow field with its id."""
        metadata = None if self.field_id is None else {_ID: str(self.field_id).encode()}
        return pa.field(self.name, self.type, metadata=metadata)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Decoded values as an Arrow array."""
        if pa.types.is_struct(self.type):
            return self._struct(values)
        if pa.types.is_map(self.type) or pa.types.is_list(self.type):
            return self._nested(values)
        if self.decode is not None:
            decode = self.decode
            values = [None if value is None else decode(value) for value in values]
        array = pa.array(values, self.stored or self.type)
        return array if self.stored is None else array.cast(self.type)

    def _struct(self, values: Sequence[Any]) -> pa.Array:
        children = [
            child.array([None if v is None else v[child.name] for v in values])
            for child in self.children
        ]
        mask = pa.array([value is None for value in values], pa.bool_())  # there may be none
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=mask)

    def _nested(self, values: Sequence[Any]) -> pa.Array:
        offsets: list[int | None] = []
        items: list[Any] = []
        for value in values:
            offsets.append(None if value is None else len(items))
            items += () if value is None else value.items() if isinstance(value, dict) else value
        ends = pa.array([*offsets, len(items)], pa.int32())
        if pa.types.is_list(self.type):
            return pa.ListArray.from_arrays(ends, self.children[0].array(items), type=self.type)
        pairs = [(item["key"], item["value"]) if isinstance(item, dict) else item for item in items]
        keys, mapped = (
            child.array([pair[n] for pair in pairs]) for n, child in enumerate(self.children)
        )
        return pa.MapArray.from_arrays(ends, keys, mapped, type=self.type)


def avro_columns(schema: Any, location: str) -> list[AvroColumn]:
    """The top-level columns of an Avro file.

    Raises:
        CorruptMetadataError: the schema is nested too deeply.
        UnsupportedFeatureError: a union of more than null and one type, a record that contains
            itself, or a type that Arrow has not.
    """
    reader = _Types(location)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise UnsupportedFeatureError(f"file {location} holds no Avro records", file=location)
    try:
        return reader.column("", None, schema).children
    except RecursionError:
        raise CorruptMetadataError(
            f"file {location} has an Avro schema that is nested too deeply", file=location
        ) from None


def without_logical_types(schema: Any) -> Any:
    """The same schema, from which a decoder makes plain numbers and bytes."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: [{**field, "type": without_logical_types(field["type"])} for field in value]
        if key == "fields"
        else without_logical_types(value)
        if key in ("type", "items", "values")
        else value
        for key, value in schema.items()
        if key != "logicalType"
    }


class _Types:
    def __init__(self, location: str) -> None:
        self._location = location
        self._named: dict[str, Any] = {}
        self._open: set[int] = set()  # records whose fields are being read

    def column(self, name: str, field_id: int | None, schema: Any) -> AvroColumn:
        if isinstance(schema, list):
            kinds = [branch for branch in schema if branch != "null"]
            if len(kinds) != 1:
                raise self._refused(name, schema)
            return self.column(name, field_id, kinds[0])
        if isinstance(schema, str):
            if schema in self._named:
                if id(self._named[schema]) in self._open:
                    raise self._refused(name, f"{schema}, which contains itself")
                return self.column(name, field_id, self._named[schema])
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, dict | list) or kind in self._named:
            return self.column(name, field_id, kind)
        if "name" in schema:
            space = schema.get("namespace", "")
            self._named |= {schema["name"]: schema, f"{space}.{schema['name']}": schema}
        if kind == "record":
            self._open.add(id(schema))
            children = [
                self.column(field["name"], field.get("field-id"), field["type"])
                for field in schema["fields"]
            ]
            self._open.remove(id(schema))
            return AvroColumn(
                name, field_id, pa.struct([child.arrow() for child in children]), children=children
            )
        if kind == "array":
            return self._array(name, field_id, schema)
        if kind == "map":
            key = AvroColumn("key", schema.get("key-id"), pa.string())
            return self._map(
                name, field_id, key, self.column("value", schema.get("value-id"), schema["values"])
            )
        return self._primitive(name, field_id, schema)

    def _array(self, name: str, field_id: int | None, schema: Any) -> AvroColumn:
        item = self.column("element", schema.get("element-id"), schema["items"])
        if schema.get("logicalType") == "map":
            return self._map(name, field_id, item.children[0], item.children[1])
        return AvroColumn(name, field_id, pa.list_(item.arrow()), children=[item])

    def _map(
        self, name: str, field_id: int | None, key: AvroColumn, value: AvroColumn
    ) -> AvroColumn:
        return AvroColumn(
            name,
            field_id,
            pa.map_(key.arrow().with_nullable(False), value.arrow()),
            children=[key, value],
        )

    def _primitive(self, name: str, field_id: int | None, schema: Any) -> AvroColumn:
        kind, logical = schema["type"], schema.get("logicalType", "")
        plain = pa.binary(int(schema["size"])) if kind == "fixed" else _PLAIN.get(kind)
        if plain is None:
            raise self._refused(name, schema)
        if logical == "decimal":
            scale = int(schema.get("scale", 0))

            def decimal(value: bytes) -> Decimal:
                return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)

            return AvroColumn(
                name, field_id, pa.decimal128(int(schema["precision"]), scale), decode=decimal
            )
        zoned = (
            "UTC"
            if not logical.startswith("local-") and schema.get("adjust-to-utc", True)
            else None
        )
        logical_type = {
            "date": pa.date32(),
            "time-millis": pa.time32("ms"),
            "time-micros": pa.time64("us"),
            "timestamp-millis": pa.timestamp("ms", zoned),
            "timestamp-micros": pa.timestamp("us", zoned),
            "timestamp-nanos": pa.timestamp("ns", zoned),
        }.get(logical.removeprefix("local-"))
        if logical_type is not None:
            return AvroColumn(name, field_id, logical_type, stored=plain)
        return AvroColumn(name, field_id, plain)

    def _refused(self, name: str, schema: Any) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"column {name!r} of {self._location} has the Avro type {schema}, which no Iceberg "
            "type stands for",
            file=self._location,
        )
