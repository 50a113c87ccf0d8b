"""Types from what a user passes: text, Arrow types, pyiceberg types."""

from __future__ import annotations

import re
from itertools import count

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.schema.iceberg_types import type_from_name
from lakehouse.spec.schema.schema_json import MAX_TYPE_DEPTH, make_field
from lakehouse.spec.types.arrow_types import type_from_arrow

_TOKEN = re.compile(
    r"\s*(?:([<>,:])|(`[^`]*`)"
    r"|((?:[^<>,:`()\[\]]|\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])+))"
)


def to_iceberg_type(given: object, column: str = "") -> IcebergType:
    """A type, given as a pyiceberg type, an Arrow type or text.

    Text is `string`, `decimal(10,2)`, `list<string>`, `map<string, long>`, `struct<lat: double,
    lon: double required>` and the like. Ids of nested fields count from 1.

    Raises:
        InvalidSchemaError: not a type.
        UnsupportedTypeError: an Arrow type that Iceberg does not have.
    """
    if isinstance(given, IcebergType) and not isinstance(given, NestedField):
        return given
    if isinstance(given, pa.DataType):
        return type_from_arrow(given, column=column)
    if isinstance(given, str):
        return type_from_text(given)
    raise InvalidSchemaError(
        f"{given!r} is not a type: pass a pyiceberg type, an Arrow type or text such as 'string'."
    )


def type_from_text(text: str) -> IcebergType:
    """The type that a text names; raises InvalidSchemaError."""
    parser = _Parser(text)
    parsed = parser.type(0)
    parser.end()
    return parsed


class _Parser:
    """Recursive descent over `name`, `list<T>`, `map<K, V>`, `struct<name: T [required], ...>`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._ids = count(1)
        position = 0
        stripped = text.strip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None or match.end() == position:
                raise InvalidSchemaError(f"{text!r} is not a type.")
            self._tokens.append(
                next(group for group in match.groups() if group is not None).strip()
            )
            position = match.end()

    def _next(self) -> str:
        if not self._tokens:
            raise InvalidSchemaError(f"{self._text!r} is not a type: it ends too early.")
        return self._tokens.pop(0)

    def _expect(self, token: str) -> None:
        actual = self._next()
        if actual != token:
            raise InvalidSchemaError(
                f"{self._text!r} is not a type: expected {token!r}, found {actual!r}."
            )

    def end(self) -> None:
        if self._tokens:
            raise InvalidSchemaError(
                f"{self._text!r} is not a type: {self._tokens[0]!r} comes after its end."
            )

    def type(self, depth: int) -> IcebergType:
        if depth > MAX_TYPE_DEPTH:
            raise InvalidSchemaError(f"Types are nested more than {MAX_TYPE_DEPTH} deep.")
        name = self._next()
        kind = name.lower()
        if kind not in ("list", "array", "map", "struct") or self._tokens[:1] != ["<"]:
            return type_from_name(name)
        self._expect("<")
        if kind == "struct":
            return self._struct(depth)
        if kind == "map":
            key_id, value_id = next(self._ids), next(self._ids)
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            return MapType(key_id, key, value_id, value, value_required=False)
        element_id = next(self._ids)
        element = self.type(depth + 1)
        self._expect(">")
        return ListType(element_id=element_id, element_type=element, element_required=False)

    def _struct(self, depth: int) -> StructType:
        fields: list[NestedField] = []
        while True:
            name = self._next().strip("`")
            self._expect(":")
            required = bool(self._tokens) and self._tokens[0].lower().endswith(" required")
            if required:
                self._tokens[0] = self._tokens[0][: -len(" required")].strip()
            fields.append(
                make_field(next(self._ids), name, self.type(depth + 1), required=required)
            )
            separator = self._next()
            if separator == ">":
                return StructType(*fields)
            if separator != ",":
                raise InvalidSchemaError(
                    f"{self._text!r} is not a type: expected ',' or '>', found {separator!r}."
                )
