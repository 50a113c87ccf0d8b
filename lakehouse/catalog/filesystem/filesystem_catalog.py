"""A catalog that is its warehouse: a table is a folder of `v<N>.metadata.json` (Hadoop's layout).

The newest version is the highest N (see version_files.py). A commit creates `v<N+1>.metadata.json`
if absent, or `v<N+1>.gz.metadata.json` where version N sets `write.metadata.compression-codec` to
gzip: the version before decides the name, so that two writers never make two files.

A table's files lie in the folder of its name, and those of a later table of that name in a folder
of their own below it: so a table that was dropped without `purge` can be registered again, whatever
became of its name.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from lakehouse.catalog.base_catalog import NamespaceCatalog
from lakehouse.catalog.catalog_protocol import (
    Namespace,
    Request,
    TableCommit,
    TableVersion,
    check_distinct,
    walk_tables,
)
from lakehouse.catalog.commit_outcome import after_the_swap, before_the_swap, is_certain
from lakehouse.catalog.confinement import (
    allowed_roots,
    check_gc_enabled,
    check_is_no_copy,
    check_locations,
    check_no_overlap,
    check_unused,
)
from lakehouse.catalog.filesystem.filesystem_views import FilesystemViews, check_free
from lakehouse.catalog.filesystem.folder_namespaces import FolderNamespaces
from lakehouse.catalog.filesystem.recorded_transactions import (
    RecordedTransactions,
    transaction_of,
    with_mark,
    without_mark,
)
from lakehouse.catalog.filesystem.request_files import RequestFiles, RequestRun
from lakehouse.catalog.filesystem.version_files import (
    HINT,
    VersionFiles,
    VersionKind,
    drop_record,
    is_dropped,
    kind_of,
    lost,
    require_number,
    version_number,
)
from lakehouse.catalog.folders import in_own_folder_below, own_suffix, plain_folder
from lakehouse.catalog.machine_turns import machine_turn
from lakehouse.catalog.metadata_files import (
    compression_of,
    is_still,
    metadata_bytes,
    next_metadata,
    read_metadata,
)
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidLocationError,
    LakehouseError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.kept_by_bytes import KeptByBytes, bytes_of
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Requirement, Update
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.local import is_temporary
from lakehouse.storage.location import canonical, join, lies_within
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

_DURABLE_BYTES_MAX = 4 * 1024 * 1024
TURNS = "commit.turns.enabled"
"""Catalog property: `false`: writers of one machine do not queue (see Catalog.turn)."""


class FilesystemCatalog(NamespaceCatalog[FolderNamespaces]):
    """Catalog without a server.

    Args:
        warehouse: folder of the warehouse; tables live at `<warehouse>/<namespace>/<name>`.
        name: for display.
        properties: catalog and storage properties.
        environment: clock.
        storage_factory: makes storages; tests inject faults here.
    """

    def __init__(
        self,
        warehouse: str,
        *,
        name: str = "lakehouse",
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage] = storage_for,
    ) -> None:
        super().__init__(warehouse, name, properties, environment, storage_factory)
        self._store = storage_factory(self._warehouse, self._properties)
        self._versions = VersionFiles(self._store, self._environment.new_uuid)
        self._recorded = RecordedTransactions(self._store, self._warehouse)
        self._durable: KeptByBytes[str, int] = KeptByBytes(_DURABLE_BYTES_MAX)
        self._run: RequestRun | None = None
        self._takes_turns = (
            storage_factory is storage_for and self._properties.get(TURNS, "true") == "true"
        )
        self._namespaces = FolderNamespaces(
            self._warehouse, self._store, self._is_live, self._versions.any
        )

    @property
    def uri(self) -> str:
        return self._warehouse

    @property
    def requests(self) -> RequestFiles:
        return RequestFiles(self._store, self._warehouse, self._versions.fate)

    def during(self, *requests: Request) -> FilesystemCatalog:
        """The same catalog, whose changes are noted as those of requests."""
        same, runs = copy.copy(self), [RequestRun(self.requests, request) for request in requests]
        same._run = runs[0] if len(runs) == 1 else None  # noqa: SLF001
        same._versions = self._versions.during(runs)  # noqa: SLF001
        return same

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        with self._towards(namespace, (NamespaceAlreadyExistsError,), is_to_be=True):
            super().create_namespace(namespace, properties)

    def drop_namespace(self, namespace: Namespace) -> None:
        with self._towards(namespace, (NoSuchNamespaceError,), is_to_be=False):
            super().drop_namespace(namespace)

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        with self._towards(namespace, (), is_to_be=False):
            return super().update_namespace_properties(namespace, updates, removals)

    def _towards(
        self,
        namespace: Namespace,
        reached: tuple[type[LakehouseError], ...],
        *,
        is_to_be: bool,
    ) -> AbstractContextManager[None]:
        if self._run is None:
            return nullcontext()
        with before_the_swap():
            is_to_do = self.namespace_exists(namespace) is not is_to_be
        return self._run.towards(reached, is_to_do=is_to_do)

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        folder = self._namespaces.require(namespace)
        names = self._store.list_folders(folder)
        return [Identifier(namespace, name) for name in names if self._is_table(join(folder, name))]

    def table_exists(self, identifier: Identifier) -> bool:
        return self._is_table(self._folder(identifier))

    @property
    def views(self) -> FilesystemViews:
        return FilesystemViews(
            self._versions,
            self._store,
            self._namespaces,
            self._warehouse,
            allowed_roots(self._warehouse, self._properties),
            self._environment,
        )

    def load(self, identifier: Identifier) -> TableVersion:
        folder = self._folder(identifier)
        newest = self._versions.read_newest(folder, self._store.read)
        if newest is None or kind_of(newest[2]) is not VersionKind.TABLE:
            raise NoSuchTableError(
                f"No table {identifier} in {self._warehouse}.", table=str(identifier)
            )
        number, location, data = newest
        self._make_durable(folder, number, location)
        metadata = parse(data, location)
        check_is_no_copy(self, identifier, metadata.location, folder)
        version = TableVersion(identifier, metadata, location)
        transaction = transaction_of(metadata)
        if transaction is None:
            return version
        if self._recorded.is_committed(transaction):
            return self._finished(version, self._recorded.becomes(metadata))
        # the decision is deleted once the next version is there, perhaps before it was looked for
        return version if self._versions.at(folder, number + 1) is None else self.load(identifier)

    def refresh(self, version: TableVersion) -> TableVersion:
        if transaction_of(version.metadata) is not None:
            return self.load(version.identifier)  # it may be another one without a new version
        following = require_number(version.metadata_location) + 1
        is_newest = self._versions.at(self._folder(version.identifier), following) is None
        if is_newest and self._store.exists(version.metadata_location):
            return version
        return self.load(version.identifier)

    def namespace_location(self, namespace: Namespace) -> str:
        return self._namespaces.folder(namespace)

    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:
        """A folder for a new table of this name, unused by any other.

        The folder of the name, or one below where a dropped table left files, or where others may
        ask at the same time.
        """
        folder = self._folder(identifier)
        if not staged and self._is_free(folder):
            return folder
        return join(folder, own_suffix(self._environment))

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        with before_the_swap():
            self._check_place(identifier, metadata, staged=staged)
        return self._create(identifier, metadata)

    def _check_place(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool
    ) -> None:
        folder = self._folder(identifier)
        below = in_own_folder_below(metadata.location, folder)
        if canonical(metadata.location) != canonical(folder) and not below:
            raise InvalidLocationError(
                f"Table {identifier} must be at {folder}, not {metadata.location}: a filesystem "
                "catalog finds tables by folder. Use a SQL catalog for other locations.",
                table=str(identifier),
            )
        if staged:
            check_unused(metadata.location, self._store, staged=True)
        # In this order: what another creates in between is seen as alive.
        elif not below and not self._is_free(folder) and not self._is_live(folder):
            raise InvalidLocationError(
                f"Table {identifier} cannot be at {folder}: files of a dropped table, or others, "
                "are there. Leave the location "
                "out: the table gets a folder of its own.",
                table=str(identifier),
            )

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        with before_the_swap():
            new = next_metadata(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            new = self._freed(base, new)
            check_locations(new, allowed_roots(self._warehouse, self._properties))
        return self._commit(identifier, base, new)

    @property
    def records_transactions(self) -> bool:
        """Whether several tables are committed to together as this catalog shows them."""
        return True

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Commit to several tables, all or none, as this catalog shows them.

        Other engines see the tables change one after the other, see `RecordedTransactions`.
        """
        transaction = self._environment.new_uuid().hex
        marked: dict[Identifier, tuple[TableVersion, TableMetadata]] = {}
        names = ", ".join(str(commit.identifier) for commit in commits)
        with before_the_swap():
            check_distinct(commits)
            for commit in sorted(commits, key=lambda commit: str(commit.identifier)):
                now_ms = self._environment.now_ms()
                new = next_metadata(commit.base, commit.requirements, commit.updates, now_ms)
                new = self._freed(commit.base, new)
                check_locations(new, allowed_roots(self._warehouse, self._properties))
                mark = self._recorded.prepare(transaction, commit.base, new)
                # a mark that is left by an error is withdrawn by whoever writes next
                marked[commit.identifier] = self._commit(commit.identifier, commit.base, mark), new
        try:
            is_committed = self._recorded.decide(transaction, committed=True)
        except StorageError as error:
            if is_certain(error):
                raise
            raise CommitStateUnknownError(
                f"{names}: whether they were committed "
                f"together is not known ({error.message}). Nothing was deleted. Load them again.",
            ) from error
        if not is_committed:
            raise CommitConflictError(
                f"{names} were not committed together: "
                "somebody else wrote to one of them. Load them again and repeat it."
            )
        done = [self._finished(*marked[commit.identifier]) for commit in commits]
        if all(transaction_of(version.metadata) is None for version in done):
            after_the_swap("Deleting a decision", lambda: self._recorded.forget(transaction))
        return done

    def _freed(self, base: TableVersion, new: TableMetadata) -> TableMetadata:
        """The metadata without the mark of a transaction, which does not happen any more."""
        transaction = transaction_of(base.metadata)
        if transaction is None:
            return new
        number = self._next_number(base)
        if self._recorded.decide(transaction, committed=False):
            raise lost(f"Table {base.identifier}", number, table=str(base.identifier))
        return without_mark(new)

    def _finished(self, marked: TableVersion, new: TableMetadata) -> TableVersion:
        """The version after a transaction that was committed, written where nobody has yet.

        It keeps the mark where it cannot be written: then whoever commits to it writes it first.
        """
        identifier = marked.identifier
        try:
            return self.during()._commit(identifier, marked, new)  # noqa: SLF001 - of no request
        except CommitConflictError:
            number = require_number(marked.metadata_location) + 1
            codec = compression_of(marked.metadata)
            location = self._versions.location(self._folder(identifier), number, codec)
            return TableVersion(identifier, new, location)
        except LakehouseError as error:
            log.warning("%s: a transaction was left unfinished: %s", identifier, error)
            return TableVersion(
                identifier, with_mark(new, marked.metadata), marked.metadata_location
            )

    def _next_number(self, base: TableVersion) -> int:
        """Of the version after one. Raises CommitConflictError: others wrote it."""
        number = require_number(base.metadata_location) + 1
        if self._versions.at(self._folder(base.identifier), number) is not None:
            raise lost(f"Table {base.identifier}", number, table=str(base.identifier))
        return number

    def _commit(
        self, identifier: Identifier, base: TableVersion, new: TableMetadata
    ) -> TableVersion:
        with before_the_swap():
            folder, number = self._folder(identifier), self._next_number(base)
            # The codec of the base decides the name, so that all who commit after version N create
            # the same file.
            codec = compression_of(base.metadata)
            location = self._versions.location(folder, number, codec)
            data = metadata_bytes(new, codec)
        self._swap(identifier, location, data)
        self._durable.put(folder, number, bytes_of(folder, number))
        self._check_base_is_there(identifier, base)
        self._versions.write_hint(folder, number)
        after_the_swap(
            f"Deleting old metadata files of {identifier}",
            lambda: self._delete_old_versions(identifier, new),
        )
        return TableVersion(identifier, new, location)

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        return (
            machine_turn(canonical(self._folder(identifier)))
            if self._takes_turns
            else nullcontext()
        )

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """Remove a table from the catalog.

        Without `purge` every file stays, and the newest metadata file can be registered again.
        """
        version = self._end(identifier, purge=purge)
        if purge:
            number = require_number(version.metadata_location)
            self._purge(identifier, version, self._versions.chain(self._folder(identifier), number))

    def unregister(self, identifier: Identifier) -> TableVersion:
        return self._end(identifier, purge=False)

    def _end(self, identifier: Identifier, *, purge: bool) -> TableVersion:
        """Write the version that says that the table is no more; the one before it."""
        folder = self._folder(identifier)
        while True:
            version = self.load(identifier)
            if purge:
                check_gc_enabled(identifier, version.metadata, "remove the files")
            number = require_number(version.metadata_location) + 1
            codec = compression_of(version.metadata)
            try:
                self._freed(version, version.metadata)
            except CommitConflictError:  # of a transaction that was committed meanwhile
                continue
            record = drop_record(self._environment.now_ms(), str(self._environment.new_uuid()))
            if self._run is not None:
                self._run.answer = version.metadata_location
            try:
                self._swap(identifier, self._versions.location(folder, number, codec), record)
            except CommitConflictError:
                continue
            self._versions.write_hint(folder, number)
            return version

    def _purge(self, identifier: Identifier, version: TableVersion, versions: list[str]) -> None:
        """Delete what is in the table's folder.

        Versions last and oldest first, so that no late writer finds its number free.

        Files of earlier and later tables of the name stay, and so does what lies outside the folder
        of the name.
        """
        location = version.metadata.location
        doomed: list[str] = []
        if lies_within(location, self._folder(identifier)):
            doomed = [
                info.location
                for info in self._store.list(location)
                if version_number(info.location) is None
                and info.location.rpartition("/")[2] != HINT
                and not in_own_folder_below(info.location, location)
            ]
        failed = dict(self._store.delete(doomed).failed)
        for version_file in versions:
            if not failed:
                failed |= self._store.delete([version_file]).failed
        if failed:
            raise StorageError(
                f"Table {identifier} is dropped, but {len(failed)} of its files could not be "
                f"deleted: {dict(list(failed.items())[:3])}. Delete {location} by hand.",
                table=str(identifier),
            )

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Refused: the folder is the name, and every file of the table carries it."""
        raise UnsupportedFeatureError(
            f"Table {source} cannot be renamed to {target}: in a filesystem catalog the folder is "
            "the name. Use a SQL catalog.",
            table=str(source),
        )

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """Adopt an existing metadata file as a table.

        Data stays where it is; new metadata is written into the catalog's own folder of the table.
        """
        read = read_metadata(self.storage(metadata_location), metadata_location)
        metadata = without_mark(read)
        check_no_overlap(metadata.location, self._locations_beside(identifier, metadata.location))
        return self._create(identifier, metadata)

    def _locations_beside(self, identifier: Identifier, location: str) -> Iterator[tuple[str, str]]:
        """(name, location) of the tables that a table at `location` must not overlap.

        Of two that had one name after the other the later lies below the earlier, in a folder of
        its own: maintenance tells those apart.
        """
        for existing in walk_tables(self):
            if existing == identifier:
                raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
            other = self.load(existing).metadata.location
            if not in_own_folder_below(other, location) and not in_own_folder_below(
                location, other
            ):
                yield str(existing), other

    def _create(self, identifier: Identifier, metadata: TableMetadata) -> TableVersion:
        with before_the_swap():
            self._namespaces.require(identifier.namespace)
            check_locations(metadata, allowed_roots(self._warehouse, self._properties))
            folder = self._folder(identifier)
            if self._namespaces.exists((*identifier.namespace, identifier.name)):
                raise TableAlreadyExistsError(
                    f"{identifier} is a namespace.", table=str(identifier)
                )
            newest, kind = self._versions.newest_and_kind(folder)
            check_free(identifier, kind, VersionKind.TABLE)
        number = 1 if newest is None else newest + 1
        location = self._versions.location(folder, number)
        try:
            self._swap(identifier, location, metadata_bytes(metadata))
        except CommitConflictError as error:
            check_free(identifier, self._versions.newest_and_kind(folder)[1], VersionKind.TABLE)
            raise TableAlreadyExistsError(
                f"Table {identifier} was created by someone else.", table=str(identifier)
            ) from error
        self._versions.write_hint(folder, number)
        return TableVersion(identifier, metadata, location)

    def _swap(self, identifier: Identifier, location: str, data: bytes) -> None:
        self._versions.swap(f"Table {identifier}", location, data, table=str(identifier))

    def _check_base_is_there(self, identifier: Identifier, base: TableVersion) -> None:
        """After writing version N+1: version N must still be there, and be the one that we loaded.

        Versions are deleted oldest first. Without N, another N+1 may have existed and been deleted
        before ours was written: then others are far ahead and ours is no part of their history. Nor
        is it with an N that another such writer left there.
        """
        try:
            if is_still(self._store, base):
                return
            reason = f"{base.metadata_location}, on which it was based, was cleaned up meanwhile"
        except LakehouseError as error:
            reason = error.message
        raise CommitStateUnknownError(
            f"Table {identifier}: the commit cannot be confirmed ({reason}). Nothing was deleted. "
            "Refresh the table and look for the snapshot id.",
            table=str(identifier),
        )

    def _delete_old_versions(self, identifier: Identifier, new: TableMetadata) -> None:
        """Delete the versions that left the metadata log, oldest first, if the table asks for it.

        Whatever an earlier writer failed to delete goes too: versions must stay one unbroken range,
        because readers that begin at any of them find the newest by probing forward.
        """
        if not TableProperties(new.properties).metadata_delete_after_commit or not new.metadata_log:
            return
        oldest = version_number(new.metadata_log[0].metadata_file)
        doomed = (
            [] if oldest is None else self._versions.chain(self._folder(identifier), oldest - 1)
        )
        for location in doomed:
            report = self._store.delete([location])
            if report.failed:
                raise StorageError(f"{location} cannot be deleted: {report.failed[location]}")

    def _make_durable(self, folder: str, number: int, location: str) -> None:
        """Make the name of a version that was read durable, before anything is built on it.

        Its writer may stop, or lose power, before it does so itself.
        """
        if self._durable.get(folder) != number:
            self._store.make_name_durable(location)
            self._durable.put(folder, number, bytes_of(folder, number))

    def _folder(self, identifier: Identifier) -> str:
        """The folder of a name: its versions are in `metadata/` below."""
        return plain_folder(self._warehouse, (*identifier.namespace, identifier.name))

    def _is_live(self, folder: str) -> bool:
        """Whether it is the folder of a table or of a view."""
        return self._versions.newest_and_kind(folder)[1] is not VersionKind.NOTHING

    def _is_table(self, folder: str) -> bool:
        return self._versions.newest_and_kind(folder)[1] is VersionKind.TABLE

    def _is_free(self, folder: str) -> bool:
        """Whether there is nothing in a folder but what a purge leaves, or who is about to create.

        The version that ends the table, the hint, and temporary files: their swap decides.
        """
        for info in self._store.list(folder):
            name = info.location.rpartition("/")[2]
            if (
                name != HINT
                and not is_temporary(name)
                and not (
                    version_number(info.location) is not None
                    and is_dropped(self._store.read_range(info.location, 0, 64))
                )
            ):
                return False
        return True
