"""Changes of a schema, partition spec or sort order: a block is one atomic commit, or none."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from lakehouse.evolution.schema_changes import Changes


class Builder(Protocol):
    """Collects changes against one table version."""

    def changes(self) -> Changes:
        """Requirements and updates collected so far."""


B = TypeVar("B", bound=Builder)


class PendingChange(Generic[B]):
    """`with table.update_schema() as s: ...` commits when the block ends without an error.

    Args:
        builder: collects the changes.
        commit: makes them visible.
    """

    def __init__(self, builder: B, commit: Callable[[Changes], None]) -> None:
        self.builder = builder
        self._commit = commit

    def __enter__(self) -> B:
        return self.builder

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._commit(self.builder.changes())
