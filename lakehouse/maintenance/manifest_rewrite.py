"""Rewrites manifests by partition, with columnar manifests, so that planning opens few.

Those without columnar ones, of other writers and small ones of ours, can get them alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.maintenance.shown_plan import Progress, Report, human_bytes, listing, no_progress
from lakehouse.manifests.manifest_merging import Grouping
from lakehouse.manifests.manifest_reader import load_manifests
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.columnar_manifest import checksum_of
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import refuse_unwritable
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.transaction import Transaction

_WELL_FILLED = 0.5
"""A manifest below this part of the target counts as small."""
_MAX_OVERLAP = 2.0
"""Above so many manifests on average around a partition value, clustering pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteOptions:
    """When and how manifests are rewritten.

    >>> _ = events.append(more)
    >>> events.rewrite_manifests(lh.ManifestRewriteOptions(force=True)).replaced_manifests
    2

    Attributes:
        target_size_bytes: None takes `commit.manifest.target-size-bytes`.
        force: rewrite manifests that are few and well clustered, too.
    """

    target_size_bytes: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewritePlan(Report):
    """Whether and why the manifests of the current snapshot would be regrouped.

    Attributes:
        manifests: of the current snapshot.
        expected_manifests: how many a rewrite leaves, about.
        overlap: how many data manifests, on average, hold the values of the first partition field
            that one of them spans.
        reasons: why a rewrite pays; empty when it does not and nothing would be done.
    """

    identifier: Identifier
    version: TableVersion
    target_bytes: int
    manifests: tuple[ManifestFile, ...]
    expected_manifests: int
    overlap: float
    reasons: tuple[str, ...]

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot planned against."""
        return self.version.metadata.current_snapshot_id

    @property
    def bytes(self) -> int:
        """Size of the manifests."""
        return sum(manifest.manifest_length for manifest in self.manifests)

    def title(self) -> str:
        return f"Rewrite manifests of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "rewrite-manifests",
            "snapshot_id": self.snapshot_id,
            "manifests": len(self.manifests),
            "bytes": self.bytes,
            "expected_manifests": self.expected_manifests,
            "overlap": round(self.overlap, 3),
            "target_size_bytes": self.target_bytes,
            "rewrite": bool(self.reasons),
            "reasons": list(self.reasons),
            "files": [manifest.manifest_path for manifest in self.manifests],
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "manifests", len(self.manifests)
        yield "bytes", human_bytes(self.bytes)
        yield (
            "manifests expected instead",
            self.expected_manifests if self.reasons else len(self.manifests),
        )
        yield "overlap", f"{self.overlap:.1f} manifests around a value"
        yield "why", "; ".join(self.reasons) or "nothing to do"

    def detail(self) -> RenderableType | None:
        if not self.reasons:
            return None
        rows = (
            (
                m.manifest_path.rsplit("/", 1)[-1],
                m.partition_spec_id,
                _live_files(m),
                human_bytes(m.manifest_length),
            )
            for m in self.manifests
        )
        return listing(("manifest", "#spec", "#files", "#bytes"), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteResult(Report):
    """What a manifest rewrite did; snapshot_id is None when there was nothing to do."""

    identifier: Identifier
    snapshot_id: int | None
    replaced_manifests: int
    added_manifests: int
    kept_manifests: int

    def title(self) -> str:
        return f"Rewrote manifests of {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "manifests replaced", self.replaced_manifests
        yield "manifests added", self.added_manifests
        yield "manifests kept", self.kept_manifests


def plan_manifest_rewrite(
    catalog: Catalog,
    identifier: Identifier,
    options: ManifestRewriteOptions | None = None,
    *,
    environment: Environment | None = None,  # noqa: ARG001 - every plan function has the same shape
) -> ManifestRewritePlan:
    """Judge the manifests of the current snapshot by the manifest list alone.

    Raises:
        InvalidPropertyError: `commit.manifest.target-size-bytes` is not a positive integer.
        UnsupportedFeatureError: manifests of a v1 table, or encrypted ones, would be rewritten.
    """
    options = options or ManifestRewriteOptions()
    version = catalog.load(identifier)
    metadata = version.metadata
    properties = TableProperties(metadata.properties)
    target = options.target_size_bytes or properties.manifest_target_size_bytes
    manifests = _manifests(catalog, version, metadata.current_snapshot())
    group_of = Grouping(metadata).group
    expected = _expected(manifests, group_of, target)
    overlap = manifest_overlap(manifests, group_of)
    reasons = _reasons(manifests, expected, overlap, target, force=options.force)
    if reasons:
        refuse_unwritable(metadata, metadata.current_snapshot())
    return ManifestRewritePlan(
        identifier=identifier,
        version=version,
        target_bytes=target,
        manifests=tuple(manifests),
        expected_manifests=expected,
        overlap=overlap,
        reasons=reasons,
    )


def execute_manifest_rewrite(
    catalog: Catalog,
    plan: ManifestRewritePlan,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ManifestRewriteResult:
    """Regroup the live entries by partition in one commit; appends beside it are kept.

    Raises:
        CommitConflictError, ValidationConflictError: other writers kept winning; nothing was
            changed.
        CommitStateUnknownError: the reply was lost; nothing was deleted.
    """
    progress = progress or no_progress
    if not plan.reasons or not plan.manifests:
        return ManifestRewriteResult(
            identifier=plan.identifier,
            snapshot_id=None,
            replaced_manifests=0,
            added_manifests=0,
            kept_manifests=len(plan.manifests),
        )
    progress("rewrite manifests", 0, len(plan.manifests))
    transaction = Transaction(
        catalog, plan.identifier, decided_on=plan.version, environment=environment
    )
    committed = transaction.rewrite_manifests(target_size_bytes=plan.target_bytes).commit(
        {"lakehouse.maintenance": "rewrite-manifests"}
    )
    before = {manifest.manifest_path for manifest in plan.manifests}
    after = before
    if committed.snapshot is not None:
        after = {
            manifest.manifest_path
            for manifest in _manifests(catalog, committed.version, committed.snapshot)
        }
    progress("rewrite manifests", len(plan.manifests), len(plan.manifests))
    return ManifestRewriteResult(
        identifier=plan.identifier,
        snapshot_id=None if committed.snapshot is None else committed.snapshot.snapshot_id,
        replaced_manifests=len(before - after),
        added_manifests=len(after - before),
        kept_manifests=len(after & before),
    )


def rewrite_manifests(
    catalog: Catalog,
    identifier: Identifier,
    options: ManifestRewriteOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ManifestRewriteResult:
    """Plan and execute; see `plan_manifest_rewrite` and `execute_manifest_rewrite`."""
    plan = plan_manifest_rewrite(catalog, identifier, options, environment=environment)
    return execute_manifest_rewrite(catalog, plan, environment=environment, progress=progress)


def manifest_overlap(
    manifests: Sequence[ManifestFile],
    group_of: Callable[[ManifestFile], Hashable] = attrgetter("partition_spec_id"),
) -> float:
    """How many data manifests of a group, on average, overlap the range of one of them.

    The range is that of the first partition field, and each overlaps itself: 1.0 is perfect
    clustering. Manifests without partition summaries overlap all of their group. 0 without data
    manifests. Groups are what may be merged, see `Grouping`.
    """
    total = 0
    count = 0
    groups: dict[Hashable, list[ManifestFile]] = {}
    for manifest in manifests:
        if manifest.content == 0:
            groups.setdefault(group_of(manifest), []).append(manifest)
    for group in groups.values():
        ranges = [_range(manifest) for manifest in group]
        count += len(ranges)
        bounded = [range_ for range_ in ranges if range_ is not None]
        unknown = len(ranges) - len(bounded)
        lows, highs = sorted(low for low, _ in bounded), sorted(high for _, high in bounded)
        # those that begin before it ends, less those that end before it begins
        around = sum(bisect_right(lows, high) - bisect_left(highs, low) for low, high in bounded)
        total += unknown * len(ranges) + unknown * len(bounded) + around
    return total / count if count else 0.0


def _range(manifest: ManifestFile) -> tuple[bytes, bytes] | None:
    """Bounds of the first partition field as numbers: bytes that sort like values of one sign.

    Good enough to measure clustering.
    """
    if not manifest.partitions:
        return None
    summary = manifest.partitions[0]
    if summary.lower_bound is None or summary.upper_bound is None:
        return None
    low, high = summary.lower_bound, summary.upper_bound
    if len(low) == len(high) and len(low) in (4, 8):
        low, high = low[::-1], high[::-1]
    return (low, high) if low <= high else (high, low)


def _expected(
    manifests: Sequence[ManifestFile], group_of: Callable[[ManifestFile], Hashable], target: int
) -> int:
    sizes: dict[Hashable, int] = {}
    for manifest in manifests:
        key = group_of(manifest)
        sizes[key] = sizes.get(key, 0) + manifest.manifest_length
    return sum(max(1, round(size / target)) for size in sizes.values())


def _reasons(
    manifests: Sequence[ManifestFile], expected: int, overlap: float, target: int, *, force: bool
) -> tuple[str, ...]:
    if not manifests:
        return ()
    reasons = []
    small = sum(manifest.manifest_length < _WELL_FILLED * target for manifest in manifests)
    if small > 1 and expected < len(manifests):
        reasons.append(f"{small} of {len(manifests)} manifests are below half of the target size")
    if overlap > _MAX_OVERLAP:
        reasons.append(f"on average {overlap:.1f} manifests around a partition value")
    if force and not reasons:
        reasons.append("requested")
    return tuple(reasons)


def _live_files(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _manifests(
    catalog: Catalog, version: TableVersion, snapshot: Snapshot | None
) -> list[ManifestFile]:
    return (
        []
        if snapshot is None
        else load_manifests(catalog.storage(version.metadata.location), snapshot)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarPlan(Report):
    """Manifests of the current snapshot without a columnar manifest.

    Attributes:
        manifests: how many the snapshot has.
        missing: those without a columnar manifest.
    """

    identifier: Identifier
    version: TableVersion
    manifests: int
    missing: tuple[ManifestFile, ...]

    @property
    def bytes(self) -> int:
        """Avro bytes to decode."""
        return sum(manifest.manifest_length for manifest in self.missing)

    def title(self) -> str:
        return f"Columnar manifests of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "rewrite-manifests --columnar",
            "snapshot_id": self.version.metadata.current_snapshot_id,
            "manifests": self.manifests,
            "missing": [manifest.manifest_path for manifest in self.missing],
            "bytes": self.bytes,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "manifests", self.manifests
        yield "without a columnar one", len(self.missing)
        yield "to decode", human_bytes(self.bytes)

    def detail(self) -> RenderableType | None:
        rows = (
            (manifest.manifest_path.rsplit("/", 1)[-1], human_bytes(manifest.manifest_length))
            for manifest in self.missing
        )
        return listing(("manifest", "#bytes"), rows) if self.missing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarResult(Report):
    """Columnar manifests written; snapshot_id is None when there was nothing to do."""

    identifier: Identifier
    snapshot_id: int | None
    written: int

    def title(self) -> str:
        return f"Wrote columnar manifests of {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "columnar manifests written", self.written


def plan_columnar(catalog: Catalog, identifier: Identifier) -> ColumnarPlan:
    """Find the manifests without a columnar one.

    Raises NoSuchTableError, StorageError, CorruptMetadataError.
    """
    version = catalog.load(identifier)
    storage = catalog.storage(version.metadata.location)
    snapshot = version.metadata.current_snapshot()
    manifests = [] if snapshot is None else load_manifests(storage, snapshot)
    missing = tuple(
        manifest for manifest in manifests if checksum_of(manifest.manifest_path) is None
    )
    return ColumnarPlan(
        identifier=identifier, version=version, manifests=len(manifests), missing=missing
    )


def execute_columnar(
    catalog: Catalog,
    plan: ColumnarPlan,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ColumnarResult:
    """Write the manifests once more, named by the checksums of columnar ones, in one commit.

    Raises:
        CommitConflictError, ValidationConflictError: other writers kept winning; nothing was
            changed.
        CommitStateUnknownError: the reply was lost; nothing was deleted.
        CorruptMetadataError | StorageError: a manifest cannot be read, or none written.
    """
    report = progress or no_progress
    report("columnar manifests", 0, len(plan.missing))
    committed = None
    if plan.missing:
        transaction = Transaction(
            catalog, plan.identifier, decided_on=plan.version, environment=environment
        )
        committed = (
            transaction.add_columnar_manifests()
            .commit({"lakehouse.maintenance": "add-twins"})
            .snapshot
        )
    report("columnar manifests", len(plan.missing), len(plan.missing))
    count = 0 if committed is None else int(committed.summary["manifests-created"])
    return ColumnarResult(
        identifier=plan.identifier,
        snapshot_id=None if committed is None else committed.snapshot_id,
        written=count,
    )
