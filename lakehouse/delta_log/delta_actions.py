"""Iceberg's values as actions of Delta's transaction log (Delta protocol: Actions). Pure.

Names resolve columns, as no column mapping is declared: delta-rs and DuckDB look for the
physical name of a column even where mapping by id is declared. So a name has to mean one field in
every schema of the table (`check_expressible`). For Delta tables are unpartitioned, as its
partitions are columns; the bounds of the files prune instead.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import TableMetadata

Action = dict[str, Any]

LOG_FOLDER = "_delta_log"
VECTOR_FOLDER = "_delta_vectors"
VECTOR_FILE_VERSION = b"\x01"
ENGINE = "lakehouse"
WRITER_FEATURE = "lakehouse-iceberg"
"""A writer feature that no other engine has: each reads the table, and none writes to it."""

_SIMPLE: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "integer",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    BinaryType: "binary",
}
_BOUNDED = (
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
    DecimalType,
)
"""Types for which Delta's statistics have a least and a greatest value."""
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - local to the column's own time zone
_LAST_DAY = (dt.date.max - dt.date(1970, 1, 1)).days
_FIRST_DAY = (dt.date.min - dt.date(1970, 1, 1)).days
_PYTHON_BASE85 = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FROM_Z85 = bytes.maketrans(_Z85, _PYTHON_BASE85)
_ID_CHARACTERS = 20
_TO_Z85 = bytes.maketrans(_PYTHON_BASE85, _Z85)
_OPERATIONS = {"append": "WRITE", "overwrite": "MERGE", "delete": "DELETE", "replace": "OPTIMIZE"}


# Schemas


def check_expressible(metadata: TableMetadata, table: str) -> None:
    """Whether Delta can show the table.

    Raises:
        UnsupportedFeatureError: a type that Delta lacks; a default that old files are read with; a
            field that was renamed, or a name that meant another field once.
    """
    names: dict[int, str] = {}
    fields: dict[str, tuple[int, str]] = {}
    for schema in metadata.schemas:
        for path, field in _paths(schema.fields):
            before = names.setdefault(field.field_id, path)
            if before != path:
                raise _refused(
                    table, f"column {before} was renamed to {path}, and files of both names exist"
                )
            other, name = fields.setdefault(path.lower(), (field.field_id, path))
            if other != field.field_id:
                raise _refused(
                    table,
                    f"column {path} was dropped and added again: in older files the name means "
                    "what was dropped"
                    if name == path
                    else f"columns {name} and {path} differ in case alone",
                )
    for path, field in _paths(metadata.schema().fields):
        if re.fullmatch(r"[^\W\d]\w*", field.name) is None:
            raise _refused(
                table,
                f"column {path} is written under another name into Parquet files by writers of "
                "Iceberg, which keep letters, digits and _ alone",
            )
        _delta_type(field.field_type, f"{table}: column {path}")
        if field.initial_default is not None:
            raise _refused(
                table,
                f"column {path} has the default {field.initial_default!r} for rows that are older "
                "than it",
            )


def _refused(table: str, reason: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Table {table} cannot be shown as Delta: {reason}, and readers of Delta find columns by "
        "their names alone. Remove the property write.delta-log first, or leave the column.",
        table=table,
    )


def _paths(fields: Sequence[NestedField], prefix: str = "") -> Iterator[tuple[str, NestedField]]:
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path, field
        yield from _paths(_children(field.field_type), f"{path}.")


def _children(kind: IcebergType) -> Sequence[NestedField]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    if isinstance(kind, MapType):
        return (kind.key_field, kind.value_field)
    return ()


def delta_schema(schema: Schema, table: str) -> Action:
    """The schema as Delta's JSON (Delta protocol: Schema Serialization Format).

    Raises UnsupportedFeatureError: Delta lacks a type.
    """
    return _struct(schema.fields, f"Table {table}: column ")


def _struct(fields: Sequence[NestedField], prefix: str) -> Action:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _delta_type(field.field_type, f"{prefix}{field.name}"),
                "nullable": not field.required,
                "metadata": {"comment": field.doc} if field.doc else {},
            }
            for field in fields
        ],
    }


