"""Which entries may, and which must, hold matching rows: whole arrays at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakehouse.expressions.bound import Bound
from lakehouse.spec.entries import Entries
from lakehouse.spec.field_types import FieldTypes

Mask = npt.NDArray[np.bool_]


def may_match(entries: Entries, where: Bound, types: FieldTypes) -> Mask:
    """False only for entries none of whose rows can match: by partition value, bounds, null and NaN counts."""
    raise AssertionError(entries, where, types)


def must_match(entries: Entries, where: Bound, types: FieldTypes) -> Mask:
    """True only for entries all of whose rows match, so that a whole file can be dropped by metadata alone."""
    raise AssertionError(entries, where, types)
