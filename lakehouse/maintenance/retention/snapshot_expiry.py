"""Expire snapshots and remove exactly the files that became unreachable.

The order makes it safe and resumable: journal, commit, reachability from the metadata as it is
then, deletion (leaves first), journal gone. A kill anywhere leaves either the old table or a
journal that the next expiry finishes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import OwnFolders, check_gc_enabled, check_table
from lakehouse.catalog.metadata_files import read_metadata
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CorruptMetadataError,
    NoSuchFileError,
    StorageError,
    ValidationConflictError,
)
from lakehouse.maintenance.reachability.location_keys import (
    LocationKeys,
    is_bookkeeping,
    metadata_version,
)
from lakehouse.maintenance.reachability.neighbours import find_neighbours
from lakehouse.maintenance.reachability.reachable_files import (
    FileKind,
    StorageWalker,
    Unreachable,
    in_parallel,
    unreachable_files,
)
from lakehouse.maintenance.retention.expiry_journal import (
    Expired,
    Journal,
    expired_of,
    journal_location,
    read_journals,
)
from lakehouse.maintenance.retention.retention_rules import decide_retention
from lakehouse.maintenance.shown_plan import Progress, Report, human_bytes, listing, no_progress
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction

log = logging.getLogger(__name__)

_DELETE_CHUNK = 1000
_ABANDONED_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryOptions:
    """Which snapshots may expire, and what is kept in any case.

    >>> options = lh.ExpiryOptions(retain_last=1, remove_files=False)
    >>> _ = events.expire_snapshots(options)

    Attributes:
        older_than_ms: snapshots committed before this time may expire; None takes
            `history.expire.max-snapshot-age-ms`.
        retain_last: at least this many ancestors of every branch stay; None takes
            `history.expire.min-snapshots-to-keep`.
        snapshot_ids: expire exactly these as well, whatever their age; refused when a ref names
            one.
        remove_files: False leaves unreachable files to orphan removal.
        remove_old_metadata: also delete `metadata.json` files older than the cut that are no longer
            in the metadata log.
        attempts: how often to plan again when a concurrent commit moved a ref.
    """

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    remove_files: bool = True
    remove_old_metadata: bool = False
    attempts: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan(Report):
    """Snapshots and refs that retention lets go, and the files that would become unreachable.

    Attributes:
        version: the table the plan was made from.
        now_ms: the clock when it was made.
        reasons: expired snapshot id -> why it goes.
        ref_reasons: expired ref -> why it goes.
        unreachable: files to delete: only expired snapshots reach them; empty when files are not to
            be removed.
        left: reason -> number of such files that stay, because they are not the table's alone.
        old_metadata: metadata files to delete, location -> bytes.
    """

    identifier: Identifier
    version: TableVersion
    now_ms: int
    options: ExpiryOptions
    reasons: Mapping[int, str]
    ref_reasons: Mapping[str, str]
    kept_snapshots: int
    unreachable: Unreachable
    left: Mapping[str, int] = field(default_factory=dict)
    old_metadata: Mapping[str, int] = field(default_factory=dict)

    @property
    def expired_snapshot_ids(self) -> tuple[int, ...]:
        """Oldest first, as in the metadata."""
        return tuple(self.reasons)

    @property
    def expired_refs(self) -> tuple[str, ...]:
        """Branches and tags that expire, by name."""
        return tuple(sorted(self.ref_reasons))

    @property
    def file_count(self) -> int:
        """Files to delete, without columnar manifests: small manifests have none."""
        return (
            self.unreachable.count
            - len(self.unreachable.files.get(FileKind.COLUMNAR_MANIFEST, {}))
            + len(self.old_metadata)
        )

    @property
    def bytes(self) -> int:
        """Bytes freed, as far as the metadata records them."""
        return self.unreachable.bytes + sum(self.old_metadata.values())

    def title(self) -> str:
        return f"Expire snapshots of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "expire",
            "expired_snapshots": [
                {"snapshot_id": key, "reason": why} for key, why in self.reasons.items()
            ],
            "expired_refs": [
                {"name": key, "reason": why} for key, why in sorted(self.ref_reasons.items())
            ],
            "kept_snapshots": self.kept_snapshots,
            "files": {kind.value: sorted(sizes) for kind, sizes in self.unreachable.files.items()},
            "left": dict(self.left),
            "old_metadata": sorted(self.old_metadata),
            "file_count": self.file_count,
            "bytes": self.bytes,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshots to expire", len(self.reasons)
        yield "snapshots kept", self.kept_snapshots
        if self.ref_reasons:
            yield "refs to remove", ", ".join(self.expired_refs)
        for kind, sizes in self.unreachable.files.items():
            if kind is not FileKind.COLUMNAR_MANIFEST:
                yield f"{kind.value.replace('_', ' ')} to delete", len(sizes)
        for reason, count in self.left.items():
            yield f"left alone: {reason}", count
        if self.old_metadata:
            yield "old metadata files to delete", len(self.old_metadata)
        yield "bytes freed", human_bytes(self.bytes)

    def detail(self) -> RenderableType | None:
        if not self.reasons:
            return None
        return listing(("#snapshot", "why"), self.reasons.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryResult(Report):
    """What an expiry did: snapshots removed and files deleted.

    Attributes:
        deleted_files: kind -> number of files deleted (columnar manifests that never existed are
            not counted).
        deleted_bytes: as far as the metadata records them.
        left_files: reason -> number of unreachable files that stay, because they are not the
            table's alone.
        resumed: journals of earlier, killed expiries that were finished first.
    """

    identifier: Identifier
    expired_snapshot_ids: tuple[int, ...]
    expired_refs: tuple[str, ...]
    deleted_files: Mapping[str, int]
    deleted_bytes: int
    metadata_location: str
    left_files: Mapping[str, int] = field(default_factory=dict)
    resumed: int = 0

    def title(self) -> str:
        return f"Expired snapshots of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "expired_snapshot_ids": list(self.expired_snapshot_ids),
            "expired_refs": list(self.expired_refs),
            "deleted_files": dict(self.deleted_files),
            "deleted_bytes": self.deleted_bytes,
            "left_files": dict(self.left_files),
            "resumed": self.resumed,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshots expired", len(self.expired_snapshot_ids)
        if self.expired_refs:
            yield "refs removed", ", ".join(self.expired_refs)
        for kind, count in self.deleted_files.items():
            yield f"{kind.replace('_', ' ')} deleted", count
        yield "bytes freed", human_bytes(self.deleted_bytes)
        for reason, count in self.left_files.items():
            yield f"left alone: {reason}", count
        if self.resumed:
            yield "earlier expiries finished", self.resumed


def plan_expiry(
    catalog: Catalog,
    identifier: Identifier,
    options: ExpiryOptions | None = None,
    *,
    environment: Environment | None = None,
    list_files: bool = True,
) -> ExpiryPlan:
    """Decide what goes. Reads metadata only, changes nothing.

    Args:
        catalog: where the table is.
        identifier: the table.
        options: what may go.
        environment: the clock.
        list_files: whether to walk the manifests for the files that would go; the execution walks
            them anyway, after its commit.

    Raises:
        MaintenanceRefusedError: `gc.enabled` is false and files are to be removed, or a ref names a
            snapshot of `snapshot_ids`.
        NoSuchSnapshotError: `snapshot_ids` names an unknown snapshot.
        InvalidLocationError: files are to be removed, and the table's folders lie outside the
            warehouse.
        StorageError, NoSuchFileError, CorruptMetadataError: metadata that is kept, or of another
            table, could not be read.
    """
    options = options or ExpiryOptions()
    now_ms = (environment or Environment.system()).now_ms()
    version = catalog.load(identifier)
    metadata = version.metadata
    if options.remove_files:
        check_gc_enabled(identifier, metadata, "remove files of expired snapshots")
    retention = decide_retention(
        metadata,
        now_ms,
        older_than_ms=options.older_than_ms,
        retain_last=options.retain_last,
        snapshot_ids=options.snapshot_ids,
    )
    storage = catalog.storage(metadata.location)
    removable = Deletable(Unreachable(files={}), {})
    if list_files and options.remove_files and retention.expired:
        expired = expired_of(metadata, tuple(retention.expired))
        unreachable = unreachable_files(
            expired.snapshots,
            expired.statistics,
            metadata,
            StorageWalker(storage, metadata),
            without=frozenset(retention.expired),
        )
        removable = deletable(catalog, version, _measured(unreachable, storage))
    return ExpiryPlan(
        identifier=identifier,
        version=version,
        now_ms=now_ms,
        options=options,
        reasons=retention.expired,
        ref_reasons=retention.expired_refs,
        kept_snapshots=len(retention.kept),
        unreachable=removable.files,
        left=removable.left,
        old_metadata=old_metadata_files(storage, version, retention.cut_ms)
        if options.remove_old_metadata
        else {},
    )


def _measured(unreachable: Unreachable, storage: Storage) -> Unreachable:
    """Add sizes that metadata does not record; leave out columnar manifests that were never made.

    That is so for small manifests.
    """

    def size(location: str) -> int | None:
        try:
            return storage.size(location)
        except NoSuchFileError:
            return None

    files = dict(unreachable.files)
    for kind in (FileKind.COLUMNAR_MANIFEST, FileKind.MANIFEST_LIST):
        locations = list(files.get(kind, {}))
        sizes = dict(zip(locations, in_parallel(size, locations), strict=True))
        files[kind] = {location: size for location, size in sizes.items() if size is not None}
    return replace(unreachable, files={kind: sizes for kind, sizes in files.items() if sizes})


def execute_expiry(
    catalog: Catalog,
    plan: ExpiryPlan,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ExpiryResult:
    """Commit the removal of the plan's snapshots and refs, then delete what became unreachable.

    Reachability is computed again from the table as it is after the commit: a file that a
    concurrent commit made reachable stays.

    Raises:
        ValidationConflictError, CommitConflictError: a concurrent commit moved a ref; nothing was
            changed. Plan again.
        CommitStateUnknownError: nothing was deleted; the next expiry finds out and finishes.
        StorageError: files could not be deleted, or kept metadata could not be read; the next
            expiry finishes.
    """
    environment = environment or Environment.system()
    progress = progress or no_progress
    metadata = plan.version.metadata
    storage = catalog.storage(metadata.location)
    deletions = _Deletions(storage, progress)
    resumed = 0
    if plan.options.remove_files:
        check_table(catalog, metadata)
        resumed = _resume(catalog, plan.identifier, environment.now_ms(), deletions)
    location = plan.version.metadata_location
    if plan.reasons or plan.ref_reasons:
        journal = Journal(
            location=journal_location(metadata, str(environment.new_uuid())),
            table_uuid=metadata.table_uuid,
            created_ms=plan.now_ms,
            metadata_location=plan.version.metadata_location,
            snapshot_ids=plan.expired_snapshot_ids,
        )
        if plan.options.remove_files:
            journal.write(storage)
        location = _commit(catalog, plan, journal, storage, environment)
        if plan.options.remove_files:
            expired = expired_of(metadata, plan.expired_snapshot_ids)
            _finish(catalog, plan.identifier, journal, expired, deletions)
    deletions.delete({FileKind.METADATA: plan.old_metadata})
    return ExpiryResult(
        identifier=plan.identifier,
        expired_snapshot_ids=plan.expired_snapshot_ids,
        expired_refs=plan.expired_refs,
        deleted_files=deletions.counts,
        deleted_bytes=deletions.bytes,
        metadata_location=location,
        left_files=deletions.left,
        resumed=resumed,
    )


def expire_snapshots(
    catalog: Catalog,
    identifier: Identifier,
    options: ExpiryOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ExpiryResult:
    """Plan and execute, planning again when a concurrent commit moved a ref in between.

    Raises as the two do.
    """
    options = options or ExpiryOptions()
    environment = environment or Environment.system()
    for attempt in range(options.attempts):
        plan = plan_expiry(catalog, identifier, options, environment=environment, list_files=False)
        try:
            return execute_expiry(catalog, plan, environment=environment, progress=progress)
        except (ValidationConflictError, CommitConflictError):
            if attempt + 1 == options.attempts:
                raise
            environment.sleep(0.05 * 2**attempt * (1 + environment.random()))
    raise AssertionError("unreachable: the last attempt returns or raises")


def _commit(
    catalog: Catalog, plan: ExpiryPlan, journal: Journal, storage: Storage, environment: Environment
) -> str:
    transaction = Transaction(
        catalog, plan.identifier, decided_on=plan.version, environment=environment
    )
    transaction.expire(plan.expired_snapshot_ids, remove_refs=plan.expired_refs)
    try:
        return transaction.commit().version.metadata_location
    except (ValidationConflictError, CommitConflictError):
        if plan.options.remove_files:
            journal.remove(storage)
        raise


def _resume(catalog: Catalog, identifier: Identifier, now_ms: int, deletions: _Deletions) -> int:
    version = catalog.load(identifier)
    resumed = 0
    for journal in read_journals(deletions.storage, version.metadata):
        present = [
            snapshot_id
            for snapshot_id in journal.snapshot_ids
            if version.metadata.snapshot_or_none(snapshot_id) is not None
        ]
        if len(present) == len(journal.snapshot_ids):
            if now_ms - journal.created_ms > _ABANDONED_MS:
                journal.remove(deletions.storage)
            continue
        expired = journal.expired(deletions.storage, version)
        if expired is None:
            log.warning(
                "%s: the table does not confirm the expiry journal %s; orphan removal finds what "
                "it left",
                identifier,
                journal.location,
            )
            journal.remove(deletions.storage)
            continue
        _finish(catalog, identifier, journal, expired, deletions)
        resumed += 1
    return resumed


def _finish(
    catalog: Catalog,
    identifier: Identifier,
    journal: Journal,
    expired: Expired,
    deletions: _Deletions,
) -> None:
    version = catalog.load(identifier)
    metadata = version.metadata
    gone = [
        snapshot
        for snapshot in expired.snapshots
        if metadata.snapshot_or_none(snapshot.snapshot_id) is None
    ]
    walker = StorageWalker(deletions.storage, metadata)
    unreachable = unreachable_files(gone, expired.statistics, metadata, walker)
    deletions.delete_of(deletable(catalog, version, unreachable))
    journal.remove(deletions.storage)


@dataclass(slots=True)
class _Deletions:
    storage: Storage
    progress: Progress
    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    left: dict[str, int] = field(default_factory=dict)

    def delete_of(self, removable: Deletable) -> None:
        for reason, count in removable.left.items():
            self.left[reason] = self.left.get(reason, 0) + count
        self.delete(removable.files.files)

    def delete(self, files: Mapping[FileKind, Mapping[str, int]]) -> None:
        total = sum(len(sizes) for sizes in files.values())
        done = 0
        for kind in FileKind:
            sizes_of_kind = files.get(kind, {})
            for chunk in _chunks(list(sizes_of_kind), _DELETE_CHUNK):
                report = self.storage.delete(chunk)
                if report.failed:
                    location, reason = next(iter(report.failed.items()))
                    raise StorageError(
                        f"Could not delete {len(report.failed)} of {total} expired files, first "
                        f"{location}: {reason}. Run the expiry again to finish it.",
                        file=location,
                    )
                if report.deleted:
                    self.counts[kind.value] = self.counts.get(kind.value, 0) + len(report.deleted)
                self.bytes += sum(sizes_of_kind[location] for location in report.deleted)
                done += len(chunk)
                self.progress("delete", done, total)


def _chunks(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


# Metadata files of earlier versions that the metadata log no longer names.


def old_metadata_files(
    storage: Storage, version: TableVersion, older_than_ms: int
) -> dict[str, int]:
    """Location -> bytes of metadata files to delete: old, and before every version still named.

    Files of versions that commits under way may be writing have higher numbers and stay; so do
    files with other names, and those of other tables, such as one that was dropped and had the same
    name.
    """
    keys = LocationKeys()
    current = version.metadata_location
    named = [current, *(entry.metadata_file for entry in version.metadata.metadata_log)]
    versions = [metadata_version(location) for location in named]
    if any(number is None for number in versions):
        return {}
    first = min(number for number in versions if number is not None)
    protected = {keys.key(location) for location in named}
    sizes: dict[str, int] = {}
    for info in storage.list(current.rsplit("/", 1)[0]):
        number = metadata_version(info.location)
        if (
            number is not None
            and number < first
            and info.modified_ms < older_than_ms
            and keys.key(info.location) not in protected
            and _belongs(storage, info.location, version)
        ):
            sizes[info.location] = info.size
    return sizes


def _belongs(storage: Storage, location: str, version: TableVersion) -> bool:
    """Whether a metadata file is of this table.

    Not if it says nothing, as the one that ends a dropped table.
    """
    try:
        return read_metadata(storage, location).table_uuid == version.metadata.table_uuid
    except (NoSuchFileError, CorruptMetadataError):
        return False


# Which unreachable files of a table may be deleted.


@dataclass(frozen=True, slots=True)
class Deletable:
    """Files to delete, and how many are left where they are.

    Attributes:
        files: to delete, see Unreachable.
        left: reason -> number of unreachable files that stay.
    """

    files: Unreachable
    left: dict[str, int]


def deletable(catalog: Catalog, version: TableVersion, unreachable: Unreachable) -> Deletable:
    """Sort out what is not the table's to delete, whatever its metadata says.

    Raises:
        InvalidLocationError: the table's location, data path or metadata path lies outside the
            warehouse.
        StorageError, NoSuchFileError, CorruptMetadataError: metadata of another table cannot be
            read.
    """
    own_folders = OwnFolders(catalog, version.metadata)
    files, left = unreachable, {}
    if not unreachable.count:
        return Deletable(files, {})

    def keep_out(reason: str, refused: Callable[[str], bool]) -> None:
        nonlocal files
        before = files.count
        files = files.without(refused)
        if before > files.count:
            left[reason] = before - files.count

    keep_out("outside the table's folders", lambda location: not own_folders.hold(location))
    keep_out("bookkeeping of the catalog", is_bookkeeping)
    neighbours = find_neighbours(catalog, version.identifier, own_folders.folders)
    keep_out("in the folder of another table", neighbours.owns)
    keep_out(
        "reached by another table",
        neighbours.reached(catalog, files.locations()).__contains__,
    )
    return Deletable(files, left)
