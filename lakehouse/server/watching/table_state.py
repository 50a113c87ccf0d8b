"""What the pages tell of a table: of its metadata alone, of a bounded part of its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.curation.standard_fields import COMMENT
from lakehouse.errors import LakehouseError
from lakehouse.maintenance.shown_plan import human_bytes
from lakehouse.semantics.facts import OWNER
from lakehouse.server.watching.page_rendering import number
from lakehouse.spec.metadata.snapshot import (
    ASSET_KEY,
    OPERATION_REPLACE,
    REFRESH_STATE,
    Snapshot,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata

ANCESTORS_MAX = 200
"""Snapshots that are looked at to find out who wrote a table, and of what."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in one line.

    Attributes:
        rows, files, size: as the newest snapshot's summary says; empty: it does not.
        changed_ms: when its rows changed last, compaction aside; None: never.
        owner, comment: of its properties.
        asset: key of the Dagster asset that wrote it last; empty: none did.
        inputs: table -> the snapshot of it that this one was computed from; None: it was empty.
        behind: ranges of days that do not follow from these yet.
        problem: why the rest cannot be told.
    """

    rows: str = ""
    files: str = ""
    size: str = ""
    changed_ms: int | None = None
    owner: str = ""
    comment: str = ""
    asset: str = ""
    inputs: Mapping[str, int | None] | None = None
    behind: tuple[str, ...] = ()
    problem: str = ""

    @classmethod
    def of(cls, version: TableVersion) -> TableState:
        """The state of a version; `problem` where its metadata contradicts itself."""
        metadata = version.metadata
        try:
            return _state(metadata)
        except (LakehouseError, ValueError, LookupError, TypeError, AttributeError) as error:
            return cls(problem=f"Its metadata cannot be read: {error}")


def _state(metadata: TableMetadata) -> TableState:
    owner, comment = (metadata.properties.get(key, "") for key in (OWNER, COMMENT))
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return TableState(rows="0", files="0", size="0 B", owner=owner, comment=comment)
    line = list(recent_line(metadata))
    changed = next(
        (snapshot for snapshot in line if snapshot.operation != OPERATION_REPLACE), line[-1]
    )
    written = next((snapshot for snapshot in line if ASSET_KEY in snapshot.summary), None)
    refreshed = next((snapshot for snapshot in line if REFRESH_STATE in snapshot.summary), None)
    inputs, behind = _refreshed(refreshed)
    size = snapshot.summary.get("total-files-size", "")
    most = "at most " if snapshot.summary.get("total-delete-files", "0") != "0" else ""
    rows = number(snapshot.summary.get("total-records"))
    return TableState(
        rows=f"{most}{rows}" if rows else "",
        files=number(snapshot.summary.get("total-data-files")),
        size=human_bytes(int(size)) if size.isdecimal() and len(size) < 20 else size,
        changed_ms=changed.timestamp_ms,
        owner=owner,
        comment=comment,
        asset="" if written is None else written.summary[ASSET_KEY],
        inputs=inputs,
        behind=behind,
    )


def recent_line(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The current snapshot and its ancestors, newest first, `ANCESTORS_MAX` at most."""
    return islice(metadata.ancestors(metadata.current_snapshot_id), ANCESTORS_MAX)


def _refreshed(
    snapshot: Snapshot | None,
) -> tuple[Mapping[str, int | None] | None, tuple[str, ...]]:
    if snapshot is None:
        return None, ()
    found: Any = orjson.loads(snapshot.summary[REFRESH_STATE])
    inputs = {str(name): None if one is None else int(one) for name, one in found["inputs"].items()}
    ranges = [(str(first), str(last)) for first, last in found.get("behind", ())]
    return inputs, tuple(a if a == b else f"{a} to {b}" for a, b in ranges)


def newer_than(metadata: TableMetadata, snapshot_id: int | None) -> bool:
    """Whether rows of a table changed after one of its snapshots was read; None: it was empty."""
    for snapshot in recent_line(metadata) if metadata.current_snapshot_id is not None else ():
        if snapshot.snapshot_id == snapshot_id:
            return False
        if snapshot.operation != OPERATION_REPLACE:
            return True
    return False
