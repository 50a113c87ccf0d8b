"""Pointers that a metastore keeps as parameters of its tables: a Hive Metastore, Glue.

Both have databases of one level, and tables of all formats beside Iceberg's. What is shared stands
here: names and folders, the look before a swap, and what is certain after one that failed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_no_overlap
from lakehouse.catalog.metadata_files import Described, read_metadata, read_view
from lakehouse.catalog.metastores.metastore_catalog import (
    Databases,
    Missing,
    Overtaken,
    Refusal,
    Taken,
    Unnameable,
    kept_name,
)
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
from lakehouse.errors import (
    InvalidIdentifierError,
    LakehouseError,
    NoSuchNamespaceError,
    StorageError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.storage_protocol import Storage

LOCATION, PREVIOUS, TYPE = "metadata_location", "previous_metadata_location", "table_type"
TYPES = {"TABLE": "iceberg", "VIEW": "iceberg-view"}
_OWN_SUFFIX = re.compile("-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table or view of a metastore, Iceberg's or not.

    Attributes:
        name: its own, without that of its database.
        parameters: texts by name.
        folder: where it lies; None where it says nothing.
        held: what the metastore answered.
    """

    name: str
    parameters: Mapping[str, str]
    folder: str | None
    held: Any

    def is_of(self, kind: Kind) -> bool:
        """Whether it is an Iceberg table, or an Iceberg view."""
        kept = self.parameters.get(TYPE, "")
        return kept.lower() == TYPES[kind.iceberg_type] and LOCATION in self.parameters


