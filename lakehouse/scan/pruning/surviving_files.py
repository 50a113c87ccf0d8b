"""From the manifests of a snapshot to the entries that may match, and how many were skipped.

The manifest list is columns, made once: filters meet all manifests together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType

from lakehouse.errors import CorruptMetadataError
from lakehouse.expressions.bound_filter import (
    FALSE,
    TRUE,
    Bound,
    Leaf,
    Mask,
    every_mask,
    fold,
    some_mask,
)
from lakehouse.expressions.transforms.partition_projection import LeafProjections
from lakehouse.manifests.manifest_cache import Listed
from lakehouse.manifests.manifest_reader import ManifestReader, OpenManifest
from lakehouse.scan.pruning.entry_pruning import (
    EntryPruner,
    Statistics,
    leaf_may_match,
    statistics_of_summaries,
)
from lakehouse.scan.reports.plan_report import FileCounts, ManifestCounts
from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, FieldSummary, ManifestFile
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.storage.storage_protocol import Storage, path_on_disk

T = TypeVar("T")
Summaries = Sequence[tuple[FieldSummary, ...]]

_INDEX_BYTES = 2048
_MANIFEST_BYTES = 64
"""What is kept of a manifest beside the list: positions, counts and masks."""
_FIELD_BYTES = 4096
"""What statistics of a partition field take beside their values."""


class ManifestIndex:
    """The data manifests and the delete manifests of a list.

    Args:
        manifests: the list.

    Attributes:
        data: of data files.
        deletes: of delete files.
        has_one_spec: whether all are of one partition spec.
    """

    def __init__(self, manifests: Listed) -> None:
        is_data = [manifest.content == CONTENT_DATA_MANIFEST for manifest in manifests]
        self.data, self.deletes = (
            ManifestColumns(
                [
                    manifest
                    for manifest, its in zip(manifests, is_data, strict=True)
                    if its is wanted
                ],
                manifests,
                of_data=wanted,
            )
            for wanted in (True, False)
        )
        self.has_one_spec = len({manifest.partition_spec_id for manifest in manifests}) == 1

    @classmethod
    def of(cls, manifests: Listed) -> ManifestIndex:
        """The index of a list, the same as long as the list is kept."""
        return manifests.derive(
            "index", cls, lambda _: _INDEX_BYTES + _MANIFEST_BYTES * len(manifests)
        )


class ManifestColumns:
    """Manifests of one kind as columns.

    Args:
        manifests: in the order of their list.
        listed: what keeps the statistics; None keeps none.
        of_data: whether they are those of data files.

    Attributes:
        manifests: in the order of their list.
        files: live files of all; None when a manifest does not say.
        bytes_total: of all.
    """

    def __init__(
        self,
        manifests: Sequence[ManifestFile],
        listed: Listed | None = None,
        *,
        of_data: bool = True,
    ) -> None:
        self.manifests = manifests
        self._listed, self._of_data = listed, of_data
        self.bytes_total = sum(manifest.manifest_length for manifest in manifests)
        self._live = [live_files(manifest) for manifest in manifests]
        self.files = None if None in self._live else sum(count or 0 for count in self._live)

    @cached_property
    def by_spec(self) -> dict[int, npt.NDArray[np.int64]]:
        """Positions of the manifests of each partition spec."""
        positions_by_spec: dict[int, list[int]] = {}
        for position, manifest in enumerate(self.manifests):
            positions_by_spec.setdefault(manifest.partition_spec_id, []).append(position)
        return {spec_id: np.array(positions) for spec_id, positions in positions_by_spec.items()}

    @cached_property
    def empty(self) -> Mask:
        """Which manifests certainly hold no live file."""
        return np.array([count == 0 for count in self._live], bool)

    @cached_property
    def live(self) -> npt.NDArray[np.int64]:
        """Live files by manifest, 0 where it does not say."""
        return np.array([count or 0 for count in self._live], np.int64)

    def may_match(
        self,
        where: Bound,
        spec: PartitionSpec,
        types: FieldTypes,
        projections: LeafProjections,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> Mask:
        """For the manifests of a spec: false only where no partition of theirs can match.

        Args:
            where: the filter.
            spec: one of `by_spec`.
            types: field types.
            projections: of its leaves, for the spec.
            checkpoint: called for each leaf; what it raises is raised.
        """
        places = {field.field_id: place for place, field in enumerate(spec.fields)}
        kinds = partition_types(spec, types)
        usable, rows = self._summaries(spec)

        def leaf_mask(leaf: Leaf) -> Mask:
            checkpoint()
            kind = kinds[leaf.field_id]
            if kind is None:
                return np.ones(len(rows), bool)
            return leaf_may_match(leaf, self._statistics(spec, places[leaf.field_id], kind))

        mask = fold(
            projections.whole(where),
            leaf_mask,
            lambda value: np.full(len(rows), value),
            every_mask,
            some_mask,
        )
        if len(rows) == len(usable):
            return mask
        result = np.ones(len(usable), bool)
        result[usable] = mask
        return result

    def _summaries(self, spec: PartitionSpec) -> tuple[Mask, Summaries]:
        """Which manifests of the spec say something of each of its fields, and what they say."""
        width = len(spec.fields)

        def make() -> tuple[Mask, Summaries]:
            listed = [self.manifests[index].partitions for index in self.by_spec[spec.spec_id]]
            rows = [row for row in listed if row is not None and len(row) == width]
            usable = [row is not None and len(row) == width for row in listed]
            return np.array(usable, bool), rows

        return self._derived(("summaries", spec.spec_id, width), make, lambda _: 0)

    def _statistics(self, spec: PartitionSpec, place: int, kind: IcebergType) -> Statistics:
        """Of the values of one partition field."""

        def make() -> Statistics:
            rows = self._summaries(spec)[1]
            return statistics_of_summaries([row[place] for row in rows], kind)

        key = ("statistics", spec.spec_id, len(spec.fields), place, kind)
        return self._derived(key, make, _bytes_of)

    def _derived(self, what: tuple[Any, ...], make: Callable[[], T], size: Callable[[T], int]) -> T:
        if self._listed is None:
            return make()
        return self._listed.derive((self._of_data, *what), lambda _: make(), size)


def live_files(manifest: ManifestFile) -> int | None:
    """Added and existing files of a manifest; None when it does not say, or contradicts itself."""
    added, existing = manifest.added_files_count, manifest.existing_files_count
    if added is None or existing is None or added < 0 or existing < 0:
        return None
    if added + existing == 0 and (manifest.added_rows_count or manifest.existing_rows_count):
        return None
    return added + existing


def _bytes_of(known: Statistics) -> int:
    bounds = sum(bounds.nbytes for bounds in (known.lower, known.upper) if bounds is not None)
    return int(_FIELD_BYTES + bounds + 5 * len(known.all_null))


_TOGETHER = 8
"""So many columnar manifests are pruned as one."""
_LITTLE_BYTES = 1 << 16


@dataclass(slots=True)
class Survivors:
    """Entries that may match and the counts of one kind of manifest."""

    parts: list[Entries] = field(default_factory=list)
    manifests: ManifestCounts = field(default_factory=ManifestCounts)
    files: FileCounts = field(default_factory=FileCounts)


@dataclass(frozen=True, slots=True)
class Search:
    """What to search manifests for.

    Attributes:
        where: the bound filter.
        reader: of their entries.
        columns: entry columns to return; None for all.
        threads: manifests read at a time.
        added_by: only entries that one of these snapshots added; None for every live entry.
        use_metrics: whether bounds and counts prune. Not for delete files: an equality delete file
            may hold columns that it does not compare, whose bounds say nothing about the rows it
            deletes.
        projections: of the filter's leaves, by spec id, as far as they were needed.
        checkpoint: called again and again; what it raises ends the search.
    """

    where: Bound
    reader: ManifestReader
    columns: Collection[str] | None
    threads: int
    added_by: frozenset[int] | None = None
    use_metrics: bool = True
    projections: dict[int, LeafProjections] = field(default_factory=dict, compare=False)
    checkpoint: Callable[[], None] = field(default=lambda: None, compare=False)

    def projected(self, spec_id: int) -> LeafProjections:
        """The projections of the filter's leaves for one of the specs."""
        projections = self.projections.get(spec_id)
        if projections is None:
            made = LeafProjections(self.reader.specs[spec_id], self.reader.types)
            projections = self.projections.setdefault(spec_id, made)
        return projections


