"""Keys that an operation decided on, as something that rows of others can be held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.spec.manifests.manifest_entries import Entries


@dataclass(frozen=True, slots=True, eq=False)
class KeyTest:
    """Finds rows that have one of the keys; pure.

    Attributes:
        columns: columns of the table that its keys are made of.
        may_hold: which entries may hold such a row, by their bounds.
        count: how many of some rows, with these columns, have one of the keys.
    """

    columns: Schema
    may_hold: Callable[[Entries], npt.NDArray[np.bool_]]
    count: Callable[[pa.Table], int]
