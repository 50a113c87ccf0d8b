"""Random schemas, partition specs and rows, from a seed alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.conformance.java.json_rows import Row, float_of, spell_float

PRIMITIVES: list[PrimitiveType] = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(4, 1),
    DecimalType(9, 2),
    DecimalType(18, 0),
    DecimalType(20, 7),
    DecimalType(38, 10),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    UUIDType(),
    FixedType(3),
    FixedType(17),
    BinaryType(),
]
NANOSECONDS: list[PrimitiveType] = [TimestampNanoType(), TimestamptzNanoType()]
_DAY_US = 86_400_000_000
_NANOS_MAX = 9_223_286_400_000_000_000  # whole days: Java's conversions overflow in the last one
_TEXT = [
    "",
    "a",
    "ab",
    "abc" * 9,
    "é",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "😀",
    "😀" * 20,
    "\u0000",
    " %=/",
]
_HALVES = ["0000000000000000", "0000000000000001", "7fffffffffffffff", "8000000000000000"]
_HALVES += ["8000000000000001", "ffffffffffffffff", "10000000000040f0", "f000000000004a00"]


def primitives(version: int) -> list[PrimitiveType]:
    """The types of a format version."""
    return PRIMITIVES + NANOSECONDS * (version >= 3)


def value(random: Random, kind: IcebergType) -> Any:
    """A value, often an extreme one, spelled as in `json_rows`."""
    if isinstance(kind, StructType):
        return {
            str(field.field_id): optional(random, field.field_type, required=field.required)
            for field in kind.fields
        }
    if isinstance(kind, ListType):
        return [
            optional(random, kind.element_type, required=kind.element_required)
            for _ in range(random.choice((0, 1, 3)))
        ]
    if isinstance(kind, MapType):
        keys = {json.dumps(one): one for one in (value(random, kind.key_type) for _ in range(2))}
        return [
            [keys[key], optional(random, kind.value_type, required=kind.value_required)]
            for key in sorted(keys)
        ]
    if isinstance(kind, BooleanType):
        return random.random() < 0.5
    if isinstance(kind, FloatType | DoubleType):
        return _float(random, single=isinstance(kind, FloatType))
    if isinstance(kind, DecimalType):
        most = 10**kind.precision - 1
        least = 1 - most  # even, so that truncate[2] stays within the type
        return str(random.choice((0, 1, -1, 127, -128, most, least, random.randint(least, most))))
    if isinstance(kind, StringType):
        return random.choice(_TEXT)
    if isinstance(kind, UUIDType):
        return random.choice(_HALVES) + random.choice(_HALVES)
    if isinstance(kind, FixedType | BinaryType):
        length = len(kind) if isinstance(kind, FixedType) else random.choice((0, 1, 2, 20))
        return bytes(random.choice((0, 1, 0x7F, 0x80, 0xFF)) for _ in range(length)).hex()
    return _ticks(random, kind)


def optional(random: Random, kind: IcebergType, *, required: bool) -> Any:
    """A value, or null where it may be."""
    return None if not required and random.random() < 0.2 else value(random, kind)


def _float(random: Random, *, single: bool) -> str:
    most = float_of("47efffffe0000000") if single else float_of("7fefffffffffffff")
    numbers = [0.0, -0.0, 1.5, -2.25, most, -most, float("inf"), float("-inf"), float("nan")]
    return spell_float(random.choice(numbers))


def _ticks(random: Random, kind: IcebergType) -> int:
    if isinstance(kind, IntegerType):
        return random.choice((0, 1, -1, 2**31 - 1, -(2**31), random.randint(-300, 300)))
    if isinstance(kind, LongType):
        return random.choice((0, 1, -1, 2**63 - 1, -(2**63), random.randint(-(2**40), 2**40)))
    if isinstance(kind, DateType):
        return random.choice((0, -1, 1, -719162, 2932896, random.randint(-800, 800)))
    if isinstance(kind, TimeType):
        return random.choice((0, 1, _DAY_US - 1, random.randrange(_DAY_US)))
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        return random.choice((0, -1, 1, _NANOS_MAX, -_NANOS_MAX, random.randint(-(10**15), 10**15)))
    edges = (0, -1, 1, -62135596800000000, 253402300799999999, -3_600_000_001)
    return random.choice((*edges, random.randint(-(10**12), 10**12)))


def schema(random: Random, version: int) -> Schema:
    """Columns `rid` (which row it is), `c0` to `cN` of random types, nested ones among them."""
    ids = itertools.count(2)
    kinds = [_type(random, ids, version, depth=2) for _ in range(random.randint(3, 7))]
    columns = [
        NestedField(next(ids), f"c{place}", kind, required=random.random() < 0.15)
        for place, kind in enumerate(kinds)
    ]
    return Schema(NestedField(1, "rid", LongType(), required=True), *columns)


def _type(random: Random, ids: Iterator[int], version: int, depth: int) -> IcebergType:
    shape = random.choice(("primitive",) * 6 + ("struct", "list", "map")) if depth else "primitive"
    if shape == "struct":
        return StructType(
            *(
                NestedField(next(ids), name, _type(random, ids, version, depth - 1), required=False)
                for name in ("x", "y")
            )
        )
    if shape == "list":
        return ListType(
            next(ids),
            _type(random, ids, version, depth - 1),
            element_required=random.random() < 0.3,
        )
    if shape == "map":
        key = random.choice((StringType(), IntegerType(), DateType(), UUIDType()))
        return MapType(
            next(ids),
            key,
            next(ids),
            _type(random, ids, version, depth - 1),
            value_required=random.random() < 0.3,
        )
    return random.choice(primitives(version))


def leaves(kind: IcebergType, prefix: str = "") -> Iterator[tuple[str, int, PrimitiveType]]:
    """(path, field id, type) of the primitive fields outside lists and maps."""
    fields = kind.fields if isinstance(kind, StructType) else ()
    for field in fields:
        if isinstance(field.field_type, PrimitiveType):
            yield prefix + field.name, field.field_id, field.field_type
        else:
            yield from leaves(field.field_type, f"{prefix}{field.name}.")


def transforms(kind: PrimitiveType) -> list[str]:
    """Transforms of a type, in the words of the specification.

    But identity of nanoseconds: Java's generic reader fails on it.
    """
    found = [] if isinstance(kind, TimestampNanoType | TimestamptzNanoType) else ["identity"]
    if not isinstance(kind, BooleanType | FloatType | DoubleType):
        found.append("bucket[4]")
    if isinstance(kind, IntegerType | LongType | DecimalType | StringType | BinaryType):
        found.append("truncate[2]")
    if isinstance(kind, DateType):
        found += ["year", "month", "day"]
    if isinstance(kind, TimestampType | TimestamptzType | TimestampNanoType | TimestamptzNanoType):
        found += ["year", "month", "day", "hour"]
    return [*found, "void"] if len(found) > 5 else found


def fills_struct(transform: str, path: str, others: list[tuple[str, str]]) -> bool:
    """Whether this identity and another one would stand for all fields of a struct.

    Java's reader then asks the file for nothing that would tell it that the struct is null, and
    its rewrites write what it read.
    """
    parent = path.rpartition(".")[0]
    beside = {one.rpartition(".")[0] for known, one in others if known == "identity"}
    return transform == "identity" and bool(parent) and parent in beside


class Pools:
    """Few values a column, so that rows meet in partitions and filters find something."""

    def __init__(self, random: Random, size: int = 5) -> None:
        self._random, self._size = random, size
        self._values: dict[int, list[Any]] = {}

    def row(self, table_schema: Schema, rid: int) -> Row:
        """A new row."""
        row: Row = {}
        for field in table_schema.fields:
            if field.name == "rid":
                row[str(field.field_id)] = rid
                continue
            pool = self._values.setdefault(
                field.field_id, [value(self._random, field.field_type) for _ in range(self._size)]
            )
            empty = not field.required and self._random.random() < 0.15
            row[str(field.field_id)] = None if empty else self._random.choice(pool)
        return row

    def forget(self) -> None:
        """After a change of types."""
        self._values.clear()
