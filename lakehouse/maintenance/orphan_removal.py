"""Removes unreachable files of a table: first to a trash prefix, later for good.

The listing comes first, the metadata is loaded after it: a file committed in between is reachable.
Every read error aborts. A table location outside the warehouse is refused. Trash is in
`<location>/_trash/<milliseconds>/<path below the location>`; what turns out to be reachable is put
back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import check_gc_enabled, check_table
from lakehouse.catalog.filesystem.version_files import HINT, version_number
from lakehouse.delta_log.delta_actions import LOG_FOLDER, VECTOR_FOLDER
from lakehouse.environment import Environment
from lakehouse.errors import MaintenanceRefusedError, StorageError
from lakehouse.maintenance.reachability.location_keys import LocationKeys, is_journal
from lakehouse.maintenance.reachability.neighbours import KnownTables, Neighbours, find_neighbours
from lakehouse.maintenance.reachability.reachable_files import StorageWalker, reachable_keys
from lakehouse.maintenance.shown_plan import (
    Progress,
    Report,
    human_bytes,
    human_ms,
    listing,
    no_progress,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import basename
from lakehouse.storage.storage_protocol import FileInfo, Storage

HOUR_MS = 3600 * 1000
YOUNGEST_MS = 24 * HOUR_MS
DEFAULT_AGE_MS = 3 * 24 * HOUR_MS
DEFAULT_TRASH_AGE_MS = 7 * 24 * HOUR_MS
TRASH = "_trash"
_COPY_BYTES = 8 << 20
_TRASHED = re.compile(rf"^{TRASH}/(\d+)/(.+)$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanOptions:
    """What counts as an orphan.

    >>> events.remove_orphan_files(lh.OrphanOptions(trash=False)).moved_files
    0

    Attributes:
        older_than_ms: only files last modified before this time; None is now minus 3 days. Below 24
            hours `force` is needed.
        trash: move to the trash first (True); False deletes at once.
        purge_trash_older_than_ms: trash moved there before this time is deleted for good; None is
            now minus 7 days.
        force: allow a cut below 24 hours. Files of writers that still run may be lost.
        aliases: schemes or authorities that are the same, such as {"oss": "s3", "hdfs://nn1":
            "hdfs://cluster"}; s3a is s3.
    """

    older_than_ms: int | None = None
    trash: bool = True
    purge_trash_older_than_ms: int | None = None
    force: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlan(Report):
    """What would be moved or deleted, what is protected, and what leaves the trash.

    Attributes:
        orphans: files that nothing reaches, older than the cut.
        purges: files in the trash beyond its age.
        restores: files in the trash that the table reaches: they go back.
        protected: reason -> number of files left alone.
        tables: of the catalog, when the plan was made.
    """

    identifier: Identifier
    version: TableVersion
    options: OrphanOptions
    now_ms: int
    cut_ms: int
    orphans: tuple[FileInfo, ...]
    purges: tuple[FileInfo, ...]
    restores: tuple[FileInfo, ...]
    protected: Mapping[str, int]
    tables: KnownTables

    @property
    def bytes(self) -> int:
        """Size of the orphans."""
        return sum(info.size for info in self.orphans)

    def title(self) -> str:
        return f"Remove orphan files of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "remove-orphans",
            "older_than_ms": self.cut_ms,
            "trash": self.options.trash,
            "orphans": [
                {
                    "location": info.location,
                    "bytes": info.size,
                    "age_ms": self.now_ms - info.modified_ms,
                    "why": "nothing reaches it",
                }
                for info in self.orphans
            ],
            "bytes": self.bytes,
            "purges": [info.location for info in self.purges],
            "restores": [info.location for info in self.restores],
            "protected": dict(self.protected),
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "orphans", len(self.orphans)
        yield "bytes", human_bytes(self.bytes)
        yield "older than", human_ms(self.now_ms - self.cut_ms)
        yield "first to the trash", "yes" if self.options.trash else "no, deleted at once"
        if self.purges:
            yield (
                "trash to purge",
                f"{len(self.purges)} files, {human_bytes(sum(info.size for info in self.purges))}",
            )
        if self.restores:
            yield "trash to put back", len(self.restores)
        for reason, count in self.protected.items():
            yield f"left alone: {reason}", count

    def detail(self) -> RenderableType | None:
        if not self.orphans:
            return None
        rows = (
            (info.location, human_bytes(info.size), human_ms(self.now_ms - info.modified_ms))
            for info in self.orphans
        )
        return listing(("orphan", "#bytes", "#age"), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanResult(Report):
    """What an orphan removal did.

    Attributes:
        trash_location: the folder that this run moved files to, None when it moved none.
        spared: orphans of the plan that had become reachable, or had changed, when it was executed.
    """

    identifier: Identifier
    moved_files: int = 0
    moved_bytes: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    purged_files: int = 0
    purged_bytes: int = 0
    restored_files: int = 0
    spared: int = 0
    trash_location: str | None = None

    def title(self) -> str:
        return f"Removed orphan files of {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "moved to the trash", f"{self.moved_files} files, {human_bytes(self.moved_bytes)}"
        if self.deleted_files:
            yield "deleted", f"{self.deleted_files} files, {human_bytes(self.deleted_bytes)}"
        if self.purged_files:
            yield (
                "purged from the trash",
                f"{self.purged_files} files, {human_bytes(self.purged_bytes)}",
            )
        if self.restored_files:
            yield "put back", self.restored_files
        if self.spared:
            yield "spared, reached or changed since", self.spared
        if self.trash_location:
            yield "trash", self.trash_location


def plan_orphan_removal(
    catalog: Catalog,
    identifier: Identifier,
    options: OrphanOptions | None = None,
    *,
    environment: Environment | None = None,
    tables: KnownTables | None = None,
) -> OrphanPlan:
    """Find the orphans; changes nothing.

    Args:
        catalog: where the table is.
        identifier: the table.
        options: what counts as an orphan.
        environment: clock.
        tables: loaded earlier; only what has changed since is read again.

    Raises:
        MaintenanceRefusedError: a cut younger than 24 hours without `force`, or `gc.enabled` is
            false.
        InvalidLocationError: the table's location lies outside the warehouse.
        StorageError, NoSuchFileError, CorruptMetadataError: metadata of this table, or of one at
            its location, is unreadable.
    """
    options = options or OrphanOptions()
    now_ms = (environment or Environment.system()).now_ms()
    cut_ms = now_ms - DEFAULT_AGE_MS if options.older_than_ms is None else options.older_than_ms
    if cut_ms > now_ms - YOUNGEST_MS and not options.force:
        raise MaintenanceRefusedError(
            f"Refused to remove orphan files of {identifier} younger than 24 hours: a writer may "
            "be about to commit them. Choose an older cut, or force it when certainly nothing "
            "writes to the table.",
            table=str(identifier),
        )
    purge_ms = (
        now_ms - DEFAULT_TRASH_AGE_MS
        if options.purge_trash_older_than_ms is None
        else options.purge_trash_older_than_ms
    )
    keys = LocationKeys(options.aliases)
    before = catalog.load(identifier).metadata
    check_table(catalog, before)
    location = before.location
    listed = list(catalog.storage(location).list(location))
    version = catalog.load(identifier)
    check_gc_enabled(identifier, version.metadata, "remove orphan files")
    tables = KnownTables.of(catalog, keys, tables)
    neighbours = find_neighbours(catalog, identifier, [location], listed, keys, tables)
    sorter = _Sorter(version, keys, _reached(catalog, version, keys), neighbours, cut_ms, purge_ms)
    for info in listed:
        sorter.sort(info)
    sorter.spare(neighbours.reached(catalog, sorter.asked()))
    return OrphanPlan(
        identifier=identifier,
        version=version,
        options=options,
        now_ms=now_ms,
        cut_ms=cut_ms,
        orphans=tuple(sorted(sorter.orphans, key=lambda info: info.location)),
        purges=tuple(sorter.purges),
        restores=tuple(sorter.restores),
        protected=sorter.protected,
        tables=tables,
    )


def execute_orphan_removal(
    catalog: Catalog,
    plan: OrphanPlan,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> OrphanResult:
    """Move or delete the plan's orphans, put back and purge trash.

    What has become reachable since the plan is spared.

    Raises:
        StorageError: a file could not be moved or deleted; those before it were. Run it again.
        NoSuchFileError, CorruptMetadataError: the metadata could not be read again; nothing was
            touched.
    """
    progress = progress or no_progress
    keys = LocationKeys(plan.options.aliases)
    version = _unmoved(catalog, plan)
    location = version.metadata.location
    storage = catalog.storage(location)
    reached = _reached(catalog, version, keys)
    still = {info.location: info for info in storage.list(location)}
    homes = {info.location: _home(info, location, keys) for info in plan.purges}
    tables = KnownTables.of(catalog, keys, plan.tables)
    neighbours = find_neighbours(catalog, plan.identifier, [location], still.values(), keys, tables)
    locations = [*(info.location for info in plan.orphans), *homes.values()]
    theirs = neighbours.reached(catalog, locations)
    orphans = [
        info
        for info in plan.orphans
        if keys.key(info.location) not in reached
        and info.location not in theirs
        and still.get(info.location) == info
    ]
    now_ms = (environment or Environment.system()).now_ms()
    folder = f"{location.rstrip('/')}/{TRASH}/{now_ms}"

    restores = [info for info in plan.restores if info.location in still]
    for info in restores:
        _move(storage, info.location, _home(info, location, keys), replace=False)
    total = len(orphans)
    if plan.options.trash:
        for done, info in enumerate(orphans, start=1):
            place = f"{folder}/{keys.relative(info.location, location)}"
            _move(storage, info.location, place, replace=True)
            progress("move to trash", done, total)
    else:
        _delete(storage, [info.location for info in orphans])
        progress("delete", total, total)
    purges = [
        info
        for info in plan.purges
        if keys.key(homes[info.location]) not in reached and homes[info.location] not in theirs
    ]
    _delete(storage, [info.location for info in purges])
    size = sum(info.size for info in orphans)
    return OrphanResult(
        identifier=plan.identifier,
        moved_files=total if plan.options.trash else 0,
        moved_bytes=size if plan.options.trash else 0,
        deleted_files=0 if plan.options.trash else total,
        deleted_bytes=0 if plan.options.trash else size,
        purged_files=len(purges),
        purged_bytes=sum(info.size for info in purges),
        restored_files=len(restores),
        spared=len(plan.orphans) - total,
        trash_location=folder if plan.options.trash and orphans else None,
    )


def _unmoved(catalog: Catalog, plan: OrphanPlan) -> TableVersion:
    version = catalog.load(plan.identifier)
    location = version.metadata.location
    if location != plan.version.metadata.location:
        raise StorageError(
            f"Table {plan.identifier} moved to {location} since the plan was made. Plan again.",
            retryable=True,
        )
    return version


def remove_orphan_files(
    catalog: Catalog,
    identifier: Identifier,
    options: OrphanOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> OrphanResult:
    """Plan and execute; see `plan_orphan_removal` and `execute_orphan_removal`."""
    plan = plan_orphan_removal(catalog, identifier, options, environment=environment)
    return execute_orphan_removal(catalog, plan, environment=environment, progress=progress)


class _Sorter:
    """Puts each listed file into one heap."""

    def __init__(
        self,
        version: TableVersion,
        keys: LocationKeys,
        reached: set[str],
        neighbours: Neighbours,
        cut_ms: int,
        purge_ms: int,
    ) -> None:
        self._location = version.metadata.location
        self._keys = keys
        self._reached = reached
        self._reached_paths = {keys.path_of(key) for key in reached}
        self._neighbours = neighbours
        self._cut_ms = cut_ms
        self._purge_ms = purge_ms
        self.orphans: list[FileInfo] = []
        self.purges: list[FileInfo] = []
        self.restores: list[FileInfo] = []
        self.protected: dict[str, int] = {}
        self._trashed: list[tuple[str, FileInfo]] = []

    def sort(self, info: FileInfo) -> None:
        key = self._keys.key(info.location)
        trashed = _TRASHED.match(self._keys.relative(info.location, self._location))
        reason = None
        if key in self._reached:
            return
        if trashed:
            home = _home(info, self._location, self._keys)
            self._trashed.append((home, info))
            if self._keys.key(home) in self._reached:
                self.restores.append(info)
            elif int(trashed.group(1)) < self._purge_ms:
                self.purges.append(info)
            else:
                reason = "in the trash"
        elif self._neighbours.owns(info.location):
            reason = "belongs to another table"
        elif self._keys.path_of(info.location) in self._reached_paths:
            reason = "reached under another scheme or authority"
        elif (
            basename(info.location) == HINT
            or version_number(info.location) is not None
            or is_journal(info.location)
        ):
            reason = "bookkeeping"
        elif self._keys.relative(info.location, self._location).startswith(
            (f"{LOG_FOLDER}/", f"{VECTOR_FOLDER}/")
        ):
            reason = "Delta's log"
        elif info.is_link:
            reason = "a link to a file elsewhere"
        elif info.modified_ms >= self._cut_ms:
            reason = "too young"
        else:
            self.orphans.append(info)
        if reason:
            self._count(reason, 1)

    def asked(self) -> list[str]:
        """What other tables may reach: the orphans, and where the files in the trash came from."""
        return [*(info.location for info in self.orphans), *(home for home, _ in self._trashed)]

    def spare(self, locations: set[str]) -> None:
        """Take files that other tables reach off the heaps; those in the trash go back."""
        if not locations:
            return
        back = [info for home, info in self._trashed if home in locations]
        self.orphans = [info for info in self.orphans if info.location not in locations]
        self.purges = [info for info in self.purges if info not in back]
        self.restores += [info for info in back if info not in self.restores]
        self._count("reached by another table", len(locations))

    def _count(self, reason: str, count: int) -> None:
        self.protected[reason] = self.protected.get(reason, 0) + count


def _reached(catalog: Catalog, version: TableVersion, keys: LocationKeys) -> set[str]:
    storage = catalog.storage(version.metadata.location)
    return reachable_keys(
        version.metadata, version.metadata_location, StorageWalker(storage, version.metadata), keys
    )


def _home(info: FileInfo, location: str, keys: LocationKeys) -> str:
    """Where a file of the trash came from."""
    trashed = _TRASHED.match(keys.relative(info.location, location))
    if trashed is None:
        raise StorageError(f"{info.location} is not in the trash of {location}", file=info.location)
    return f"{location.rstrip('/')}/{trashed.group(2)}"


def _move(storage: Storage, source: str, target: str, *, replace: bool) -> None:
    if replace or not storage.exists(target):
        filesystem, path = storage.filesystem(source)
        with filesystem.open_input_stream(path) as stream, storage.open_output(target) as output:
            while chunk := stream.read(_COPY_BYTES):
                output.write(chunk)
        if storage.size(target) != storage.size(source):
            raise StorageError(
                f"Moving {source} to {target} copied a different number of bytes; the source stays",
                file=source,
            )
    _delete(storage, [source])


def _delete(storage: Storage, locations: Sequence[str]) -> None:
    report = storage.delete(locations)
    if report.failed:
        location, reason = next(iter(report.failed.items()))
        raise StorageError(
            f"Could not delete {len(report.failed)} of {len(locations)} files, first {location}: "
            f"{reason}",
            file=location,
        )
