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
from lakehouse.server.access.asked_privileges import path_of
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.rest_operation import Served
from lakehouse.server.watching.page_rendering import number, table_path
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import ASSET_KEY, OPERATION_REPLACE, REFRESH_STATE, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata

ANCESTORS_MAX = 200
"""Snapshots that are looked at to find out who wrote a table, and of what."""
INPUTS_MAX = 50
"""Tables that one was computed from, at most so many are shown."""


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
        problem: why the rest is unknown.
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
    state: Any = orjson.loads(snapshot.summary[REFRESH_STATE])
    inputs = {
        str(name): None if version is None else int(version)
        for name, version in state["inputs"].items()
    }
    ranges = [(str(first), str(last)) for first, last in state.get("behind", ())]
    return inputs, tuple(a if a == b else f"{a} to {b}" for a, b in ranges)


def newer_than(metadata: TableMetadata, snapshot_id: int | None) -> bool:
    """Whether rows of a table changed after one of its snapshots was read; None: it was empty."""
    for snapshot in recent_line(metadata) if metadata.current_snapshot_id is not None else ():
        if snapshot.snapshot_id == snapshot_id:
            return False
        if snapshot.operation != OPERATION_REPLACE:
            return True
    return False


def readable_table(served: Served, name: str) -> TableVersion | None:
    """A table by its dotted name, if there is one that the caller may read."""
    try:
        identifier = Identifier.parse(name)
        if not served.caller.may(Privilege.READ, path_of(identifier)):
            return None
        return served.tables.newest(identifier)
    except LakehouseError:  # dropped, damaged, or no name
        return None


def computed_from(served: Served, state: TableState) -> list[dict[str, Any]]:
    """What a table was computed from; of what the caller may not read, that there is something."""
    rows = []
    for name, snapshot_id in islice((state.inputs or {}).items(), INPUTS_MAX):
        version = readable_table(served, name)
        rows.append(
            {
                "name": name if version is not None else "a table that you cannot read",
                "path": "" if version is None else table_path(version.identifier, "lineage"),
                "snapshot": "" if snapshot_id is None or version is None else str(snapshot_id),
                "newer": version is not None and newer_than(version.metadata, snapshot_id),
                "version": version,
            }
        )
    return rows
