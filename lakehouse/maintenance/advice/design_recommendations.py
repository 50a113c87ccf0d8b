"""What only a person may change about a table, with the evidence that its metadata holds. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    YearTransform,
)

from lakehouse.maintenance.health.file_layout import ColumnOverlap, Layout
from lakehouse.maintenance.health.table_health import TableHealth
from lakehouse.maintenance.layout_by_age import LayoutByAge
from lakehouse.maintenance.shown_plan import human_bytes
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.partitioning.coarser_partitions import is_time
from lakehouse.spec.table_properties import TableProperties

_MIB = 1 << 20
_FEW_FILES = 8
"""With fewer files to compare, ranges overlap by chance."""
_OVERLAPPING = 0.5
_SORTED_DEPTH = 3.0
_MOST_REMOVABLE = 0.5
_SMALL_PARTITION = 0.25
_LARGE_PARTITION = 100
_MANY_PARTITIONS = 32
"""Fewer are not worth a change: a file costs a scan of all 7 ms (1,055 of the demo: 7.3 s)."""
_HOT = 5.0
_SMALL_ROW_GROUP, _LARGE_ROW_GROUP = 16 * _MIB, 512 * _MIB
_GOOD_ROW_GROUP = 128 * _MIB
_COARSER = {"hour": "day", "day": "month", "month": "year"}
_FINER = {coarse: fine for fine, coarse in _COARSER.items()}
_TIMES = (HourTransform, DayTransform, MonthTransform, YearTransform)

Evidence = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A change of the table's design.

    Attributes:
        subject: sort order, bucket count, partition grain, layout by age or row-group size.
        current, proposed: in the words of `create_table`.
        why: one line.
        evidence: what was measured.
    """

    subject: str
    current: str
    proposed: str
    why: str
    evidence: Evidence


def recommendations(
    health: TableHealth, layout: Layout, metadata: TableMetadata, filters: Sequence[str] = ()
) -> tuple[Recommendation, ...]:
    """What the metadata speaks for; nothing where it does not.

    Args:
        health: of the current snapshot.
        layout: of the same snapshot.
        metadata: of the same version.
        filters: columns that queries filter by, the most frequent first.
    """
    if health.unwritable:
        return _upgrade(health, metadata)
    return (
        *_sort_order(health, layout, metadata, filters),
        *_partitioning(health, layout, metadata),
        *_row_groups(layout, metadata),
    )


def _upgrade(health: TableHealth, metadata: TableMetadata) -> tuple[Recommendation, ...]:
    """Of version 1, where compaction would do something."""
    if metadata.format_version != 1 or not health.removable_files:
        return ()
    upgrade = Recommendation(
        subject="format version",
        current="1",
        proposed="2",
        why=health.unwritable,
        evidence={"removable files": health.removable_files},
    )
    return (upgrade,)


def _sort_order(
    health: TableHealth, layout: Layout, metadata: TableMetadata, filters: Sequence[str]
) -> Iterator[Recommendation]:
    if health.removable_files > _MOST_REMOVABLE * health.data_files:
        # Compaction comes first: it sorts what it rewrites, and leaves other ranges to judge.
        return
    fields = metadata.sort_order().fields
    schema = metadata.schema()
    names = [schema.find_column_name(field.source_id) or str(field.source_id) for field in fields]
    current = ", ".join(names) or "none"
    leading = layout.column(names[0]) if names else None
    if leading is not None and leading.files >= _FEW_FILES and leading.depth > _SORTED_DEPTH:
        yield Recommendation(
            subject="sort order",
            current=current,
            proposed=f"{current}, and a sorted rewrite of the table",
            why=(
                f"files overlap in {leading.column}, by which they should be sorted: a filter on "
                f"it opens {leading.depth:.1f}"
            ),
            evidence=_overlap(leading),
        )
    partitioned = {
        schema.find_column_name(field.source_id)
        for field in metadata.spec().fields
        if not _is_bucket(field)
    }
    for name in filters:
        overlap = layout.column(name)
        if names and name == names[0]:
            return
        if (
            name not in partitioned
            and overlap is not None
            and overlap.files >= _FEW_FILES
            and overlap.share > _OVERLAPPING
        ):
            yield Recommendation(
                subject="sort order",
                current=current,
                proposed=", ".join([name, *(other for other in names if other != name)]),
                why=(
                    f"queries filter by {name}, and a value of it lies in the range of "
                    f"{overlap.share:.0%} of a partition's files"
                ),
                evidence=_overlap(overlap),
            )
            return


