"""How well files are laid out: overlap of column ranges, row groups, sizes against the target.

Pure: manifest entries in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import PrimitiveType

from lakehouse.spec.manifests.data_file import CONTENT_DATA, STATUS_DELETED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import TableMetadata

_KEEP_ORDER = (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOverlap:
    """Ranges of one column over the data files of a partition.

    Attributes:
        files: data files that have both bounds, in partitions with at least two of them.
        depth: files of the partition around the range of a file, itself too, on average; 1.0 when
            no ranges overlap.
        share: overlapping pairs of files / pairs of files of a partition; 1.0 when a filter on the
            column skips no file.
    """

    field_id: int
    column: str
    files: int
    depth: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The data files of a snapshot.

    Attributes:
        columns: those with bounds and files to compare, least overlap first.
        mean_files_per_partition: data files, on average.
        row_groups: as the files record them; files that record none are left out, of
            `row_group_files` and bytes too.
    """

    columns: tuple[ColumnOverlap, ...]
    mean_files_per_partition: float
    row_groups: int
    row_group_files: int
    row_group_bytes: int

    @property
    def mean_row_group_bytes(self) -> float | None:
        """Compressed; None when no file says."""
        return self.row_group_bytes / self.row_groups if self.row_groups else None

    def column(self, name: str) -> ColumnOverlap | None:
        """By full dotted name."""
        return next((column for column in self.columns if column.column == name), None)


def measure_layout(manifests: Sequence[Entries], metadata: TableMetadata) -> Layout:
    """The layout of the live data files among the entries."""
    parts = [_live_data(entries) for entries in manifests]
    by_spec = _by_spec(part for part in parts if len(part))
    counts = (
        np.concatenate([np.bincount(_groups(files)) for files in by_spec])
        if by_spec
        else np.zeros(0, np.int64)
    )
    names = {
        field_id: name
        for field_id, name in (
            (number, metadata.schema().find_column_name(number))
            for number in metadata.schema().field_ids
        )
        if name is not None and isinstance(metadata.schema().find_type(field_id), PrimitiveType)
    }
    overlaps = (column_overlap(by_spec, field_id, name) for field_id, name in names.items())
    offsets = [
        pc.list_value_length(files.table["split_offsets"]).combine_chunks()
        for files in by_spec
        if "split_offsets" in files.table.column_names
    ]
    sizes = [
        files.table["file_size_in_bytes"]
        for files in by_spec
        if "split_offsets" in files.table.column_names
    ]
    have_offsets = [pc.greater(pc.fill_null(offset, 0), 0) for offset in offsets]
    return Layout(
        columns=tuple(
            sorted(
                (overlap for overlap in overlaps if overlap is not None),
                key=lambda overlap: (overlap.share, overlap.column),
            )
        ),
        mean_files_per_partition=float(counts.mean()) if len(counts) else 0.0,
        row_groups=sum(pc.sum(offset).as_py() or 0 for offset in offsets),
        row_group_files=sum(pc.sum(count).as_py() or 0 for count in have_offsets),
        row_group_bytes=sum(
            pc.sum(size.filter(mask)).as_py() or 0
            for size, mask in zip(sizes, have_offsets, strict=True)
        ),
    )


def sort_overlap(manifests: Sequence[Entries], metadata: TableMetadata) -> ColumnOverlap | None:
    """Overlap of the leading sort column.

    None when unsorted, or sorted by a transform that does not keep the order of ranges.
    """
    fields = metadata.sort_order().fields
    if not fields or not isinstance(fields[0].transform, _KEEP_ORDER):
        return None
    name = metadata.schema().find_column_name(fields[0].source_id)
    parts = [_live_data(entries) for entries in manifests]
    return (
        None
        if name is None
        else column_overlap(
            _by_spec(part for part in parts if len(part)), fields[0].source_id, name
        )
    )


def column_overlap(by_spec: Sequence[Entries], field_id: int, name: str) -> ColumnOverlap | None:
    """How much a column's ranges overlap between data files of a partition; None if not comparable.

    Args:
        by_spec: live data files, one `Entries` for each partition spec.
        field_id: the column.
        name: its full dotted name.
    """
    files = pairs = overlaps = 0
    for entries in by_spec:
        names = set(entries.table.column_names)
        if f"lower.{field_id}" not in names or f"upper.{field_id}" not in names:
            continue
        bounded = entries.filter(
            pc.and_(
                pc.is_valid(entries.table[f"lower.{field_id}"]),
                pc.is_valid(entries.table[f"upper.{field_id}"]),
            )
        )
        if not len(bounded):
            continue
        groups = _groups(bounded)
        sizes = np.bincount(groups)
        lower, upper = _ranks(
            bounded.table[f"lower.{field_id}"], bounded.table[f"upper.{field_id}"]
        )
        around = _around(groups, lower, upper)
        files += int(sizes[sizes > 1].sum())
        pairs += int((sizes * (sizes - 1)).sum())
        overlaps += int(around.sum()) - len(around)
    if not pairs:
        return None
    return ColumnOverlap(
        field_id=field_id,
        column=name,
        files=files,
        depth=1 + overlaps / files,
        share=overlaps / pairs,
    )


def _around(groups: Ints, lower: Ints, upper: Ints) -> Ints:
    """For every file, the files of its group whose range overlaps its own, itself too."""
    # those that begin before it ends, less those that end before it begins
    span = int(max(upper.max(initial=0), lower.max(initial=0))) + 2
    lower_keys, upper_keys = groups * span + lower, groups * span + upper
    begun = np.searchsorted(np.sort(lower_keys), upper_keys, "right")
    ended = np.searchsorted(np.sort(upper_keys), lower_keys, "left")
    return (begun - ended).astype(np.int64)


def _ranks(lower: pa.ChunkedArray, upper: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Both columns as positions in the order of all their values."""
    encoded = (
        pa.chunked_array([*lower.chunks, *upper.chunks], lower.type)
        .combine_chunks()
        .dictionary_encode()
    )
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    ranked = rank[encoded.indices.to_numpy()]
    return ranked[: len(lower)], ranked[len(lower) :]


def _groups(entries: Entries) -> Ints:
    """The number of its partition for every entry."""
    codes = [
        entries.table[f"partition.{field.field_id}"]
        .combine_chunks()
        .dictionary_encode(null_encoding="encode")
        .indices.to_numpy()
        for field in entries.spec.fields
    ]
    if not codes:
        return np.zeros(len(entries), np.int64)
    return (
        np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1]
        .reshape(-1)
        .astype(np.int64)
    )


def _live_data(entries: Entries) -> Entries:
    table = entries.table
    return entries.filter(
        pc.and_(
            pc.equal(table["content"], CONTENT_DATA), pc.not_equal(table["status"], STATUS_DELETED)
        )
    )


def _by_spec(parts: Iterable[Entries]) -> list[Entries]:
    by_spec: dict[int, list[Entries]] = {}
    for part in parts:
        by_spec.setdefault(part.spec.spec_id, []).append(part)
    return [Entries.concat(members) for members in by_spec.values()]
