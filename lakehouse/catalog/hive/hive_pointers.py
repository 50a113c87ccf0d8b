"""Which metadata file each table or view of a Hive Metastore is at, and the swap of a commit.

As Iceberg's Java does it, a swap holds the table's lock; or, where `engine.hive.lock-enabled` is
false, it names the version that it replaces, which metastores of version 4 compare, and older ones
ignore (`expected_parameter_value`, HIVE-26882; in Derby and Oracle 4.0.1 cannot compare texts).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from hive_metastore.ttypes import EnvironmentContext

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_no_overlap
from lakehouse.catalog.hive.hive_locks import HeldLock, HiveLocks
from lakehouse.catalog.hive.hive_namespaces import kept_name
from lakehouse.catalog.hive.hive_tables import LOCATION, PREVIOUS, hive_table, is_of
from lakehouse.catalog.hive.metastore import Metastore, Missing, Refusal, Taken, Unnameable
from lakehouse.catalog.metadata_files import Described, read_metadata, read_view
from lakehouse.catalog.pointers import (
    TABLE,
    VIEW,
    Kind,
    PointerMove,
    lost,
    missing,
    taken,
    unclear,
)
from lakehouse.errors import (
    InvalidIdentifierError,
    LakehouseError,
    NoSuchNamespaceError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.table_properties import boolean
from lakehouse.storage.storage_protocol import Storage

LOCK_ENABLED = "engine.hive.lock-enabled"
_OWN_SUFFIX = re.compile("-[0-9a-f]{12}$")
_COLUMNS = "incompatible"
_COMPARING = 4
"""The version since which a metastore compares `expected_parameter_value`."""


class HivePointers:
    """Metadata locations of the tables, or of the views, of a metastore.

    Args:
        metastore: holds them.
        locks: of the metastore.
        storage: the storage of a location.
        properties: of the catalog: `iceberg.engine.hive.lock-enabled` (true).
        kind: which of both.
    """

    def __init__(
        self,
        metastore: Metastore,
        locks: HiveLocks,
        storage: Callable[[str], Storage],
        properties: Mapping[str, str],
        kind: Kind = TABLE,
    ) -> None:
        self._metastore, self._locks, self._storage, self._kind = metastore, locks, storage, kind
        name = f"iceberg.{LOCK_ENABLED}"
        self._is_locking = boolean(properties.get(name, properties.get(LOCK_ENABLED, "true")))
        self._compares: bool | None = None

    def names(self, namespace: str) -> list[str]:
        """The names in a namespace, sorted."""
        tables = self._metastore.tables(namespace)
        return sorted(table.tableName for table in tables if is_of(table, self._kind))

    def find(self, identifier: Identifier) -> str | None:
        """The metadata file; None where there is none."""
        table = self._present(identifier)
        return None if table is None else str(table.parameters[LOCATION])

    def require(self, identifier: Identifier) -> str:
        """The metadata file. Raises NoSuchTableError or NoSuchViewError."""
        location = self.find(identifier)
        if location is None:
            raise self.missing(identifier)
        return location

    def missing(self, identifier: Identifier) -> LakehouseError:
        """The error where there is none of this name."""
        return missing(self._kind, identifier, self._metastore.uri)

    def check_free(self, identifier: Identifier, folder: str) -> None:
        """Raise an error unless something new can have this name and this folder.

        A folder of a name that nobody else has is compared with those of its namespace alone.
        """
        kept_name((identifier.name,))
        self._check_name(identifier)
        is_own = _OWN_SUFFIX.search(folder) is not None
        check_no_overlap(folder, self._folders(identifier.namespace[:1] if is_own else None))

    def check_folders(self, identifier: Identifier, folders: Iterable[str]) -> None:
        """Raise InvalidLocationError where a folder is that of another table or view."""
        others = [place for place in self._folders() if place[0] != str(identifier)]
        for folder in folders:
            check_no_overlap(folder, others)

    def other_folders(self, besides: str) -> list[tuple[str, str]]:
        """(name, folder) of every table and view but the one whose metadata file is `besides`."""
        return list(self._folders(besides=besides))

    def swap(self, moves: Sequence[PointerMove]) -> None:
        """Move one pointer."""
        (move,) = moves
        if move.expected is None:
            self._create(move)
        else:
            self._alter(move, move.expected)

    def remove(
        self,
        identifier: Identifier,
        *,
        at: str | None = None,
        answer: str | None = None,  # noqa: ARG002 - nothing notes requests here
    ) -> bool:
        """Remove the name; with `at` only while it is at that metadata file. Whether it was.

        Without locks somebody can commit between the comparison and the end.
        """
        present = self._present(identifier)
        if present is None:
            return False
        with self._guarded(identifier, present.parameters) as lock:
            location = self.find(identifier)
            if location is None or (at is not None and location != at):
                return False
            if lock is not None:
                lock.confirm()
            [database], name = identifier.namespace, identifier.name
            try:
                self._metastore.call(lambda client: client.drop_table(database, name, False))
            except Missing:
                return False
            except StorageError:
                if self.find(identifier) is not None:
                    raise
        return True

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give it another name."""
        kept_name((target.name,))
        present = self._present(source)
        if present is None:
            raise self.missing(source)
        with self._guarded(source, present.parameters) as lock:
            table = self._present(source)
            if table is None:
                raise self.missing(source)
            self._check_name(target)
            location = table.parameters[LOCATION]
            vars(table).update(dbName=target.namespace[0], tableName=target.name)
            if lock is not None:
                lock.confirm()
            try:
                self._change(source, table, location, lock)
            except Refusal as error:
                self._check_name(target)
                raise self._refused(source, error) from error
            except StorageError:
                if self.find(target) != location:
                    raise

    def _create(self, move: PointerMove) -> None:
        identifier, word = move.identifier, self._kind.word
        with before_the_swap():
            kept_name((identifier.name,))
            self._check_name(identifier)
            table = hive_table(move, self._new(move), None, self._kind)
        try:
            self._metastore.call(lambda client: client.create_table(table))
        except Taken as error:
            # a metastore tries again by itself, and meets what it made
            if self.find(identifier) == move.location:
                return
            with before_the_swap():
                message = f"{word} {identifier} was created by someone else."
                raise taken(self._kind, identifier, message, self._kind) from error
        except Refusal as error:
            with before_the_swap():
                raise self._refused(identifier, error) from error
        except StorageError as error:
            self._settle(move, error)

    def _alter(self, move: PointerMove, expected: str) -> None:
        identifier = move.identifier
        properties = {} if move.old is None else move.old.properties
        with ExitStack() as holding:
            with before_the_swap():
                lock = holding.enter_context(self._guarded(identifier, properties))
                present = self._present(identifier)
                if present is None:
                    raise self.missing(identifier)
                current = present.parameters[LOCATION]
                if current != expected:
                    raise lost(self._kind, identifier, current)
                table = hive_table(move, self._new(move), present, self._kind)
                if lock is not None:
                    lock.confirm()
            try:
                self._change(identifier, table, expected, lock)
            except Refusal as error:
                with before_the_swap():
                    raise self._refused(identifier, error) from error
            except StorageError as error:
                self._settle(move, error)

    def _settle(self, move: PointerMove, error: StorageError) -> None:
        """After a swap that failed: return if it happened; raise what is certain, or `unclear`."""
        identifier, kind = move.identifier, self._kind
        if error.commit_outcome == "failed":
            raise error
        # an answer, though of failure: nothing of it comes later
        is_answered = error.commit_outcome is None
        try:
            table = self._present(identifier)
            current = None if table is None else table.parameters[LOCATION]
            if current == move.location:
                return
            history = {None, move.expected}
            if table is not None and current != move.expected:
                history |= self._history(str(current), table.parameters)
        except LakehouseError as failure:
            raise self._unclear(move, failure.message) from failure
        if move.location in history:
            return
        if not is_answered or move.expected not in history:
            raise self._unclear(move, error.message) from error
        with before_the_swap():
            if current is None and move.expected is not None:
                raise self.missing(identifier) from error
            if current == move.expected:
                raise StorageError(f"{kind.word} {identifier}: {error.message}") from error
            if move.expected is None:
                message = f"{kind.word} {identifier} was created by someone else."
                raise taken(kind, identifier, message, kind) from error
            raise lost(kind, identifier, str(current)) from error

    def _unclear(self, move: PointerMove, reason: str) -> LakehouseError:
        return unclear(self._kind, move.identifier, move.location, reason, "the metastore")

    def _history(self, location: str, parameters: Mapping[str, str]) -> set[str | None]:
        if self._kind is VIEW:  # their metadata has no log of files
            return {parameters.get(PREVIOUS)}
        metadata = read_metadata(self._storage(location), location)
        return {entry.metadata_file for entry in metadata.metadata_log}

    def _refused(self, identifier: Identifier, error: Refusal) -> LakehouseError:
        """What a metastore certainly did not do, as an error of ours."""
        message = error.message
        if isinstance(error, Unnameable):
            return InvalidIdentifierError(f"{identifier}: {message}")
        if self._present(identifier) is not None:
            advice = (
                " Iceberg tells columns apart by id: set metastore.disallow.incompatible.col."
                "type.changes to false in the metastore."
                if _COLUMNS in message
                else ""
            )
            return StorageError(f"{self._kind.word} {identifier}: {message}.{advice}")
        database = identifier.namespace[0]
        try:
            self._metastore.ask(lambda client: client.get_database(database))
        except Missing:
            return NoSuchNamespaceError(f"No namespace {database}.", namespace=database)
        return self.missing(identifier)

    def _present(self, identifier: Identifier) -> Any | None:
        if len(identifier.namespace) > 1:
            return None
        table = self._metastore.table(identifier.namespace[0], identifier.name)
        return table if table is not None and is_of(table, self._kind) else None

    def _check_name(self, identifier: Identifier) -> None:
        if len(identifier.namespace) > 1:
            raise NoSuchNamespaceError(
                f"{identifier}: a Hive Metastore has namespaces of one level.",
                namespace=str(identifier.namespace),
            )
        table = self._metastore.table(identifier.namespace[0], identifier.name)
        if table is None:
            return
        kind = VIEW if is_of(table, VIEW) else TABLE
        ours = "" if is_of(table, kind) else " It is none of Iceberg's."
        message = f"{kind.word} {identifier} exists.{ours}"
        raise taken(kind, identifier, message, self._kind)

    def _folders(
        self, databases: Sequence[str] | None = None, besides: str | None = None
    ) -> Iterator[tuple[str, str]]:
        if databases is None:
            databases = self._metastore.ask(lambda client: client.get_all_databases())
        for database in databases:
            for table in self._metastore.tables(database):
                is_known = (table.parameters or {}).get(LOCATION) == besides
                if table.sd is not None and table.sd.location and not is_known:
                    yield str(Identifier((database,), table.tableName)), table.sd.location

    def _new(self, move: PointerMove) -> Described:
        if move.new is not None:
            return move.new
        read: Callable[[Storage, str], Described] = (
            read_view if self._kind is VIEW else read_metadata
        )
        return read(self._storage(move.location), move.location)

    @contextmanager
    def _guarded(
        self, identifier: Identifier, properties: Mapping[str, str]
    ) -> Iterator[HeldLock | None]:
        """Hold the lock where the table or the catalog says so; None: the metastore compares."""
        given = properties.get(LOCK_ENABLED)
        if self._is_locking if given is None else boolean(given):
            with self._locks.lock(identifier) as held:
                yield held
            return
        if self._compares is None:
            version = self._metastore.ask(lambda client: client.getVersion())
            major = version.partition(".")[0]
            self._compares = major.isdecimal() and int(major) >= _COMPARING
        if not self._compares:
            raise UnsupportedFeatureError(
                f"{identifier}: without locks ({LOCK_ENABLED}=false) commits would be lost: "
                f"{self._metastore.uri} is older than version 4 and compares nothing (HIVE-26882). "
                "Leave locks on, in every engine."
            )
        yield None

    def _change(self, identifier: Identifier, table: Any, at: str, lock: HeldLock | None) -> None:
        """Put a table in place of that of a name, which is at a metadata file."""
        context = {"DO_NOT_UPDATE_STATS": "true"}
        if lock is None:
            context |= {"expected_parameter_key": LOCATION, "expected_parameter_value": at}
        [database], name = identifier.namespace, identifier.name
        environment = EnvironmentContext(context)
        self._metastore.call(
            lambda client: client.alter_table_with_environment_context(
                database, name, table, environment
            )
        )
