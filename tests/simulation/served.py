"""A catalog behind a network: a server that applies requests to what is newest, and its proxy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    LakehouseError,
    NoSuchTableError,
    StorageError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import Requirement, Update
from lakehouse.storage.storage_protocol import Storage
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

LATE = "late"
"""Answered no, and done later."""
REPEATED = "repeated"
"""Done, repeated by the proxy, and answered as the repetition was."""


class ServedCatalog:
    """The server's catalog as one process reaches it; what it does not know it passes on.

    Args:
        server: without faults; each of its calls is one step of the simulation.
        world: picks the faults.
        process: whose connection it is.
        storage: the process's own way to the files.
    """

    commits_to_newest = True

    def __init__(
        self, server: FilesystemCatalog, world: World, process: Process, storage: Storage
    ) -> None:
        self._server, self._world, self._process, self._storage = server, world, process, storage

    def __getattr__(self, name: str) -> object:
        return getattr(self._server, name)

    def storage(self, _location: str) -> Storage:
        return self._storage

    def turn(self, _identifier: Identifier) -> AbstractContextManager[None]:
        return nullcontext()

    def load(self, identifier: Identifier) -> TableVersion:
        if self._world.fault(self._process, "load", str(identifier)) is not None:
            raise StorageError("injected: no answer", retryable=True)
        return self._server.load(identifier)

    def refresh(self, version: TableVersion) -> TableVersion:
        found = self.load(version.identifier)
        return version if found.metadata_location == version.metadata_location else found

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        with before_the_swap():
            next_metadata(base, requirements, updates, self._world.now_ms())

        def serve() -> TableVersion:
            current = self._server.load(identifier)
            return self._server.commit(identifier, current, requirements, updates)

        fault = self._world.fault(self._process, "serve", str(identifier))
        if fault in ("delayed", LATE):
            self._world.later(serve)
        elif fault not in (None, REPEATED, "lost reply"):
            raise CommitStateUnknownError(f"injected: {fault}")
        if fault == LATE:
            raise CommitConflictError("injected: refused")
        if fault == "delayed":
            raise CommitStateUnknownError("injected: delayed")
        answer = self._answer(serve, base)
        if fault == "lost reply":
            raise CommitStateUnknownError("injected: lost reply")
        return self._answer(serve, base) if fault == REPEATED else answer

    def _answer(self, serve, base: TableVersion) -> TableVersion:
        """As RestCatalog reads what the server says."""
        try:
            return serve()
        except (CommitConflictError, NoSuchTableError):
            raise
        except LakehouseError as error:
            if self.refresh(base) is not base:
                raise CommitConflictError(error.message) from error
            raise InvalidInputError(error.message) from error
