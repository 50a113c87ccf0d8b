"""Catalog in the warehouse itself: a folder per table holding `v<N>.metadata.json`, the Hadoop layout.

The newest version is the highest N. `version-hint.text` says where to start looking and nothing more: readers probe
forward from it, and list the folder when it misleads. A commit creates `v<N+1>.metadata.json` if absent, or
`v<N+1>.gz.metadata.json` where version N sets `write.metadata.compression-codec` to gzip: the version before decides the name,
so that two writers never make two files. A dropped table ends in a version that says so, so that a late writer cannot bring
it back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import orjson

from lakehouse.catalog.confinement import (
    allowed_roots,
    check_locations,
    check_no_overlap,
    check_purge,
)
from lakehouse.catalog.folder_namespaces import FolderNamespaces
from lakehouse.catalog.metadata_files import (
    codec_after,
    create_resolved,
    is_still,
    metadata_bytes,
    next_metadata,
    read_metadata,
    version_name,
)
from lakehouse.catalog.outcome import after_the_swap, before_the_swap
from lakehouse.catalog.protocol import Namespace, TableVersion
from lakehouse.catalog.turns import machine_turn
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    FileAlreadyExistsError,
    InvalidLocationError,
    LakehouseError,
    NoSuchFileError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata_file import parse
from lakehouse.spec.properties import TableProperties
from lakehouse.spec.requirements import Requirement
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.spec.updates import Update
from lakehouse.storage.load import storage_for
from lakehouse.storage.location import canonical, join
from lakehouse.storage.protocol import Storage

log = logging.getLogger(__name__)

HINT = "version-hint.text"
TURNS = "commit.turns.enabled"
"""Catalog property: `false` lets writers of one machine collide instead of queueing (see Catalog.turn)."""

_VERSION = re.compile(r"^v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_SPELLINGS = ("v{}.metadata.json", "v{}.gz.metadata.json", "v{}.metadata.json.gz")
_DELETED_MAX = 10_000
_LOOKS_MAX = 100
_DROPPED = b'{"lakehouse-dropped":'


class FilesystemCatalog:
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
        self._warehouse = warehouse.rstrip("/")
        self._name = name
        self._properties = dict(properties or {})
        self._environment = environment if environment is not None else Environment.system()
        self._storage_factory = storage_factory
        self._store = storage_factory(self._warehouse, self._properties)
        self._settled: dict[str, int] = {}
        self._takes_turns = (
            storage_factory is storage_for and self._properties.get(TURNS, "true") == "true"
        )
        self._namespaces = FolderNamespaces(
            self._warehouse, self._store, self._is_live, self._is_table_folder
        )

    @property
    def name(self) -> str:
        """See Catalog."""
        return self._name

    @property
    def warehouse(self) -> str:
        """See Catalog."""
        return self._warehouse

    @property
    def uri(self) -> str:
        """See Catalog."""
        return self._warehouse

    @property
    def commits_to_newest(self) -> bool:
        """See Catalog."""
        return False

    @property
    def properties(self) -> Mapping[str, str]:
        """See Catalog."""
        return self._properties

    def storage(self, location: str) -> Storage:
        """See Catalog."""
        return self._storage_factory(location, self._properties)

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        """See Catalog."""
        self._namespaces.create(namespace, properties or {})

    def drop_namespace(self, namespace: Namespace) -> None:
        """See Catalog."""
        self._namespaces.drop(namespace)

    def namespace_exists(self, namespace: Namespace) -> bool:
        """See Catalog."""
        return self._namespaces.exists(namespace)

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        """See Catalog."""
        return self._namespaces.children(parent)

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        """See Catalog."""
        return self._namespaces.properties(namespace)

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        """See Catalog."""
        return self._namespaces.update_properties(namespace, updates, removals)

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        """See Catalog."""
        folder = self._namespaces.require(namespace)
        names = self._store.list_folders(folder)
        return [Identifier(namespace, name) for name in names if self._is_live(join(folder, name))]

    def table_exists(self, identifier: Identifier) -> bool:
        """See Catalog."""
        return self._is_live(self.default_location(identifier))

    def load(self, identifier: Identifier) -> TableVersion:
        """See Catalog."""
        folder = self.default_location(identifier)
        for _ in range(_LOOKS_MAX):
            newest = self._newest(folder)
            if newest is None:
                break
            location = newest[1]
            try:
                data = self._store.read(location)
            except NoSuchFileError:
                continue  # deleted between looking and reading: a newer version is there
            if data.startswith(_DROPPED):
                break
            self._settle(folder, location)
            return TableVersion(identifier, parse(data, location), location)
        raise NoSuchTableError(
            f"No table {identifier} in {self._warehouse}.", table=str(identifier)
        )

    def refresh(self, version: TableVersion) -> TableVersion:
        """See Catalog."""
        folder = self.default_location(version.identifier)
        number = _number(version.metadata_location)
        if self._at(folder, number + 1) is None and self._store.exists(version.metadata_location):
            return version
        return self.load(version.identifier)

    def default_location(self, identifier: Identifier) -> str:
        """See Catalog. Tables of this catalog are nowhere else."""
        return join(self._warehouse, *identifier.namespace, identifier.name)

    def create(self, identifier: Identifier, metadata: TableMetadata) -> TableVersion:
        """See Catalog."""
        folder = self.default_location(identifier)
        if canonical(metadata.location) != canonical(folder):
            raise InvalidLocationError(
                f"Table {identifier} must be at {folder}, not {metadata.location}: a filesystem catalog finds tables by folder. "
                "Use a SQL catalog for other locations.",
                table=str(identifier),
            )
        return self._create(identifier, metadata)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """See Catalog."""
        with before_the_swap():
            new = next_metadata(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            check_locations(new, allowed_roots(self._warehouse, self._properties))
            folder = self.default_location(identifier)
            number = _number(base.metadata_location) + 1
            if self._at(folder, number) is not None:
                raise _lost(identifier, number)
            # The codec of the base decides the name, so that all who commit after version N create the same file.
            codec = codec_after(base.metadata)
            location = self._version_location(folder, number, codec)
            data = metadata_bytes(new, codec)
        self._swap(identifier, location, data)
        self._settled[folder] = number
        self._check_base_is_there(identifier, base)
        self._write_hint(folder, number)
        after_the_swap(
            f"Deleting old metadata files of {identifier}",
            lambda: self._delete_old_versions(identifier, new),
        )
        return TableVersion(identifier, new, location)

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        """See Catalog."""
        return (
            machine_turn(canonical(self.default_location(identifier)))
            if self._takes_turns
            else nullcontext()
        )

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """See Catalog. Without `purge` every file stays; the newest metadata file can be registered again."""
        folder = self.default_location(identifier)
        while True:
            version = self.load(identifier)
            if purge:
                check_purge(version)
            number = _number(version.metadata_location) + 1
            tombstone = self._version_location(folder, number, codec_after(version.metadata))
            content = orjson.dumps(
                {
                    "lakehouse-dropped": self._environment.now_ms(),
                    "by": str(self._environment.new_uuid()),
                }
            )
            try:
                self._swap(identifier, tombstone, content)
                break
            except CommitConflictError:
                continue
        self._write_hint(folder, number)
        if purge:
            self._purge(
                identifier,
                folder,
                kept={canonical(tombstone), canonical(join(folder, "metadata", HINT))},
            )

    def _purge(self, identifier: Identifier, folder: str, kept: set[str]) -> None:
        """Delete what is below `folder`; versions last and oldest first, so that no late writer finds its number free again."""
        doomed = [
            info.location
            for info in self._store.list(folder)
            if canonical(info.location) not in kept
        ]
        numbers = {
            one: int(found.group(1))
            for one in doomed
            if (found := _VERSION.match(one.rpartition("/")[2]))
        }
        failed = dict(self._store.delete([one for one in doomed if one not in numbers]).failed)
        for one in sorted(numbers, key=numbers.__getitem__):
            if not failed:
                failed |= self._store.delete([one]).failed
        if failed:
            raise StorageError(
                f"Table {identifier} is dropped, but {len(failed)} of its files could not be deleted: "
                f"{dict(list(failed.items())[:3])}. Delete {folder} by hand.",
                table=str(identifier),
            )

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Refused: the folder is the name, and every file of the table carries it."""
        raise UnsupportedFeatureError(
            f"Table {source} cannot be renamed to {target}: in a filesystem catalog the folder is the name. Use a SQL catalog.",
            table=str(source),
        )

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """See Catalog. The table keeps its data where it is; the catalog goes on writing its metadata in its own folder."""
        metadata = read_metadata(self.storage(metadata_location), metadata_location)
        others = (
            (str(found), self.default_location(found))
            for found in self._all_tables(())
            if found != identifier or self.table_exists(identifier)
        )
        check_no_overlap(metadata.location, others)
        return self._create(identifier, metadata)

    def _create(self, identifier: Identifier, metadata: TableMetadata) -> TableVersion:
        self._namespaces.require(identifier.namespace)
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        folder = self.default_location(identifier)
        if self._namespaces.exists((*identifier.namespace, identifier.name)):
            raise TableAlreadyExistsError(f"{identifier} is a namespace.", table=str(identifier))
        newest, live = self._newest_and_live(folder)
        if live:
            raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
        number = 1 if newest is None else newest[0] + 1
        location = self._version_location(folder, number)
        try:
            self._swap(identifier, location, metadata_bytes(metadata))
        except CommitConflictError as error:
            raise TableAlreadyExistsError(
                f"Table {identifier} was created by someone else.", table=str(identifier)
            ) from error
        self._write_hint(folder, number)
        return TableVersion(identifier, metadata, location)

    def _swap(self, identifier: Identifier, location: str, data: bytes) -> None:
        try:
            create_resolved(self._store, location, data)
        except FileAlreadyExistsError as error:
            raise _lost(identifier, _number(location)) from error
        except LakehouseError as error:
            if error.context.get("outcome") == "failed":
                raise
            raise CommitStateUnknownError(
                f"Table {identifier}: writing {location} gave no clear answer ({error.message}). Nothing was deleted. "
                "Refresh the table and look for the snapshot id.",
                table=str(identifier),
                metadata_location=location,
            ) from error

    def _check_base_is_there(self, identifier: Identifier, base: TableVersion) -> None:
        """After writing version N+1: version N must still be there, and be the one that we loaded.

        Versions are deleted oldest first. Without N, another N+1 may have existed and been deleted before ours was written: then
        others are far ahead and ours is no part of their history. Nor is it with an N that another such writer left there.
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
        """Delete the versions that the metadata log no longer lists, where the table asks for it, oldest first.

        Whatever an earlier writer failed to delete goes too: versions must stay one unbroken range, because readers that begin
        at any of them find the newest by probing forward.
        """
        if not TableProperties(new.properties).metadata_delete_after_commit or not new.metadata_log:
            return
        folder = self.default_location(identifier)
        found = _VERSION.match(new.metadata_log[0].metadata_file.rpartition("/")[2])
        number = int(found.group(1)) - 1 if found else 0
        doomed: list[str] = []
        while (
            number > 0
            and len(doomed) < _DELETED_MAX
            and (location := self._at(folder, number)) is not None
        ):
            doomed.append(location)
            number -= 1
        for location in reversed(doomed):
            report = self._store.delete([location])
            if report.failed:
                raise StorageError(f"{location} cannot be deleted: {report.failed[location]}")

    def _settle(self, folder: str, location: str) -> None:
        """What was seen must not go away: its writer may stop, or lose power, before the version's name is durable."""
        number = _number(location)
        if self._settled.get(folder) != number:
            self._store.settle(location)
            self._settled[folder] = number

    def _newest(self, folder: str) -> tuple[int, str] | None:
        hint = self._read_hint(folder)
        location = None if hint is None else self._at(folder, hint)
        if hint is None or location is None:
            found = self._listed(folder)
            if found is None:
                return None
            number, location = found
        else:
            number = hint
        while (following := self._at(folder, number + 1)) is not None:
            number, location = number + 1, following
        return number, location

    def _listed(self, folder: str) -> tuple[int, str] | None:
        found = (
            (_VERSION.match(info.location.rpartition("/")[2]), info.location)
            for info in self._store.list(join(folder, "metadata"))
        )
        return max(
            ((int(match.group(1)), location) for match, location in found if match), default=None
        )

    def _at(self, folder: str, number: int) -> str | None:
        for spelling in _SPELLINGS:
            location = join(folder, "metadata", spelling.format(number))
            if self._store.exists(location):
                return location
        return None

    def _read_hint(self, folder: str) -> int | None:
        try:
            text = self._store.read(join(folder, "metadata", HINT))
        except NoSuchFileError:
            return None
        stripped = text.strip()
        return int(stripped) if stripped.isdigit() and len(stripped) < 19 else None

    def _write_hint(self, folder: str, number: int) -> None:
        hint = join(folder, "metadata", HINT)
        after_the_swap(
            f"The version hint of {folder}, from which readers probe,",
            lambda: self._store.write(hint, str(number).encode(), durable=False),
        )

    def _version_location(self, folder: str, number: int, codec: str = "none") -> str:
        return join(folder, "metadata", version_name(number, codec))

    def _is_table_folder(self, folder: str) -> bool:
        return self._newest(folder) is not None

    def _is_live(self, folder: str) -> bool:
        return self._newest_and_live(folder)[1]

    def _newest_and_live(self, folder: str) -> tuple[tuple[int, str] | None, bool]:
        """The newest version, and whether it is one of a table; False for none and for one that says that it was dropped."""
        for _ in range(_LOOKS_MAX):
            newest = self._newest(folder)
            if newest is None:
                return None, False
            try:
                return newest, self._store.read_range(newest[1], 0, len(_DROPPED)) != _DROPPED
            except NoSuchFileError:
                continue  # deleted between looking and reading: a newer version is there
        raise StorageError(
            f"{folder} changes faster than it can be looked at. Try again.",
            retryable=True,
            location=folder,
        )

    def _all_tables(self, parent: Namespace) -> Iterator[Identifier]:
        for namespace in self.list_namespaces(parent):
            yield from self.list_tables(namespace)
            yield from self._all_tables(namespace)


def _number(metadata_location: str) -> int:
    found = _VERSION.match(metadata_location.rpartition("/")[2])
    if found is None:
        raise InvalidLocationError(
            f"{metadata_location} is no version of a filesystem catalog (v<N>.metadata.json): load the table from this catalog.",
            location=metadata_location,
        )
    return int(found.group(1))


def _lost(identifier: Identifier, number: int) -> CommitConflictError:
    return CommitConflictError(
        f"Table {identifier}: version {number} was committed by someone else. Refresh and try again.",
        table=str(identifier),
        version=number,
    )
