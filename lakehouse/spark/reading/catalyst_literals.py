"""Literals of Catalyst filters in Iceberg's terms, and the types that they compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint"})


@dataclass(frozen=True, slots=True)
class SparkLiteral:
    """A literal: the name of its Spark type, and its value in Iceberg's representation."""

    type: str
    value: Any


def iceberg_literal(kind: IcebergType, value: SparkLiteral) -> Literal[Any] | None:
    """The literal in the column's type; None when the two do not compare as they stand."""
    if isinstance(kind, IntegerType | LongType | DecimalType | FloatType | DoubleType):
        if isinstance(value.value, float):
            # -0.0 + 0.0 is 0.0
            return (
                DoubleLiteral(value.value + 0.0)
                if isinstance(kind, FloatType | DoubleType)
                else None
            )
        if isinstance(value.value, Decimal):
            return (
                DecimalLiteral(value.value)
                if not isinstance(kind, FloatType | DoubleType)
                else None
            )
        exact = value.type in INTEGER_TYPES and not isinstance(kind, FloatType | DoubleType)
        return LongLiteral(value.value) if exact else None
    if value.type not in spark_names(kind):
        return None
    if isinstance(kind, DateType):
        return DateLiteral(value.value)
    if isinstance(kind, TimestampType | TimestamptzType):
        return TimestampLiteral(value.value)
    if isinstance(kind, StringType):
        return StringLiteral(value.value)
    if isinstance(kind, BinaryType):
        return BinaryLiteral(value.value)
    return BooleanLiteral(value.value) if isinstance(kind, BooleanType) else None


def parse_literal(kind: str, raw: object) -> SparkLiteral | None:
    """A literal of a Spark type from its text; None when the type is one that prunes nothing."""
    if not isinstance(raw, str):
        return None
    if kind in INTEGER_TYPES or kind in ("date", "timestamp", "timestamp_ntz"):
        return SparkLiteral(kind, int(raw))
    if kind in ("float", "double"):
        return SparkLiteral(kind, float(raw))
    if kind.startswith("decimal("):
        return SparkLiteral(kind, Decimal(raw))
    if kind == "string":
        return SparkLiteral(kind, raw)
    if kind == "binary":
        return SparkLiteral(kind, bytes.fromhex(raw))
    return SparkLiteral(kind, raw == "true") if kind == "boolean" else None


def spark_names(kind: IcebergType) -> tuple[str, ...]:
    """Names of the Spark type that a column of the Iceberg type has in a filter."""
    if isinstance(kind, DecimalType):
        return (f"decimal({kind.precision},{kind.scale})",)
    return _SPARK_NAMES.get(type(kind), ())


_SPARK_NAMES: Mapping[type[IcebergType], tuple[str, ...]] = {
    BooleanType: ("boolean",),
    IntegerType: ("int",),
    LongType: ("bigint",),
    FloatType: ("float",),
    DoubleType: ("double",),
    DateType: ("date",),
    TimestampType: ("timestamp_ntz",),
    TimestamptzType: ("timestamp",),
    StringType: ("string",),
    BinaryType: ("binary",),
}


def widens_exactly(source: str, target: str) -> bool:
    """Whether a cast keeps every value: then comparing before or after it is the same."""
    if source in INTEGER_TYPES:
        wide_enough = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
        if target in INTEGER_TYPES:
            return wide_enough[source] <= wide_enough[target]
        return (target == "double" and source != "bigint") or (
            target.startswith("decimal(")
            and _digits(target)[0] - _digits(target)[1] >= wide_enough[source]
        )
    if source.startswith("decimal(") and target.startswith("decimal("):
        (precision, scale), (wider, finer) = _digits(source), _digits(target)
        return finer >= scale and wider - finer >= precision - scale
    return (source, target) == ("float", "double")


def _digits(decimal_type: str) -> tuple[int, int]:
    precision, scale = decimal_type[len("decimal(") : -1].split(",")
    return int(precision), int(scale)