def prune_manifests(
    manifests: ManifestColumns, search: Search, result: Survivors
) -> list[ManifestFile]:
    """The manifests that may hold a live matching file, in their order; counts the others."""
    result.manifests.total = len(manifests.manifests)
    result.manifests.bytes_total = manifests.bytes_total
    result.files.total = manifests.files
    keep = np.ones(len(manifests.manifests), bool)
    for spec_id, positions in manifests.by_spec.items():
        if spec_id not in search.reader.specs:
            path = manifests.manifests[positions[0]].manifest_path
            raise CorruptMetadataError(
                f"{path} has the partition spec {spec_id}, which the table does not know",
                location=path,
            )
        if search.where != TRUE:
            keep[positions] = manifests.may_match(
                search.where,
                search.reader.specs[spec_id],
                search.reader.types,
                search.projected(spec_id),
                search.checkpoint,
            )
    skipped = ~keep & ~manifests.empty
    result.manifests.skipped_empty += int(manifests.empty.sum())
    result.manifests.skipped_by_partition += int(skipped.sum())
    result.files.skipped_by_manifest += int(manifests.live[skipped].sum())
    return [
        manifests.manifests[index] for index in np.flatnonzero(keep & ~manifests.empty).tolist()
    ]


def prune_files(manifests: Sequence[ManifestFile], search: Search, result: Survivors) -> None:
    """Read manifests in parallel; keep live entries that may match, in manifest order."""
    specs = {
        manifest.partition_spec_id: search.reader.specs[manifest.partition_spec_id]
        for manifest in manifests
    }
    pruners = {
        spec_id: EntryPruner(
            search.where, spec, search.reader.types, search.projected(spec_id), search.checkpoint
        )
        for spec_id, spec in specs.items()
    }

    def search_group(group: Sequence[ManifestFile]) -> list[_Outcome]:
        search.checkpoint()
        return _search_group(group, search, pruners[group[0].partition_spec_id])

    threads = 1 if _are_little_work(manifests, search.reader.storage) else search.threads
    groups = list(_groups(manifests, threads))
    if len(groups) <= 1 or threads <= 1:
        outcomes = [search_group(group) for group in groups]
    else:
        with ThreadPoolExecutor(threads) as pool:
            outcomes = list(pool.map(search_group, groups))
    for outcome in itertools.chain.from_iterable(outcomes):
        _add(result, outcome)