def _overlap(overlap: ColumnOverlap) -> Evidence:
    return {
        "files": overlap.files,
        "files around a value": overlap.depth,
        "overlapping pairs": overlap.share,
    }


def _partitioning(
    health: TableHealth, layout: Layout, metadata: TableMetadata
) -> Iterator[Recommendation]:
    coarsest = LayoutByAge(metadata, 0).coarsest
    if coarsest is not None:
        yield from _closed_periods(health, coarsest, metadata)
    spec = metadata.spec()
    sizes = _sizes(health, spec)
    if not sizes or not spec.fields:
        return
    typical = median(sizes)
    evidence: Evidence = {
        "partitions": len(sizes),
        "median partition": human_bytes(int(typical)),
        "target file": human_bytes(health.target_bytes),
        "largest / mean": max(sizes) * len(sizes) / max(1, sum(sizes)),
        "files per partition": layout.mean_files_per_partition,
    }
    # small ones of fresh periods go by themselves where closed periods are laid out coarser
    small = coarsest is None and _are_small(sizes, health)
    large = typical > _LARGE_PARTITION * health.target_bytes
    buckets = next((term for term in spec.fields if _is_bucket(term)), None)
    if buckets is not None:
        position = spec.fields.index(buckets)
        totals = [0] * _count(buckets)
        for partition in health.partitions:
            number = (
                partition.partition.split("/")[position].rpartition("=")[2]
                if partition.spec_id == spec.spec_id
                else ""
            )
            if number.isdigit():
                totals[int(number)] += partition.bytes
        skew = max(totals) * len(totals) / max(1, sum(totals))
        yield from _buckets(
            buckets, metadata, typical / health.target_bytes, skew, evidence, small=small
        )
    grain = next((term for term in spec.fields if isinstance(term.transform, _TIMES)), None)
    if grain is not None and (buckets is None or _count(buckets) == 1 or not small):
        yield from _grain(grain, metadata, evidence, small=small, large=large)
    if grain is None and buckets is None and small:
        field = next(
            (term for term in spec.fields if isinstance(term.transform, IdentityTransform)), None
        )
        if field is not None:
            name = metadata.schema().find_column_name(field.source_id)
            why = (
                "most of its values have less than a quarter of a data file: no compaction can "
                "make their files larger"
            )
            wanted = max(1, math.ceil(sum(sizes) / health.target_bytes))
            yield Recommendation(
                subject="partition grain",
                current=str(name),
                proposed=f"bucket({wanted}, {name})",
                why=why,
                evidence=evidence,
            )


def _closed_periods(
    health: TableHealth, spec: PartitionSpec, metadata: TableMetadata
) -> Iterator[Recommendation]:
    sizes = _sizes(health, spec)
    if not _are_small(sizes, health):
        return
    evidence: Evidence = {
        "partitions": len(sizes),
        "median partition": human_bytes(int(median(sizes))),
        "target file": human_bytes(health.target_bytes),
    }
    for field in filter(is_time, spec.fields):
        for recommendation in _grain(field, metadata, evidence, small=True, large=False):
            yield dataclasses.replace(recommendation, subject="layout by age")


def _sizes(health: TableHealth, spec: PartitionSpec) -> list[int]:
    return [
        partition.bytes
        for partition in health.partitions
        if partition.spec_id == spec.spec_id and partition.data_files
    ]


def _are_small(sizes: Sequence[int], health: TableHealth) -> bool:
    return len(sizes) >= _MANY_PARTITIONS and median(sizes) < _SMALL_PARTITION * health.target_bytes


