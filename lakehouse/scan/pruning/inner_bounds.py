"""Bounds of what lies inside values: of the shredded fields of variants, and of coordinates.

A condition that only rows decide may still be one that no row of a file can fulfil (spec: Bounds
for Variant, Geometry, and Geography).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import GeographyType, GeometryType

from lakehouse.errors import CorruptMetadataError
from lakehouse.expressions.bound_filter import Call, Column, Computed, Leaf, Mask, Value
from lakehouse.expressions.filter_binding import COMPARISONS
from lakehouse.expressions.functions.bounding_boxes import apart, box_of
from lakehouse.expressions.functions.variant_paths import TYPES, normalized_path, taken
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import physical_type
from lakehouse.spec.types.variant_values import field_of_serialized

_CORNER_SIZES = (16, 24, 32)  # XY, XYZ, XYM and XYZM
_HALF_TURN = 180.0


def variant_comparison(computed: Computed) -> tuple[Call, Leaf] | None:
    """A condition that compares a `variant_get` of a column with constants; None for others.

    Returns:
        The `variant_get`, and the comparison as it were of a column with the values of that.
    """
    condition, negated = computed.condition, False
    if condition.name == "not" and isinstance(condition.args[0], Call):
        condition, negated = condition.args[0], True
    if condition.name not in COMPARISONS or len(condition.args) != 2:
        return None
    call, value = condition.args
    if not isinstance(call, Call) or call.name != "variant_get" or not isinstance(value, Value):
        return None
    column = call.args[0]
    if not isinstance(column, Column) or not isinstance(column.type, VariantType):
        return None
    op = COMPARISONS[condition.name]
    leaf = Leaf(op, column.field_id, column.path, call.type, value.value)
    return call, leaf.opposite() if negated else leaf


def variant_bounds(entries: pa.Table, call: Call, among: Mask) -> tuple[pa.Array, pa.Array]:
    """Lower and upper bounds of what a `variant_get` of a column gives; null where unknown.

    A file has bounds of a field only where all values that are not null are of one type. Where
    either cannot be taken as the wanted type, there are none.

    Args:
        entries: with the bounds of the column, if they have any.
        call: see `variant_comparison`.
        among: the entries that are of interest; others are unknown.
    """
    column, path, kind = call.args
    name, spelled = _text(kind).lower(), normalized_path(_text(path))
    sides = [f"{side}.{column.field_id}" for side in ("lower", "upper")]  # type: ignore[union-attr]
    if spelled is None or not set(sides) <= set(entries.column_names):
        pairs: list[tuple[Any, Any]] = [(None, None)] * entries.num_rows
    else:
        given = (pc.if_else(pa.array(among), entries[side], None).to_pylist() for side in sides)
        pairs = [_pair(low, high, spelled, name) for low, high in zip(*given, strict=True)]
    lower, upper = (
        pa.array([pair[side] for pair in pairs], TYPES[name][0]).cast(physical_type(call.type))
        for side in (0, 1)
    )
    return lower, upper


def box_may_meet(computed: Computed, entries: pa.Table) -> Mask | None:
    """False only where the bounds of a column rule out that `bbox_intersects` is true.

    None for other conditions. The bounds of a geography that cross the antimeridian tell nothing of
    X: a row is taken for the span of its coordinates, which reaches around the other side.
    """
    condition = computed.condition
    column, *corners = condition.args
    if condition.name != "bbox_intersects" or not isinstance(column, Column):
        return None
    spans = np.hstack(
        [_corners(entries, f"{side}.{column.field_id}") for side in ("lower", "upper")]
    )
    box = box_of([corner.value for corner in corners if isinstance(corner, Value)])
    unknown = spans[:, 1] > spans[:, 3]
    inverted = spans[:, 0] > spans[:, 2]
    if isinstance(column.type, GeographyType):
        beyond = min(box[0], box[2]) < -_HALF_TURN or max(box[0], box[2]) > _HALF_TURN
        spans[inverted | beyond, ::2] = np.nan
    elif isinstance(column.type, GeometryType):
        unknown |= inverted
    else:
        return None
    spans[unknown] = np.nan
    return ~apart(spans, box)


def _corners(entries: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """X and Y of the bounds of each entry, NaN where unknown."""
    ends = np.full((entries.num_rows, 2), np.nan)
    if name in entries.column_names:
        given = entries[name].combine_chunks()
        known = np.isin(np.asarray(pc.fill_null(pc.binary_length(given), 0)), _CORNER_SIZES)
        raw = b"".join(corner[:16] for corner in given.filter(pa.array(known)).to_pylist())
        ends[known] = np.frombuffer(raw, "<f8").reshape(-1, 2)
    return ends


def _pair(lower: bytes | None, upper: bytes | None, path: str, kind: str) -> tuple[Any, Any]:
    if lower is None or upper is None:
        return None, None
    try:
        low, high = (field_of_serialized(bound, path) for bound in (lower, upper))
        if low is None or high is None or type(low) is not type(high):
            return None, None
        return taken(low, kind), taken(high, kind)
    except (CorruptMetadataError, pa.ArrowInvalid):
        return None, None


def _text(term: Any) -> str:
    return str(term.value)
