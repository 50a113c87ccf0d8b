"""A transaction that is being committed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.transaction.attempt.pending_operation import Operation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A transaction to be committed.

    Attributes:
        catalog: swaps versions.
        base: what the caller decided on.
        branch: branch written to.
        operations: in order.
        environment: clock, ids, jitter, sleep.
        summary: extra summary entries.
        commit_id: the caller's name for this commit, None if it has none.
    """

    catalog: Catalog
    base: TableVersion
    branch: str
    operations: Sequence[Operation]
    environment: Environment
    summary: Mapping[str, str]
    commit_id: str | None


def refreshed_or_none(job: Run) -> TableVersion | None:
    """The table, if it can be read; failing to read it says nothing of the commit."""
    try:
        return job.catalog.refresh(job.base)
    # The outcome is unknown and must stay so: callers delete files after a certain failure.
    except Exception as error:  # noqa: BLE001
        log.warning(
            "Looking for the commit of %s: %s: %s", job.base.identifier, type(error).__name__, error
        )
        return None