class MetastorePointers(Pointers, ABC):
    """Metadata locations of the tables, or of the views, of a metastore.

    Args:
        databases: of the metastore.
        storage: the storage of a location.
        kind: which of both.
    """

    def __init__(
        self, databases: Databases, storage: Callable[[str], Storage], kind: Kind = TABLE
    ) -> None:
        self._databases, self._storage, self._kind = databases, storage, kind

    @abstractmethod
    def _kept(self, database: str, name: str) -> KeptTable | None:
        """A table or view; None where there is none."""

    @abstractmethod
    def _all_kept(self, database: str) -> list[KeptTable]:
        """All tables and views; none where there is no database."""

    @abstractmethod
    def _guarded(
        self, identifier: Identifier, properties: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        """A guard that holds while the block changes a table or view."""

    @abstractmethod
    def _description(
        self, move: PointerMove, new: Described, present: KeptTable | None, guard: Any
    ) -> Any:
        """What the metastore keeps after a move; the last that is made before it."""

    @abstractmethod
    def _insert(self, identifier: Identifier, description: Any) -> None:
        """Have it made. Raises Refusal, StorageError."""

    @abstractmethod
    def _replace(
        self, identifier: Identifier, description: Any, present: KeptTable, guard: Any
    ) -> None:
        """Put it in place of what is present. Raises Refusal, StorageError."""

    @abstractmethod
    def _delete(self, identifier: Identifier, guard: Any) -> None:
        """Forget it. Raises Refusal, StorageError."""

    @abstractmethod
    def _move(self, present: KeptTable, source: Identifier, target: Identifier, guard: Any) -> None:
        """Give it another name. Raises Refusal, StorageError."""

    def _advice(self, message: str) -> str:  # noqa: ARG002
        """What to do about a refusal."""
        return ""

    def names(self, namespace: str) -> list[str]:
        return sorted(one.name for one in self._all_kept(namespace) if one.is_of(self._kind))

    def find(self, identifier: Identifier) -> str | None:
        present = self._present(identifier)
        return None if present is None else present.parameters[LOCATION]

    def require(self, identifier: Identifier) -> str:
        location = self.find(identifier)
        if location is None:
            raise self.missing(identifier)
        return location

    def missing(self, identifier: Identifier) -> LakehouseError:
        return missing(self._kind, identifier, self._databases.uri)

    def check_free(self, identifier: Identifier, folder: str) -> None:
        """Raise an error unless something new can have this name and this folder.

        A folder of a name that nobody else has is compared with those of its namespace alone.
        """
        kept_name((identifier.name,), self._databases)
        self._check_name(identifier)
        is_own = _OWN_SUFFIX.search(folder) is not None
        check_no_overlap(folder, self._folders(identifier.namespace[:1] if is_own else None))

    def check_folders(self, identifier: Identifier, folders: Iterable[str]) -> None:
        others = [place for place in self._folders() if place[0] != str(identifier)]
        for folder in folders:
            check_no_overlap(folder, others)

    def other_folders(self, besides: str) -> list[tuple[str, str]]:
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
        with self._guarded(identifier, present.parameters) as guard:
            location = self.find(identifier)
            if location is None or (at is not None and location != at):
                return False
            try:
                self._delete(identifier, guard)
            except Missing:
                return False
            except StorageError:
                if self.find(identifier) is not None:
                    raise
        return True

    def rename(self, source: Identifier, target: Identifier) -> None:
        kept_name((target.name,), self._databases)
        present = self._present(source)
        if present is None:
            raise self.missing(source)
        with self._guarded(source, present.parameters) as guard:
            present = self._present(source)
            if present is None:
                raise self.missing(source)
            self._check_name(target)
            location = present.parameters[LOCATION]
            try:
                self._move(present, source, target, guard)
            except Refusal as error:
                self._check_name(target)
                raise self._refused(source, error) from error
            except StorageError:
                if self.find(target) != location:
                    raise

    def _create(self, move: PointerMove) -> None:
        identifier, word = move.identifier, self._kind.word
        with before_the_swap():
            kept_name((identifier.name,), self._databases)
            self._check_name(identifier)
            description = self._description(move, self._new(move), None, None)
        try:
            self._insert(identifier, description)
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
                guard = holding.enter_context(self._guarded(identifier, properties))
                present = self._present(identifier)
                if present is None:
                    raise self.missing(identifier)
                current = present.parameters[LOCATION]
                if current != expected:
                    raise lost(self._kind, identifier, current)
                description = self._description(move, self._new(move), present, guard)
            try:
                self._replace(identifier, description, present, guard)
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
            present = self._present(identifier)
            current = None if present is None else present.parameters[LOCATION]
            if current == move.location:
                return
            history = {None, move.expected}
            if present is not None and current != move.expected:
                history |= self._history(str(current), present.parameters)
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
        current = self.find(identifier)
        if current is not None:
            if isinstance(error, Overtaken):
                return lost(self._kind, identifier, current)
            return StorageError(
                f"{self._kind.word} {identifier}: {message}.{self._advice(message)}"
            )
        database = identifier.namespace[0]
        if self._databases.find(database) is None:
            return NoSuchNamespaceError(f"No namespace {database}.", namespace=database)
        return self.missing(identifier)

    def _present(self, identifier: Identifier) -> KeptTable | None:
        if len(identifier.namespace) > 1:
            return None
        table = self._kept(identifier.namespace[0], identifier.name)
        return table if table is not None and table.is_of(self._kind) else None

    def _check_name(self, identifier: Identifier) -> None:
        if len(identifier.namespace) > 1:
            raise NoSuchNamespaceError(
                f"{identifier}: {self._databases.keeper} has namespaces of one level.",
                namespace=str(identifier.namespace),
            )
        table = self._kept(identifier.namespace[0], identifier.name)
        if table is None:
            return
        kind = VIEW if table.is_of(VIEW) else TABLE
        ours = "" if table.is_of(kind) else " It is none of Iceberg's."
        message = f"{kind.word} {identifier} exists.{ours}"
        raise taken(kind, identifier, message, self._kind)

    def _folders(
        self, databases: Sequence[str] | None = None, besides: str | None = None
    ) -> Iterator[tuple[str, str]]:
        for database in self._databases.names() if databases is None else databases:
            for table in self._all_kept(database):
                if table.folder and table.parameters.get(LOCATION) != besides:
                    yield str(Identifier((database,), table.name)), table.folder

    def _new(self, move: PointerMove) -> Described:
        if move.new is not None:
            return move.new
        read: Callable[[Storage, str], Described] = (
            read_view if self._kind is VIEW else read_metadata
        )
        return read(self._storage(move.location), move.location)