def _delta_type(kind: IcebergType, where: str) -> str | Action:
    if isinstance(kind, StructType):
        return _struct(kind.fields, f"{where}.")
    if isinstance(kind, ListType):
        return {
            "type": "array",
            "elementType": _delta_type(kind.element_type, f"{where}.element"),
            "containsNull": not kind.element_required,
        }
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type, f"{where}.key"),
            "valueType": _delta_type(kind.value_type, f"{where}.value"),
            "valueContainsNull": not kind.value_required,
        }
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    name = _SIMPLE.get(type(kind))
    if name is None:
        raise UnsupportedFeatureError(
            f"{where} has the type {kind}, which Delta lacks. Remove the property write.delta-log "
            "first, or leave the column out."
        )
    return name


@dataclass(frozen=True, slots=True)
class Definition:
    """What Delta says of a table beside its files: the actions `protocol` and `metaData`.

    Attributes:
        actions: both.
        digest: equal for equal ones.
    """

    actions: tuple[Action, Action]
    digest: str

    @classmethod
    def of(cls, schema: Schema, table_uuid: str, table: str, *, vectors: bool) -> Definition:
        """The definition of a table with a schema.

        Args:
            schema: the schema.
            table_uuid: the table's.
            table: its name, for messages.
            vectors: whether rows of files are deleted.
        """
        text = orjson.dumps(delta_schema(schema, table)).decode()
        features = ["deletionVectors"] * vectors + ["timestampNtz"] * ('"timestamp_ntz"' in text)
        protocol: Action = {"minReaderVersion": 3 if features else 1, "minWriterVersion": 7}
        if features:
            protocol["readerFeatures"] = features
        protocol["writerFeatures"] = [*features, WRITER_FEATURE]
        described: Action = {
            "id": table_uuid,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": text,
            "partitionColumns": [],
            "configuration": {},
        }
        actions: tuple[Action, Action] = ({"protocol": protocol}, {"metaData": described})
        return cls(actions, hashlib.sha256(orjson.dumps(actions)).hexdigest()[:16])


# Files


def relative_path(location: str, root: str) -> str:
    """A file's path as Delta writes it: below the table's folder if it is there, and escaped."""
    below = location.removeprefix(root.rstrip("/") + "/")
    return quote(below, safe="/=:@-._~,!$&'()*+;")


def stored_at(vector: Action, root: str) -> str:
    """The file that a descriptor of `stored_vector` names."""
    text = vector["pathOrInlineDv"][-_ID_CHARACTERS:].encode().translate(_FROM_Z85)
    return _vector_file(root, UUID(bytes=base64.b85decode(text)))


def vector_location(puffin: str, root: str) -> str:
    """Where the copy of a Puffin file is that Delta's readers take vectors from.

    It begins with Delta's version byte, and the Puffin file follows as it is: a vector's bytes are
    the same in both formats.
    """
    return _vector_file(root, _vector_id(puffin))


def _vector_file(root: str, vector_id: UUID) -> str:
    return f"{root.rstrip('/')}/{VECTOR_FOLDER}/deletion_vector_{vector_id}.bin"


def _vector_id(puffin: str) -> UUID:
    return uuid5(NAMESPACE_URL, puffin)


def stored_vector(vector: DataFile) -> Action:
    """The descriptor of a vector in the copy of its Puffin file."""
    text = base64.b85encode(_vector_id(vector.file_path).bytes).translate(_TO_Z85).decode()
    return {
        "storageType": "u",
        "pathOrInlineDv": f"{VECTOR_FOLDER}{text}",
        "offset": (vector.content_offset or 0) + 1,
        "sizeInBytes": (vector.content_size_in_bytes or 0) - 8,
        "cardinality": vector.record_count,
    }


def inline_vector(blob: bytes, cardinality: int) -> Action:
    """The descriptor of a vector that stands in the log itself; `blob` as Puffin files hold it."""
    body = blob[4:-4]
    padded = body + bytes(-len(body) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(padded).translate(_TO_Z85).decode(),
        "sizeInBytes": len(body),
        "cardinality": cardinality,
    }


def file_key(action: Action) -> tuple[str, str]:
    """What tells files of Delta's log apart: path, and unique id of the deletion vector."""
    vector = action.get("deletionVector")
    if not vector:
        return action["path"], ""
    offset = vector.get("offset")
    place = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return action["path"], place if offset is None else f"{place}@{offset}"