def _buckets(
    field: PartitionField,
    metadata: TableMetadata,
    fill: float,
    skew: float,
    evidence: Evidence,
    *,
    small: bool,
) -> Iterator[Recommendation]:
    name = metadata.schema().find_column_name(field.source_id)
    count = _count(field)
    current = f"bucket({count}, {name})"
    fewer = max(1, math.ceil(count * fill))
    if small and fewer < count:
        why = f"a bucket holds {fill:.0%} of a data file: compaction cannot make its files larger"
        proposed = f"bucket({fewer}, {name})" if fewer > 1 else "no buckets"
        yield Recommendation(
            subject="bucket count", current=current, proposed=proposed, why=why, evidence=evidence
        )
    elif fill > _LARGE_PARTITION:
        why = (
            f"a bucket holds {fill:,.0f} data files: a point lookup opens more of them than it must"
        )
        proposed = f"bucket({_power_of_two(count * fill / _LARGE_PARTITION)}, {name})"
        yield Recommendation(
            subject="bucket count", current=current, proposed=proposed, why=why, evidence=evidence
        )
    if count > 1 and skew > min(_HOT, 0.75 * count):
        why = (
            f"the largest bucket has {skew:.1f} x the mean: few values of {name} have most of the "
            "rows"
        )
        proposed = f"buckets of another column than {name}, or none"
        with_skew = {**evidence, "largest bucket / mean": skew}
        yield Recommendation(
            subject="bucket count", current=current, proposed=proposed, why=why, evidence=with_skew
        )


def _grain(
    field: PartitionField, metadata: TableMetadata, evidence: Evidence, *, small: bool, large: bool
) -> Iterator[Recommendation]:
    name = metadata.schema().find_column_name(field.source_id)
    now = str(field.transform)
    if small and now in _COARSER:
        why = (
            f"half of the partitions have less than a quarter of a data file: each {now} costs a "
            "file and a manifest entry"
        )
        better = _COARSER[now]
    elif large and now in _FINER:
        why = (
            f"half of the partitions have more than {_LARGE_PARTITION} data files: a filter on "
            f"{name} skips too little"
        )
        better = _FINER[now]
    else:
        return
    yield Recommendation(
        subject="partition grain",
        current=f"{now}({name})",
        proposed=f"{better}({name})",
        why=why,
        evidence=evidence,
    )


def _row_groups(layout: Layout, metadata: TableMetadata) -> Iterator[Recommendation]:
    mean = layout.mean_row_group_bytes
    if mean is None:
        return
    limit = TableProperties(metadata.properties).parquet_row_group_size_bytes
    per_file = layout.row_groups / max(1, layout.row_group_files)
    evidence: Evidence = {
        "row groups": layout.row_groups,
        "files": layout.row_group_files,
        "mean row group": human_bytes(int(mean)),
        "row groups per file": per_file,
    }
    current = f"{TableProperties.parquet_row_group_size_bytes.name} = {limit}"
    name = TableProperties.parquet_row_group_size_bytes.name
    if per_file >= 2 and mean < _SMALL_ROW_GROUP:
        why = f"row groups of {human_bytes(int(mean))}: readers seek and decode more than they must"
        proposed = f"{name} = {_rounded(limit * _GOOD_ROW_GROUP / mean)}"
    elif mean > _LARGE_ROW_GROUP:
        why = (
            f"row groups of {human_bytes(int(mean))}: one task has to hold each, and filters skip "
            "little inside a file"
        )
        proposed = f"{name} = {_rounded(limit * _GOOD_ROW_GROUP / mean)}"
    else:
        return
    yield Recommendation(
        subject="row-group size", current=current, proposed=proposed, why=why, evidence=evidence
    )


def _is_bucket(field: PartitionField) -> bool:
    return isinstance(field.transform, BucketTransform)


def _count(field: PartitionField) -> int:
    return field.transform.num_buckets if isinstance(field.transform, BucketTransform) else 1


def _power_of_two(value: float) -> int:
    return 1 << max(0, math.ceil(math.log2(value)))


def _rounded(size: float) -> int:
    """To a power of two, between 1 MiB and 1 GiB."""
    return min(1 << 30, max(_MIB, _power_of_two(size)))
