"""What is served while requests are generated: names that exist, and enough that may be dropped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakehouse as lh
from lakehouse.lake import Lakehouse

NAMESPACES = (("kit",), ("kit", "deep"))
READ = ("flat", "parted", "rows", "empty")
"""Tables that no request changes: without partitions, with partitions, of version 3, empty."""
CHANGED, DROPPED, UNREGISTERED, RENAMED = 10, 50, 50, 50
VIEWS, DROPPED_VIEWS = 5, 50
EMPTY_NAMESPACES = 50
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("bytes", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Filled:
    """A catalog, and what its tables say that requests may repeat.

    Attributes:
        lake: the catalog.
        snapshots: ids of snapshots of the tables that no request changes.
        uuids: of tables and views.
        metadata_locations: of tables that have no name any more.
    """

    lake: Lakehouse
    snapshots: list[int]
    uuids: list[str]
    metadata_locations: list[str]


def fill(folder: Path) -> Filled:
    """A catalog in SQLite."""
    lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse")
    for name in ("accounting", *(f"gone_{n:02}" for n in range(EMPTY_NAMESPACES))):
        lake.create_namespace(name, {"owner": "ada"})
    snapshots: list[int] = []
    uuids: list[str] = []
    for namespace in NAMESPACES:
        for name in READ:
            lake.create_table(
                (*namespace, name),
                SCHEMA,
                partition_by=("day(at)", "bucket(4, id)") if name == "parted" else (),
                sort_by=("id",) if name == "parted" else (),
                format_version=3 if name == "rows" else 2,
            )
            if name != "empty":
                snapshots += _grown(lake, (*namespace, name))
        for n in range(CHANGED):
            table = lake.create_table(
                (*namespace, f"changed_{n}"), SCHEMA, format_version=2 + n % 2
            )
            uuids.append(table.metadata.table_uuid)
            _grown(lake, (*namespace, f"changed_{n}"))
        for n in range(VIEWS):
            lake.create_view((*namespace, f"view_{n}"), "SELECT id FROM kit.flat", SCHEMA)
    for n in range(DROPPED_VIEWS):
        lake.create_view(("kit", f"gone_view_{n:02}"), "SELECT id FROM kit.flat", SCHEMA)
    for kind, count in (("dropped", DROPPED), ("left", UNREGISTERED), ("named", RENAMED)):
        for n in range(count):
            lake.create_table(("kit", f"{kind}_{n:02}"), SCHEMA)
    left = [lake.create_table(("kit", f"found_{n}"), SCHEMA) for n in range(10)]
    locations = [one.metadata_location for one in left]
    for n in range(10):
        lake.drop_table(("kit", f"found_{n}"))
    return Filled(lake, snapshots, uuids, locations)


def _grown(lake: Lakehouse, name: tuple[str, ...]) -> list[int]:
    """Two appends, rows that are deleted, a branch and a tag; the snapshots' ids."""
    table = lake.load_table(name)
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "name": ["a", "b", None],
            "at": pa.array([0, 86_400_000_000, 2], pa.timestamp("us", "UTC")),
            "bytes": [b"\x00", b"\xff", None],
        },
        schema=SCHEMA,
    )
    table.append(rows)
    table.append(rows)
    table.delete("id = 2")
    return [snapshot.snapshot_id for snapshot in lake.load_table(name).metadata.snapshots]