def add_actions(
    entries: Entries, schema: Schema, root: str, vectors: Mapping[str, Action], time_ms: int
) -> list[Action]:
    """An `add` for each data file.

    Args:
        entries: of data manifests, with metrics.
        schema: whose columns have statistics.
        root: the table's folder.
        vectors: descriptors by location of the data file.
        time_ms: what the log says as time of modification.

    Raises UnsupportedFeatureError: a file that is no Parquet.
    """
    table = entries.table
    if not len(entries):
        return []
    columns = {
        name: table[name].to_pylist()
        for name in ("file_path", "file_format", "record_count", "file_size_in_bytes")
    }
    statistics = _statistics(entries, schema)
    actions = []
    for row, location in enumerate(columns["file_path"]):
        if str(columns["file_format"][row]).lower() != "parquet":
            raise UnsupportedFeatureError(
                f"{location} is {columns['file_format'][row]}, and Delta reads Parquet alone. "
                "Compact the table, or remove the property write.delta-log."
            )
        action: Action = {
            "path": relative_path(location, root),
            "partitionValues": {},
            "size": columns["file_size_in_bytes"][row],
            "modificationTime": time_ms,
            "dataChange": True,
            "stats": orjson.dumps(
                {"numRecords": columns["record_count"][row], "tightBounds": False} | statistics[row]
            ).decode(),
        }
        if location in vectors:
            action["deletionVector"] = vectors[location]
        actions.append(action)
    return actions


def remove_action(action: Action, time_ms: int) -> Action:
    """The `remove` of what an `add` added."""
    removed: Action = {
        "path": action["path"],
        "deletionTimestamp": time_ms,
        "dataChange": True,
        "size": action["size"],
    }
    if action.get("deletionVector"):
        removed["deletionVector"] = action["deletionVector"]
    return removed


def _statistics(entries: Entries, schema: Schema) -> list[Action]:
    """For each file `minValues`, `maxValues` and `nullCount`, as far as they are known."""
    rows: list[Action] = [
        {"minValues": {}, "maxValues": {}, "nullCount": {}} for _ in range(len(entries))
    ]
    present = set(entries.table.column_names)
    for path, field in _outside_collections(schema.fields):
        needed = [f"lower.{field.field_id}", f"upper.{field.field_id}"]
        if isinstance(field.field_type, FloatType | DoubleType):
            needed.append(f"nan_count.{field.field_id}")  # Delta's bounds are those of NaN, too
        if isinstance(field.field_type, _BOUNDED) and present.issuperset(needed):
            ends = (entries.table[name].to_pylist() for name in needed)
            for row, least, greatest, *nans in zip(rows, *ends, strict=True):
                bounds = _shown(least, field.field_type), _shown(greatest, field.field_type)
                if bounds[0] is not None and bounds[1] is not None and nans in ([], [0]):
                    _put(row["minValues"], path, bounds[0])
                    _put(row["maxValues"], path, bounds[1])
        nulls = f"null_count.{field.field_id}"
        if nulls in present:
            for row, count in zip(rows, entries.table[nulls].to_pylist(), strict=True):
                if count is not None:
                    _put(row["nullCount"], path, count)
    return rows


def _outside_collections(
    fields: Sequence[NestedField], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    for field in fields:
        if isinstance(field.field_type, StructType):
            yield from _outside_collections(field.field_type.fields, (*prefix, field.name))
        elif not isinstance(field.field_type, ListType | MapType):
            yield (*prefix, field.name), field


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _shown(value: Any, kind: IcebergType) -> Any:
    """A bound as Delta's statistics have it; None where they cannot have it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(kind, DateType):
        if not _FIRST_DAY <= value <= _LAST_DAY:
            return None
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
    if isinstance(kind, TimestampType | TimestamptzType):
        if not _FIRST_DAY <= value // 86_400_000_000 <= _LAST_DAY:
            return None
        text = (_EPOCH + dt.timedelta(microseconds=value)).isoformat(timespec="microseconds")
        return f"{text}Z" if isinstance(kind, TimestamptzType) else text
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(format(value, "f"))
    return value


def commit_info(operation: str, time_ms: int, ours: Action) -> Action:
    """The `commitInfo`; `ours` says where in Iceberg's history a version of the log stands."""
    return {
        "commitInfo": {
            "timestamp": time_ms,
            "operation": _OPERATIONS.get(operation, operation.upper()),
            "operationParameters": {},
            "engineInfo": ENGINE,
            ENGINE: ours,
        }
    }
