"""When files are decoded by Polars, and which of their columns can be (ADR 7).

Polars itself is not loaded here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.data.reading.file_columns import FileColumn
from lakehouse.expressions.bound_filter import Bound

# Loading Polars takes as long as decoding some tens of megabytes; from then on it pays for less.
_WORTH_LOADING_BYTES = 33_554_432
_WORTH_LOADING_FILES = 64
_WORTH_BYTES = 4_194_304
_WORTH_FILES = 8

_EXACT = frozenset(
    [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
    ]
)
_AS_VIEWS = {
    pa.string(): pa.string_view(),
    pa.large_string(): pa.string_view(),
    pa.binary(): pa.binary_view(),
    pa.large_binary(): pa.binary_view(),
}
VIEWS = frozenset(_AS_VIEWS.values())
"""Types of text and bytes in Polars: 16 bytes a value that point into the decoded data."""
_PHYSICAL = frozenset(["BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE", "BYTE_ARRAY"])


class _Process:
    """Threads do not survive a fork: a child of a process that has loaded Polars may not use it."""

    forked_with_polars = False

    @classmethod
    def after_fork(cls) -> None:
        cls.forked_with_polars = "polars" in sys.modules


os.register_at_fork(after_in_child=_Process.after_fork)


def may_load_polars() -> bool:
    """Whether Polars works in this process."""
    return not _Process.forked_with_polars


def worthwhile(files: int, size_bytes: int) -> bool:
    """Whether Polars reads that much faster, including the time to import it if needed."""
    if "polars" in sys.modules:
        return files >= _WORTH_FILES or size_bytes >= _WORTH_BYTES
    return files >= _WORTH_LOADING_FILES or size_bytes >= _WORTH_LOADING_BYTES


@dataclass(frozen=True, slots=True)
class DecodedColumns:
    """The columns to decode of files with one schema.

    Attributes:
        names: in the order of the file.
        types: in which Polars hands them over.
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]


def decoded_columns(
    columns: Sequence[FileColumn], leaves: Sequence[int], schema: pq.ParquetSchema
) -> DecodedColumns | None:
    """What Polars has to decode; None when it cannot.

    Nested columns, and types and names that it takes for something else, are left to Arrow.

    Args:
        columns: of the file.
        leaves: Parquet leaf columns that are wanted.
        schema: of the file.
    """
    wanted = set(leaves)
    chosen = [one for one in columns if wanted.intersection(one.leaves)]
    kinds = [one.type if one.type in _EXACT else _AS_VIEWS.get(one.type) for one in chosen]
    all_names = [one.name for one in columns]
    if not chosen or any(one.children for one in chosen) or len(set(all_names)) < len(all_names):
        return None
    if any(
        schema.column(one.leaves[0]).physical_type not in _PHYSICAL or _is_pattern(one.name)
        for one in chosen
    ):
        return None
    types = tuple(kind for kind in kinds if kind is not None)
    return (
        DecodedColumns(tuple(one.name for one in chosen), types)
        if len(types) == len(kinds)
        else None
    )


def _is_pattern(name: str) -> bool:
    return name == "*" or (name.startswith("^") and name.endswith("$"))


@dataclass(frozen=True, slots=True)
class BulkFile:
    """A file that Polars can decode.

    Attributes:
        source: all of a small file, the local path of a larger one.
        columns: to decode.
        where: rows for which this is not true may be left out while decoding; None where every row
            has to come.
        filterable: field id -> name and type of the columns that `where` may look at.
        is_whole: whether all of its row groups are wanted.
        shape: what the file shares with others that can be decoded together with it; None when it
            has to be alone.
    """

    source: bytes | str
    columns: DecodedColumns
    where: Bound | None
    filterable: Mapping[int, tuple[str, pa.DataType]]
    is_whole: bool
    shape: object | None
