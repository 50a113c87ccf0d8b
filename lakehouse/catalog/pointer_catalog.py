"""A catalog that keeps a pointer to the newest metadata file of each table.

A commit writes the next metadata file under a new name, then swaps the pointer to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lakehouse.catalog.base_catalog import NamespaceCatalog
from lakehouse.catalog.catalog_protocol import Namespace, TableCommit, TableVersion, check_distinct
from lakehouse.catalog.commit_outcome import after_the_swap, before_the_swap, is_certain
from lakehouse.catalog.confinement import (
    allowed_roots,
    check_gc_enabled,
    check_locations,
    check_purged_folder,
    check_unused,
)
from lakehouse.catalog.folders import own_folder
from lakehouse.catalog.metadata_files import (
    compression_of,
    delete_expired,
    discard,
    metadata_bytes,
    metadata_folder,
    next_metadata,
    numbered_name,
    read_metadata,
)
from lakehouse.catalog.pointer_views import PointerViews
from lakehouse.catalog.pointers import TABLE, NamedNamespaces, PointerMove, Pointers, lost
from lakehouse.errors import LakehouseError, NoSuchFileError, StorageError
from lakehouse.spec.identifier import Identifier, full_uri
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Requirement, Update
from lakehouse.storage.location import join

N = TypeVar("N", bound=NamedNamespaces)


class PointerCatalog(NamespaceCatalog[N]):
    """What catalogs of pointers have in common: they keep them in `_pointers`."""

    _pointers: Pointers
    _views: PointerViews

    @property
    def views(self) -> PointerViews:
        return self._views

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        names = self._pointers.names(self._namespaces.require(namespace))
        return [Identifier(tuple(namespace), name) for name in names]

    def table_exists(self, identifier: Identifier) -> bool:
        return self._pointers.find(identifier) is not None

    def load(self, identifier: Identifier) -> TableVersion:
        return self._read(identifier, self._pointers.require(identifier))

    def refresh(self, version: TableVersion) -> TableVersion:
        location = self._pointers.require(version.identifier)
        return (
            version
            if location == version.metadata_location
            else self._read(version.identifier, location)
        )

    # nobody else is ever given it, staged or not
    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:  # noqa: ARG002
        return own_folder(self._warehouse, identifier, self._environment)

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        with before_the_swap():
            check_locations(metadata, allowed_roots(self._warehouse, self._properties))
            self._check_free(identifier, metadata)
            check_unused(metadata.location, self.storage(metadata.location), staged=staged)
            location = self._new_metadata_location(metadata, None)
            storage = self.storage(location)
            storage.create(location, metadata_bytes(metadata, compression_of(metadata)))
        try:
            self._pointers.swap(
                [PointerMove(identifier, None, location, metadata.location, metadata)]
            )
        except LakehouseError as error:
            if is_certain(error):
                discard(storage, location)
            raise
        return TableVersion(identifier, metadata, location)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        return self.commit_all([TableCommit(identifier, base, requirements, updates)])[0]

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        versions: list[TableVersion] = []
        with before_the_swap():
            check_distinct(commits)
            for commit in commits:
                new = next_metadata(
                    commit.base, commit.requirements, commit.updates, self._environment.now_ms()
                )
                if new is commit.base.metadata:
                    versions.append(commit.base)
                    continue
                check_locations(new, allowed_roots(self._warehouse, self._properties))
                location = self._new_metadata_location(new, commit.base.metadata_location)
                versions.append(TableVersion(commit.identifier, new, location))
        moves = [
            PointerMove(
                commit.identifier,
                commit.base.metadata_location,
                version.metadata_location,
                version.metadata.location,
                version.metadata,
                commit.base.metadata,
            )
            for commit, version in zip(commits, versions, strict=True)
        ]
        if any(part.moves for part in moves):
            self._write_and_move(moves, versions)
            for commit, version in zip(commits, versions, strict=True):
                self._tidy(commit.base, version)
        return versions

    def _write_and_move(
        self, moves: Sequence[PointerMove], versions: Sequence[TableVersion]
    ) -> None:
        new = {version.metadata_location: version.metadata for version in versions}
        written: list[str] = []
        try:
            with before_the_swap():
                for part in moves:
                    current = self._pointers.require(part.identifier)
                    if current != part.expected:
                        raise lost(TABLE, part.identifier, current)
                for part in moves:
                    if not part.moves:
                        continue
                    metadata = new[part.location]
                    data = metadata_bytes(metadata, compression_of(metadata))
                    self.storage(part.location).write_new({part.location: data})
                    written.append(part.location)
            self._pointers.swap(moves)
        except LakehouseError as error:
            if is_certain(error):
                for location in written:
                    discard(self.storage(location), location)
            raise

    def _tidy(self, base: TableVersion, version: TableVersion) -> None:
        if version is not base:
            after_the_swap(
                f"Deleting old metadata files of {version.identifier}",
                lambda: delete_expired(
                    self.storage(version.metadata_location), base.metadata, version
                ),
            )

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        if not purge:
            if not self._pointers.remove(identifier):
                raise self._pointers.missing(identifier)
            return
        gone = False
        while not gone:  # until nobody commits between looking and deleting
            version = self.load(identifier)
            check_gc_enabled(identifier, version.metadata, "remove the files")
            others = self._pointers.other_folders(version.metadata_location)
            check_purged_folder(version, allowed_roots(self._warehouse, self._properties), others)
            gone = self._pointers.remove(identifier, at=version.metadata_location)
        storage = self.storage(version.metadata.location)
        report = storage.delete([info.location for info in storage.list(version.metadata.location)])
        if report.failed:
            raise StorageError(
                f"Table {identifier} is dropped, but {len(report.failed)} of its files could not "
                f"be deleted: {dict(list(report.failed.items())[:3])}. Delete "
                f"{version.metadata.location} by hand.",
                table=str(identifier),
            )

    def unregister(self, identifier: Identifier) -> TableVersion:
        while True:
            version = self.load(identifier)
            at = version.metadata_location
            if self._pointers.remove(identifier, at=at, answer=at):
                return version

    def rename(self, source: Identifier, target: Identifier) -> None:
        self._namespaces.require(target.namespace)
        self._pointers.rename(source, target)

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        metadata_location = full_uri(metadata_location)
        metadata = read_metadata(self.storage(metadata_location), metadata_location)
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        self._check_free(identifier, metadata)
        self._pointers.swap(
            [PointerMove(identifier, None, metadata_location, metadata.location, metadata)]
        )
        return TableVersion(identifier, metadata, metadata_location)

    def _check_free(self, identifier: Identifier, metadata: TableMetadata) -> None:
        self._pointers.check_free(identifier, metadata.location)
        self._namespaces.require(identifier.namespace)

    def _read(self, identifier: Identifier, location: str) -> TableVersion:
        while True:
            try:
                return TableVersion(
                    identifier, read_metadata(self.storage(location), location), location
                )
            except NoSuchFileError:
                newer = self._pointers.require(identifier)
                if newer == location:
                    raise
                # An old metadata file, deleted between looking up the pointer and reading it.
                location = newer

    def _new_metadata_location(self, metadata: TableMetadata, previous: str | None) -> str:
        name = numbered_name(previous, str(self._environment.new_uuid()), compression_of(metadata))
        return join(metadata_folder(metadata), name)
