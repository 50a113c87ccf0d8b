"""Which files snapshots reach, and which became unreachable.

Manifests are read as Avro: that is the truth, columnar ones are derived. A read error on the side
of what is kept always propagates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from lakehouse.errors import NoSuchFileError
from lakehouse.maintenance.reachability.location_keys import LocationKeys
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.columnar_manifest import columnar_path
from lakehouse.spec.manifests.data_file import STATUS_DELETED
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage

T = TypeVar("T")
R = TypeVar("R")
_THREADS = 8
_COLUMNS = ("status", "file_path", "content", "file_size_in_bytes")


class LiveFile(NamedTuple):
    """A live file of a manifest: location, content (0 data, 1 and 2 deletes), bytes."""

    location: str
    content: int
    size: int


class Walker(Protocol):
    """Reads the metadata tree below a snapshot."""

    def manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        """The manifests of a snapshot."""

    def live_files(self, manifest: ManifestFile) -> Iterable[LiveFile]:
        """Files of entries that are not DELETED."""


@dataclass(frozen=True, slots=True)
class StorageWalker(Walker):
    """Reads manifest lists and manifests from the storage of the table.

    Attributes:
        metadata: specs and schemas to decode manifests with; of a version that still knows the
            snapshots' specs.
    """

    storage: Storage
    metadata: TableMetadata
    _reader: ManifestReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reader", ManifestReader.of(self.storage, self.metadata))

    def manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        return load_manifests(self.storage, snapshot)

    def live_files(self, manifest: ManifestFile) -> Iterator[LiveFile]:
        table = self._reader.entries(manifest, _COLUMNS).table
        columns = (table.column(name).to_pylist() for name in _COLUMNS)
        for status, location, content, size in zip(*columns, strict=True):
            if status != STATUS_DELETED:
                yield LiveFile(location, content, size)


class FileKind(StrEnum):
    """What a file of a table is, in the order in which it is safe to delete: leaves first."""

    DATA = "data"
    DELETES = "deletes"
    STATISTICS = "statistics"
    COLUMNAR_MANIFEST = "columnar_manifests"
    MANIFEST = "manifests"
    MANIFEST_LIST = "manifest_lists"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Files that only the given snapshots reach.

    Attributes:
        files: kind -> location -> bytes (0 where the metadata does not record them), in deleting
            order.
        missing: metadata files of the expired side that were already gone: what they named is not
            in `files`.
    """

    files: Mapping[FileKind, Mapping[str, int]]
    missing: tuple[str, ...] = ()

    def without(self, refused: Callable[[str], bool]) -> Unreachable:
        """The files that `refused` does not hold for."""
        files = {
            kind: {location: size for location, size in sizes.items() if not refused(location)}
            for kind, sizes in self.files.items()
        }
        return Unreachable({kind: sizes for kind, sizes in files.items() if sizes}, self.missing)

    def locations(self) -> list[str]:
        """All locations, leaves first."""
        return [location for kind in FileKind for location in self.files.get(kind, {})]

    @property
    def count(self) -> int:
        """Number of files."""
        return sum(len(sizes) for sizes in self.files.values())

    @property
    def bytes(self) -> int:
        """Known bytes."""
        return sum(sum(sizes.values()) for sizes in self.files.values())


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`map` over threads, in order; the first error propagates.

    At most four results a thread wait for the caller.
    """
    if len(items) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="walk") as pool:
        ahead: deque[Future[R]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) >= 4 * _THREADS:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def statistics_locations(
    metadata: TableMetadata, snapshot_ids: Iterable[int] | None = None
) -> dict[str, int]:
    """Location -> bytes of statistics files, table's and partitions', of all or given snapshots."""
    wanted = None if snapshot_ids is None else set(snapshot_ids)
    sizes: dict[str, int] = {}
    for record in (*metadata.statistics, *metadata.partition_statistics):
        if wanted is None or record.get("snapshot-id") in wanted:
            sizes[str(record["statistics-path"])] = int(record.get("file-size-in-bytes") or 0)
    return sizes


@dataclass(slots=True)
class _Candidates:
    keys: LocationKeys = field(default_factory=LocationKeys)
    locations: dict[FileKind, dict[str, tuple[str, int]]] = field(
        default_factory=lambda: {kind: {} for kind in FileKind}
    )

    def add(self, kind: FileKind, location: str, size: int) -> None:
        self.locations[kind][self.keys.key(location)] = (location, size)

    def keep(self, location: str) -> None:
        key = self.keys.key(location)
        for locations in self.locations.values():
            locations.pop(key, None)

    def unreachable(self, missing: Sequence[str]) -> Unreachable:
        files = {
            kind: dict(locations.values())
            for kind, locations in self.locations.items()
            if locations
        }
        return Unreachable(files=files, missing=tuple(missing))


def unreachable_files(
    expired: Sequence[Snapshot],
    expired_statistics: Mapping[str, int],
    kept: TableMetadata,
    walker: Walker,
    *,
    without: frozenset[int] = frozenset(),
) -> Unreachable:
    """Files that `expired` snapshots reach and no snapshot of `kept` does.

    Args:
        expired: snapshots that are gone, or, in a plan, would go.
        expired_statistics: statistics files recorded for them.
        kept: the metadata after the commit; every one of its snapshots counts, whether a ref
            reaches it or not.
        walker: reads the tree. Metadata files of the expired side that are already gone narrow the
            result; any other error, and every error on the kept side, propagates.
        without: snapshots of `kept` to leave out, for a plan made before the commit.
    """
    candidates = _Candidates()
    missing: list[str] = []
    kept_snapshots = [
        snapshot for snapshot in kept.snapshots if snapshot.snapshot_id not in without
    ]

    manifests = _expired_manifests(expired, candidates, walker, missing)
    for location, size in expired_statistics.items():
        candidates.add(FileKind.STATISTICS, location, size)

    kept_manifests: dict[str, ManifestFile] = {}
    for listed in in_parallel(walker.manifests, kept_snapshots):
        for manifest in listed:
            kept_manifests.setdefault(manifest.manifest_path, manifest)
    for snapshot in kept_snapshots:
        if snapshot.manifest_list:
            candidates.keep(snapshot.manifest_list)
    for path in kept_manifests:
        candidates.keep(path)
        candidates.keep(columnar_path(path))
        manifests.pop(candidates.keys.key(path), None)
    for location in statistics_locations(
        kept, [snapshot.snapshot_id for snapshot in kept_snapshots] if without else None
    ):
        candidates.keep(location)

    _expired_files(list(manifests.values()), candidates, walker, missing)
    if candidates.locations[FileKind.DATA] or candidates.locations[FileKind.DELETES]:
        for files in in_parallel(
            lambda manifest: list(walker.live_files(manifest)), list(kept_manifests.values())
        ):
            for file in files:
                candidates.keep(file.location)
    return candidates.unreachable(missing)


def _expired_manifests(
    expired: Sequence[Snapshot], candidates: _Candidates, walker: Walker, missing: list[str]
) -> dict[str, ManifestFile]:
    manifests: dict[str, ManifestFile] = {}
    for snapshot, listed in zip(
        expired, in_parallel(_tolerating_absence(walker.manifests), expired), strict=True
    ):
        if listed is None:
            missing.append(snapshot.manifest_list or "")
            continue
        if snapshot.manifest_list:
            candidates.add(FileKind.MANIFEST_LIST, snapshot.manifest_list, 0)
        for manifest in listed:
            manifests[candidates.keys.key(manifest.manifest_path)] = manifest
            candidates.add(FileKind.MANIFEST, manifest.manifest_path, manifest.manifest_length)
            candidates.add(FileKind.COLUMNAR_MANIFEST, columnar_path(manifest.manifest_path), 0)
    return manifests


def _expired_files(
    manifests: Sequence[ManifestFile], candidates: _Candidates, walker: Walker, missing: list[str]
) -> None:
    def live(manifest: ManifestFile) -> list[LiveFile]:
        return list(walker.live_files(manifest))

    for manifest, files in zip(
        manifests, in_parallel(_tolerating_absence(live), manifests), strict=True
    ):
        if files is None:
            missing.append(manifest.manifest_path)
            continue
        for file in files:
            candidates.add(
                FileKind.DELETES if file.content else FileKind.DATA, file.location, file.size
            )


def _tolerating_absence(function: Callable[[T], R]) -> Callable[[T], R | None]:
    def read(item: T) -> R | None:
        try:
            return function(item)
        except NoSuchFileError:
            return None

    return read


def iterate_reachable(
    metadata: TableMetadata,
    metadata_location: str,
    walker: Walker,
    *,
    files: Callable[[ManifestFile], Iterable[str]] | None = None,
) -> Iterator[str]:
    """Every file that this metadata reaches, from metadata files down to data and delete files.

    All snapshots count, also those that no ref reaches. Every read error propagates. Data files may
    come more than once.

    Args:
        metadata: of the table.
        metadata_location: the file that holds it.
        walker: reads the tree.
        files: what a manifest names, in place of the walker.
    """
    yield metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from statistics_locations(metadata)
    snapshots = list(metadata.snapshots)
    yield from (snapshot.manifest_list for snapshot in snapshots if snapshot.manifest_list)
    manifests: dict[str, ManifestFile] = {}
    for listed in in_parallel(walker.manifests, snapshots):
        for manifest in listed:
            manifests.setdefault(manifest.manifest_path, manifest)
    for path in manifests:
        yield path
        yield columnar_path(path)

    def live(manifest: ManifestFile) -> list[str]:
        if files is not None:
            return list(files(manifest))
        return [file.location for file in walker.live_files(manifest)]

    for of_manifest in in_parallel(live, list(manifests.values())):
        yield from of_manifest


def reachable_keys(
    metadata: TableMetadata, metadata_location: str, walker: Walker, keys: LocationKeys
) -> set[str]:
    """Keys of every reachable file (see `iterate_reachable`)."""
    return {
        keys.key(location) for location in iterate_reachable(metadata, metadata_location, walker)
    }
