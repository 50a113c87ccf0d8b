"""A database whose COMMIT goes wrong."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from lakehouse.catalog.sql.sql_database import Attempted, Database
from lakehouse.errors import StorageError
from tests.faulty_storage import Fault
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World


class FaultyDatabase(Database):
    """A database whose COMMIT goes wrong."""

    swaps_of: ClassVar[dict[int, int]] = {}

    def __init__(self, uri: str, world: World, process: Process | None) -> None:
        super().__init__(uri)
        self._world, self._process = world, process

    def turn(self, key: str) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def swaps(self) -> int:
        return self.swaps_of.get(id(self._world), 0)

    def attempt(self, change):  # type: ignore[no-untyped-def]
        fault = (
            None
            if self._process is None
            else self._world.decide(self._process, "commit", "database")
        )
        if fault in {Fault.REFUSED, Fault.FULL, Fault.TORN}:
            raise StorageError("injected: refused")
        if fault is Fault.TIMEOUT:
            return Attempted.LOST_REPLY
        result = super().attempt(change)
        self.swaps_of[id(self._world)] = self.swaps + 1
        return Attempted.LOST_REPLY if fault in {Fault.LOST_REPLY, Fault.DELAYED} else result
