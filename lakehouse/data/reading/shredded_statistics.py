"""Bounds of shredded variants in one row group, in the form that manifests have for whole files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from lakehouse.data.conversion.variant_arrays import edges_encoded
from lakehouse.data.reading.column_projection import FileColumn
from lakehouse.expressions.bound_filter import Bound, Computed, Constant, Leaf
from lakehouse.expressions.functions.variant_paths import names_in, normalized
from lakehouse.scan.pruning.inner_bounds import variant_comparison
from lakehouse.spec.types.variant_values import NULL, serialized_object


@dataclass(frozen=True, slots=True)
class ShreddedField:
    """A field of a variant that has a column of its own.

    Attributes:
        path: normalized, as manifests have it.
        type: of the column.
        typed: the leaf column.
        rest: that of the values which are of another type; None: there is none.
    """

    path: str
    type: pa.DataType
    typed: int
    rest: int | None


class Statistic(NamedTuple):
    """What a footer says of one column in one row group.

    Attributes:
        minimum: as stored; None where it is not known.
        maximum: the same.
        values: their number, nulls included.
        nulls: their number; None where it is not known.
    """

    minimum: Any
    maximum: Any
    values: int
    nulls: int | None


def shredded_fields(
    where: Bound, columns: Mapping[int, FileColumn]
) -> Mapping[int, Sequence[ShreddedField]]:
    """The shredded fields that a filter compares, by the id of their variant's column.

    Args:
        where: the filter.
        columns: of the file, by field id, outside lists and maps.
    """
    by_path: dict[int, dict[str, ShreddedField]] = {}
    for part in _computed(where):
        compared = variant_comparison(part)
        if compared is None:
            continue
        call, leaf = compared
        names = names_in(str(call.args[1].value))  # type: ignore[union-attr]
        column = columns.get(leaf.field_id)
        field = None if names is None or column is None else _field(column, names)
        if field is not None:
            by_path.setdefault(leaf.field_id, {})[field.path] = field
    return {field_id: list(fields.values()) for field_id, fields in by_path.items()}


def variant_bounds_of(
    fields: Sequence[ShreddedField], statistic_of: Callable[[int], Statistic]
) -> tuple[bytes | None, bytes | None]:
    """Lower and upper bounds of the fields in a row group, serialized; None where none is known.

    A field whose values are not all of its column's type, or null, has none.

    Args:
        fields: of one variant column.
        statistic_of: by leaf column.
    """
    lower: dict[str, bytes] = {}
    upper: dict[str, bytes] = {}
    for field in fields:
        edges = _edges(field, statistic_of)
        if edges is not None:
            lower[field.path], upper[field.path] = edges_encoded(edges)
    return (serialized_object(lower), serialized_object(upper)) if lower else (None, None)


def _computed(where: Bound) -> Iterator[Computed]:
    if isinstance(where, Computed):
        yield where
    elif not isinstance(where, Leaf | Constant):
        for part in where.parts:
            yield from _computed(part)


def _field(column: FileColumn, names: Sequence[str]) -> ShreddedField | None:
    members = _members(column)
    for name in names:
        typed = members.get("typed_value")
        inside = _members(typed) if typed is not None and pa.types.is_struct(typed.type) else {}
        if name not in inside:
            return None
        members = _members(inside[name])
    typed, rest = members.get("typed_value"), members.get("value")
    if typed is None or typed.children:
        return None
    leaf = None if rest is None else rest.leaves[0]
    return ShreddedField(normalized(names), typed.type, typed.leaves[0], leaf)


def _members(column: FileColumn) -> dict[str, FileColumn]:
    return {child.name: child for child in column.children}


def _edges(field: ShreddedField, statistic_of: Callable[[int], Statistic]) -> pa.Array | None:
    """Minimum and maximum, of the column's type."""
    if field.rest is not None:
        rest = statistic_of(field.rest)
        if rest.nulls != rest.values and not rest.minimum == rest.maximum == NULL:
            return None
    typed = statistic_of(field.typed)
    if typed.minimum is None or typed.maximum is None:
        return None
    try:
        return _array([typed.minimum, typed.maximum], field.type)
    except (ArithmeticError, TypeError, ValueError):  # statistics that are none of this type
        return None


def _array(edges: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    types = pa.types
    if types.is_temporal(kind):
        return pa.array(edges, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if types.is_decimal(kind):
        unscaled = [
            int.from_bytes(edge, "big", signed=True) if isinstance(edge, bytes) else edge
            for edge in edges
        ]
        exact = [
            Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -kind.scale)) for one in unscaled
        ]
        return pa.array(exact, kind)
    if types.is_string(kind):
        return pa.array([edge.decode() for edge in edges], kind)
    if types.is_floating(kind):
        return None if any(math.isnan(edge) for edge in edges) else pa.array(edges, kind)
    if types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_binary(kind):
        return pa.array(edges, kind)
    return None
