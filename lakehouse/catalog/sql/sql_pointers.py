"""Which metadata file each table or view of a database is at, and the swap of a commit.

Tables and views share the rows of `iceberg_tables`, so that a name is one of them. No two share a
folder.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_no_overlap
from lakehouse.catalog.folders import folder_name
from lakehouse.catalog.metadata_files import Described, metadata_folder, read_metadata, read_view
from lakehouse.catalog.pointers import (
    TABLE,
    VIEW,
    Kind,
    PointerMove,
    Pointers,
    lost,
    missing,
    taken,
    unclear,
)
from lakehouse.catalog.sql.sql_database import VALUE_MAX, Attempted, Database
from lakehouse.catalog.sql.sql_requests import SqlRequests
from lakehouse.errors import (
    InvalidLocationError,
    LakehouseError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.kept_by_bytes import KeptByBytes, bytes_of, short_only
from lakehouse.spec.identifier import Identifier, dotted, split_name
from lakehouse.storage.location import parent
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

_KEY = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table"


class SqlPointers(Pointers):
    """Metadata locations of the tables, or of the views, of one catalog in a database.

    Args:
        database: holds them.
        catalog: the `catalog_name`.
        storage: the storage of a location.
        tables: where every table and view lies.
        requests: what is being carried out.
        kind: which of both.
    """

    def __init__(
        self,
        database: Database,
        catalog: str,
        storage: Callable[[str], Storage],
        tables: TableLocations,
        requests: SqlRequests,
        kind: Kind = TABLE,
    ) -> None:
        self._database, self._catalog, self._storage = database, catalog, storage
        self._tables, self._requests, self._kind = tables, requests, kind

    def names(self, namespace: str) -> list[str]:
        with self._database.read() as connection:
            rows = self._database.rows(
                connection,
                "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND "
                f"table_namespace = :namespace{self._of_kind(connection)}",
                catalog=self._catalog,
                namespace=namespace,
            )
        return sorted(row[0] for row in rows)

    def find(self, identifier: Identifier) -> str | None:
        row = self._database.first_row(self._finding(None), **self._key(identifier))
        return None if row is None else row[0]

    def require(self, identifier: Identifier) -> str:
        location = self.find(identifier)
        if location is None:
            raise self.missing(identifier)
        return location

    def check_free(self, identifier: Identifier, folder: str) -> None:
        with self._database.read() as connection:
            others = list(self._tables.locations(connection))
            # looked up last: its own location is no overlap
            self._check_name(connection, identifier)
        check_no_overlap(folder, others)

    def check_folders(self, identifier: Identifier, folders: Iterable[str]) -> None:
        with self._database.read() as connection:
            others = [
                place for place in self._tables.locations(connection) if place[0] != str(identifier)
            ]
        for folder in folders:
            check_no_overlap(folder, others)

    def other_folders(self, besides: str) -> list[tuple[str, str]]:
        with self._database.read() as connection:
            return list(self._tables.locations(connection, besides=besides))

    def swap(self, moves: Sequence[PointerMove]) -> None:
        """Move all pointers or none.

        Where a reply is lost and the database can tell what happened, it is asked.

        Raises:
            CommitConflictError, NoSuchTableError, NoSuchViewError, TableAlreadyExistsError,
                ViewAlreadyExistsError, InvalidLocationError, StorageError, RequestRepeatedError,
                UnsupportedFeatureError: certainly not moved.
            CommitStateUnknownError: perhaps moved.
        """
        ordered = sorted(moves, key=lambda part: part.identifier)  # rows are locked in one order

        def change(connection: Connection) -> None:
            if any(part.expected is None for part in ordered):
                self._database.alone(connection)
            for part in ordered:
                if part.expected is None:
                    self._insert(connection, part)
                else:
                    self._update(connection, part)
            self._requests.note_current(connection)

        first = next((part for part in ordered if part.moves), ordered[0])
        # what `attempt` raises was rolled back, and so was what it gave up
        with before_the_swap():
            for part in ordered:
                self._check_length(part)
            outcome = self._database.attempt(change)
            if outcome is Attempted.GAVE_WAY and first.expected is not None:
                raise lost(self._kind, first.identifier, self.require(first.identifier))
            if outcome is Attempted.GAVE_WAY:
                raise StorageError(
                    f"{self._kind.word} {first.identifier}: the database gave way to others. Try "
                    "again.",
                    retryable=True,
                )
        if outcome is Attempted.LOST_REPLY:
            self._settle(first)  # one tells of all

    def remove(
        self, identifier: Identifier, *, at: str | None = None, answer: str | None = None
    ) -> bool:
        where, values = ("", {}) if at is None else (" AND metadata_location = :at", {"at": at})
        with self._database.write() as connection:
            gone = self._database.run(
                connection,
                f"DELETE FROM iceberg_tables WHERE {_KEY}{self._of_kind(connection)}{where}",
                **values,
                **self._key(identifier),
            )
            if gone:
                self._requests.note_current(connection, answer)
        return gone > 0

    def rename(self, source: Identifier, target: Identifier) -> None:
        with self._database.write() as connection:
            if self._find(connection, source) is None:
                raise self.missing(source)
            kind = self._kind_of(connection, target)
            if kind is not None:
                message = f"Cannot rename {source} to {target}. {kind.word} already exists."
                raise taken(kind, target, message, kind)
            try:
                renamed = self._database.run(
                    connection,
                    "UPDATE iceberg_tables SET table_namespace = :new_namespace, "
                    f"table_name = :new_table WHERE {_KEY}{self._of_kind(connection)}",
                    new_namespace=dotted(target.namespace),
                    new_table=target.name,
                    **self._key(source),
                )
            except IntegrityError as error:
                message = f"Cannot rename {source} to {target}: the name was taken meanwhile."
                raise taken(self._kind, target, message, self._kind) from error
            if renamed == 0:  # somebody else dropped or renamed it since we looked
                raise self.missing(source)
            self._requests.note_current(connection)

    def missing(self, identifier: Identifier) -> LakehouseError:
        return missing(self._kind, identifier, self._database.display_uri)

    def _key(self, identifier: Identifier) -> dict[str, str]:
        return {
            "catalog": self._catalog,
            "namespace": dotted(identifier.namespace),
            "table": identifier.name,
        }

    def _of_kind(self, connection: Connection | None) -> str:
        """The condition that leaves out the other kind."""
        if self._kind is VIEW:
            return " AND iceberg_type = 'VIEW'" if self._has_types(connection) else " AND 1 = 0"
        if self._has_types(connection):
            return " AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
        return ""

    def _has_types(self, connection: Connection | None) -> bool:
        return self._database.has_type_column(connection)

    def _find(
        self, connection: Connection, identifier: Identifier, *, locked: bool = False
    ) -> Any | None:
        """(metadata file, the one before); None where there is none."""
        lock = self._database.row_lock if locked else ""
        statement = f"{self._finding(connection)}{lock}"
        rows = self._database.rows(connection, statement, **self._key(identifier))
        return rows[0] if rows else None

    def _finding(self, connection: Connection | None) -> str:
        return (
            "SELECT metadata_location, previous_metadata_location FROM iceberg_tables "
            f"WHERE {_KEY}{self._of_kind(connection)}"
        )

    def _kind_of(self, connection: Connection, identifier: Identifier) -> Kind | None:
        """What has a name, whichever kind it is; None where nothing has."""
        typed = self._has_types(connection)
        rows = self._database.rows(
            connection,
            f"SELECT {'iceberg_type' if typed else 'NULL'} FROM iceberg_tables WHERE {_KEY}",
            **self._key(identifier),
        )
        return None if not rows else VIEW if rows[0][0] == VIEW.iceberg_type else TABLE

    def _check_name(self, connection: Connection, identifier: Identifier) -> None:
        kind = self._kind_of(connection, identifier)
        if kind is not None:
            raise taken(kind, identifier, f"{kind.word} {identifier} exists.", self._kind)

    def _update(self, connection: Connection, part: PointerMove) -> None:
        previous = ", previous_metadata_location = :expected" if part.moves else ""
        moved = self._database.run(
            connection,
            f"UPDATE iceberg_tables SET metadata_location = :new{previous} WHERE {_KEY} "
            "AND metadata_location = :expected",
            new=part.location,
            expected=part.expected,
            **self._key(part.identifier),
        )
        if moved:
            return
        current = self._find(connection, part.identifier)
        if current is None:
            raise self.missing(part.identifier)
        raise lost(self._kind, part.identifier, current[0])

    def _insert(self, connection: Connection, part: PointerMove) -> None:
        identifier, kind = part.identifier, self._kind
        self._check_name(connection, identifier)
        check_no_overlap(part.folder, self._tables.locations(connection))
        typed = self._has_types(connection)
        if kind is VIEW and not typed:
            raise UnsupportedFeatureError(
                f"{self._database.display_uri} has no views: iceberg_tables has no column "
                "iceberg_type. Add it: ALTER TABLE iceberg_tables ADD COLUMN iceberg_type "
                "VARCHAR(5)."
            )
        column, value = (", iceberg_type", f", '{kind.iceberg_type}'") if typed else ("", "")
        try:
            self._database.run(
                connection,
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
                f"metadata_location, previous_metadata_location{column}) "
                f"VALUES (:catalog, :namespace, :table, :location, NULL{value})",
                location=part.location,
                **self._key(identifier),
            )
        except IntegrityError as error:
            message = f"{kind.word} {identifier} was created by someone else."
            raise taken(kind, identifier, message, kind) from error

    def _settle(self, part: PointerMove) -> None:
        """After a lost reply to COMMIT: return if committed; CommitConflictError if not."""
        identifier, expected, location = part.identifier, part.expected, part.location
        kind = self._kind
        name = kind.word.lower()
        try:
            with self._database.write() as connection:
                # waits for the transaction that still holds the row
                row = self._find(connection, identifier, locked=True)
            # storage is read with the lock given back
            if row is not None and row[0] == location:
                return
            if expected is None:
                raise unclear(kind, identifier, location, f"the {name} is not there, or not yet")
            history = {expected} if row is None or row[0] == expected else self._history(*row)
        except LakehouseError as error:
            raise unclear(kind, identifier, location, error.message) from error
        if row is None:
            raise unclear(kind, identifier, location, f"the {name} was dropped meanwhile")
        if location in history:
            return
        if expected not in history:  # the log is too short to tell
            raise unclear(kind, identifier, location, f"{row[0]} is current, many versions later")
        raise lost(kind, identifier, row[0])

    def _history(self, location: str, previous: str | None) -> set[str | None]:
        if self._kind is VIEW:  # their metadata has no log of files
            return {previous}
        metadata = read_metadata(self._storage(location), location)
        return {entry.metadata_file for entry in metadata.metadata_log}

    def _check_length(self, part: PointerMove) -> None:
        if len(part.location) > VALUE_MAX:
            raise InvalidLocationError(
                f"{self._kind.word} {part.identifier}: {part.location[:80]}... has "
                f"{len(part.location)} characters; a SQL catalog keeps {VALUE_MAX}. Use shorter "
                "names, or a shorter location.",
                **self._kind.named(part.identifier),
            )


_KNOWN_BYTES_MAX = 4 * 1024 * 1024
_OWN_SUFFIX = re.compile("-[0-9a-f]{12}$")
_OWN_CHARACTERS = 13


class TableLocations:
    """Locations of every table and view in a database, whatever its catalog name.

    The database keeps the metadata file alone. Where that lies as tables of this name do by
    default, its folder tells the location; otherwise (`write.metadata.path`, renamed or registered
    tables) the metadata is read, once.
    """

    def __init__(self, database: Database, storage: Callable[[str], Storage]) -> None:
        self._database, self._storage = database, storage
        self._known: KeptByBytes[str, tuple[str, ...]] = KeptByBytes(_KNOWN_BYTES_MAX)

    def locations(
        self, connection: Connection, *, besides: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """(name, folder) for each folder of a table or view.

        Its location, and its metadata where that is elsewhere.

        The table whose metadata file is `besides` is left out.
        """
        kind = "iceberg_type" if self._database.has_type_column(connection) else "NULL"
        rows = self._database.rows(
            connection,
            f"SELECT table_namespace, table_name, metadata_location, {kind} FROM iceberg_tables "
            "WHERE metadata_location IS NOT NULL",
        )
        for namespace, table, pointer, iceberg_type in (row for row in rows if row[2] != besides):
            for folder in self._folders(namespace, table, pointer, is_view=iceberg_type == "VIEW"):
                yield f"{namespace}.{dotted((table,))}", folder

    def _folders(
        self, namespace: str, table: str, pointer: str, *, is_view: bool
    ) -> tuple[str, ...]:
        folder = parent(pointer).removesuffix("/metadata")
        # every creation asks this of every table: plain comparisons, no pattern for each name
        usual = f"/{_namespace_path(namespace)}/{folder_name(table)}"
        own = folder.endswith(usual) or (
            _OWN_SUFFIX.search(folder) is not None and folder[:-_OWN_CHARACTERS].endswith(usual)
        )
        if own and folder != parent(pointer):
            return (folder,)
        folders = self._known.get(pointer)
        if folders is None:
            folders = self._read(pointer, folder, is_view=is_view)
            self._known.put(pointer, folders, bytes_of(pointer, folders))
        return folders

    def _read(self, pointer: str, folder: str, *, is_view: bool) -> tuple[str, ...]:
        read = read_view if is_view else read_metadata
        try:
            metadata: Described = read(self._storage(pointer), pointer)
        except LakehouseError as error:
            log.warning(
                "%s cannot be read, its folder is taken for the table's: %s", pointer, error
            )
            return (folder,)
        return tuple(dict.fromkeys((metadata.location, metadata_folder(metadata))))


@short_only(1024)
def _namespace_path(namespace: str) -> str:
    """The folders of a namespace, as the database has it, below the warehouse."""
    return "/".join(folder_name(level) for level in split_name(namespace))
