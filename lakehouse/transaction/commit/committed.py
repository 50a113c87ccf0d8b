"""A successful commit; the other outcomes are errors (see lakehouse.errors.CommitError)."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.spec.metadata.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did: the new version, and its snapshots.

    Attributes:
        version: the table as this commit left it, or a later version that contains the commit.
        snapshot: the last snapshot this transaction made; None when it changed only metadata.
        snapshots: every snapshot it made, in order.
        retries: attempts that lost against other writers before the one that won.
        replayed: True when an earlier run with the same commit id had committed already and nothing
            was written.
    """

    version: TableVersion
    snapshot: Snapshot | None
    snapshots: tuple[Snapshot, ...] = ()
    retries: int = 0
    replayed: bool = False
