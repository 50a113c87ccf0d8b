"""The manifests of a snapshot as columns, worked out once: filters meet all of them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType

from lakehouse.expressions.bound_filter import Bound, Leaf, fold
from lakehouse.expressions.physical_comparison import Mask, every_mask, some_mask
from lakehouse.expressions.transforms.partition_projection import LeafProjections
from lakehouse.manifests.manifest_cache import Listed
from lakehouse.scan.pruning.column_statistics import Statistics, statistics_of_summaries
from lakehouse.scan.pruning.entry_pruning import leaf_may_match
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, FieldSummary, ManifestFile
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types

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
        is_data = [one.content == CONTENT_DATA_MANIFEST for one in manifests]
        self.data, self.deletes = (
            ManifestColumns(
                [one for one, its in zip(manifests, is_data, strict=True) if its is wanted],
                manifests,
                of_data=wanted,
            )
            for wanted in (True, False)
        )
        self.has_one_spec = len({one.partition_spec_id for one in manifests}) == 1

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
        self.bytes_total = sum(one.manifest_length for one in manifests)
        self._live = [live_files(one) for one in manifests]
        self.files = None if None in self._live else sum(one or 0 for one in self._live)

    @cached_property
    def by_spec(self) -> dict[int, npt.NDArray[np.int64]]:
        """Positions of the manifests of each partition spec."""
        found: dict[int, list[int]] = {}
        for position, manifest in enumerate(self.manifests):
            found.setdefault(manifest.partition_spec_id, []).append(position)
        return {spec_id: np.array(positions) for spec_id, positions in found.items()}

    @cached_property
    def empty(self) -> Mask:
        """Which manifests certainly hold no live file."""
        return np.array([one == 0 for one in self._live], bool)

    @cached_property
    def live(self) -> npt.NDArray[np.int64]:
        """Live files by manifest, 0 where it does not say."""
        return np.array([one or 0 for one in self._live], np.int64)

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

        found = fold(
            projections.whole(where),
            leaf_mask,
            lambda one: np.full(len(rows), one),
            every_mask,
            some_mask,
        )
        if len(rows) == len(usable):
            return found
        result = np.ones(len(usable), bool)
        result[usable] = found
        return result

    def _summaries(self, spec: PartitionSpec) -> tuple[Mask, Summaries]:
        """Which manifests of the spec say something of each of its fields, and what they say."""
        width = len(spec.fields)

        def found() -> tuple[Mask, Summaries]:
            said = [self.manifests[one].partitions for one in self.by_spec[spec.spec_id]]
            rows = [one for one in said if one is not None and len(one) == width]
            return np.array([one is not None and len(one) == width for one in said], bool), rows

        return self._derived(("summaries", spec.spec_id, width), found, lambda _: 0)

    def _statistics(self, spec: PartitionSpec, place: int, kind: IcebergType) -> Statistics:
        """Of the values of one partition field."""

        def found() -> Statistics:
            rows = self._summaries(spec)[1]
            return statistics_of_summaries([row[place] for row in rows], kind)

        key = ("statistics", spec.spec_id, len(spec.fields), place, kind)
        return self._derived(key, found, _bytes_of)

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
    bounds = sum(one.nbytes for one in (known.lower, known.upper) if one is not None)
    return int(_FIELD_BYTES + bounds + 5 * len(known.all_null))