def _are_little_work(manifests: Sequence[ManifestFile], storage: Storage) -> bool:
    """Whether threads would mostly wait for the interpreter, not for storage or decoders."""
    if not manifests or max(manifest.manifest_length for manifest in manifests) > _LITTLE_BYTES:
        return False
    return path_on_disk(storage, manifests[0].manifest_path) is not None


def _groups(manifests: Sequence[ManifestFile], threads: int) -> Iterator[Sequence[ManifestFile]]:
    """Neighbours of one spec that are looked at together, few enough that every thread has some."""
    most = max(1, min(_TOGETHER, len(manifests) // (2 * threads)))
    start = 0
    for end in range(1, len(manifests) + 1):
        full = end - start == most or end == len(manifests)
        if full or manifests[end].partition_spec_id != manifests[start].partition_spec_id:
            yield manifests[start:end]
            start = end


@dataclass(slots=True)
class _Outcome:
    """What one manifest gave; holds nothing of what was read but the survivors."""

    kind: str
    bytes_read: int
    survivors: Entries | None
    skipped_by_partition: int = 0
    skipped_by_metrics: int = 0


def _search_group(
    manifests: Sequence[ManifestFile], search: Search, pruner: EntryPruner
) -> list[_Outcome]:
    """What manifests of one spec give, in order.

    Columnar ones are pruned as one: the arrays are short, and beginning with one would cost more
    than the rest.
    """
    everything = search.where == TRUE
    first = search.columns if everything else ["status", *pruner.columns]
    if search.added_by is not None and first is not None:
        first = [*first, "snapshot_id"]
    both = None if search.columns is None or first is None else [*first, *search.columns]
    sources = [search.reader.open(manifest, both) for manifest in manifests]
    if (
        everything
        or search.where == FALSE
        or len(sources) == 1
        or not all(source.has_columnar for source in sources)
    ):
        return [_search_one(source, source.entries(first), search, pruner) for source in sources]
    return _search_together(sources, first, search, pruner)


def _search_together(
    sources: Sequence[OpenManifest],
    first: Collection[str] | None,
    search: Search,
    pruner: EntryPruner,
) -> list[_Outcome]:
    parts = [source.entries(first) for source in sources]
    merged = Entries.concat(parts)
    kept, by_partition, by_metrics = _kept(
        Entries(merged.table.combine_chunks(), merged.spec), search, pruner
    )
    outcomes = []
    for source, mask in zip(
        sources, np.split(kept, np.cumsum([len(part) for part in parts])[:-1]), strict=True
    ):
        survivors = source.entries(search.columns).filter(pa.array(mask)) if mask.any() else None
        outcomes.append(_Outcome(source.kind, source.bytes_read, survivors))
    outcomes[0].skipped_by_partition, outcomes[0].skipped_by_metrics = by_partition, by_metrics
    return outcomes


def _search_one(
    source: OpenManifest, entries: Entries, search: Search, pruner: EntryPruner
) -> _Outcome:
    if search.where == FALSE:
        return _Outcome(
            source.kind, source.bytes_read, None, int(_wanted(entries, search.added_by).sum())
        )
    if search.where == TRUE:
        live = _wanted(entries, search.added_by)
        return _Outcome(
            source.kind,
            source.bytes_read,
            entries if live.all() else entries.filter(pa.array(live)),
        )
    kept, by_partition, by_metrics = _kept(entries, search, pruner)
    survivors = source.entries(search.columns).filter(pa.array(kept)) if kept.any() else None
    return _Outcome(source.kind, source.bytes_read, survivors, by_partition, by_metrics)


def _kept(entries: Entries, search: Search, pruner: EntryPruner) -> tuple[Mask, int, int]:
    """Entries that may match, and how many were skipped by partition and by metrics."""
    live = _wanted(entries, search.added_by)
    in_partition = live & pruner.may_match_partition(entries)
    by_metrics = search.use_metrics and in_partition.any()
    kept = (
        in_partition & pruner.may_match_metrics(entries, in_partition)
        if by_metrics
        else in_partition
    )
    return kept, int(live.sum() - in_partition.sum()), int(in_partition.sum() - kept.sum())


def _wanted(entries: Entries, added_by: frozenset[int] | None) -> Mask:
    status = np.asarray(entries.table["status"])
    if added_by is None:
        live: Mask = status != STATUS_DELETED
        return live
    added: Mask = (status == STATUS_ADDED) & np.isin(
        np.asarray(entries.table["snapshot_id"]), list(added_by)
    )
    return added


def _add(result: Survivors, outcome: _Outcome) -> None:
    counts, files = result.manifests, result.files
    counts.read += 1
    counts.bytes_read += outcome.bytes_read
    kind = f"read_{outcome.kind}"
    setattr(counts, kind, getattr(counts, kind) + 1)
    files.skipped_by_partition += outcome.skipped_by_partition
    files.skipped_by_metrics += outcome.skipped_by_metrics
    if outcome.survivors is not None and len(outcome.survivors):
        table = outcome.survivors.table
        files.planned += len(outcome.survivors)
        files.bytes_planned += int(np.asarray(table["file_size_in_bytes"]).sum())
        files.rows_planned += int(np.asarray(table["record_count"]).sum())
        result.parts.append(outcome.survivors)
