"""Object-store requests to plan one query, counted by the storage: Hive's listing beside ours.

    python benchmarks/plan_cost.py [--scale 1.0]

The table of the lecture's first problem: 730 daily partitions of 1,400 files (1.02 million), 950
manifests of about 1,076 files, one week and one `user_id` wanted. It is metadata only, written by
this library to a storage in memory that logs every request; data files are keys to be listed. Files
of a day are sorted by `user_id`. Requests are counted; seconds are derived from the log, for 30 ms
a LIST, 60 ms a GET or HEAD and 64 requests at a time: requests for one partition or manifest follow
each other, those for different ones run side by side, and what names the manifests (hint, table
metadata, manifest list) comes first, one after the other. A SQL or REST catalog knows the metadata
file, so that no request to the store is needed for it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import heapq
import itertools
import json
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from benchmarks.counting_storage import CountingStorage, Request  # noqa: E402
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog  # noqa: E402
from lakehouse.environment import Environment  # noqa: E402
from lakehouse.lake import Lakehouse  # noqa: E402
from lakehouse.scan.planner import ScanRequest, plan_scan  # noqa: E402
from lakehouse.spec.identifier import Identifier  # noqa: E402
from lakehouse.spec.manifests.manifest_entries import Entries  # noqa: E402
from lakehouse.spec.manifests.manifest_list import (  # noqa: E402
    CONTENT_DATA_MANIFEST,
    write_manifest_list,
)
from lakehouse.spec.metadata.metadata_json import parse  # noqa: E402
from lakehouse.spec.metadata.snapshot import Snapshot  # noqa: E402
from lakehouse.spec.metadata.table_metadata import TableMetadata  # noqa: E402
from lakehouse.spec.metadata.table_updates import AddSnapshot, SetSnapshotRef  # noqa: E402
from lakehouse.transaction.snapshot_producer import SnapshotProducer  # noqa: E402

DAYS = 730
FILES_PER_DAY = 1400
MANIFESTS = 950
PARALLEL = 64
SECONDS = {"LIST": 0.030, "GET": 0.060, "HEAD": 0.060}
FIRST_DAY = (dt.date(2024, 7, 1) - dt.date(1970, 1, 1)).days
WEEK = [(dt.date(2026, 6, 1) - dt.date(1970, 1, 1)).days + n for n in range(7)]
USERS = 1_000_000
DAY_US = 86_400_000_000
SCHEMA = pa.schema(
    [("event_ts", pa.timestamp("us", "UTC")), ("user_id", pa.int64()), ("amount", pa.float64())]
)
TABLE = Identifier.parse("raw.events")
WHERE = "event_ts >= '2026-06-01T00:00:00+00:00' and event_ts < '2026-06-08T00:00:00+00:00'"


@dataclass(frozen=True)
class Shape:
    """How large the table is."""

    days: int = DAYS
    files_per_day: int = FILES_PER_DAY
    manifests: int = MANIFESTS

    @classmethod
    def scaled(cls, scale: float) -> Shape:
        """All 730 days, fewer files in each; as many files a manifest as at full scale."""
        files = max(round(FILES_PER_DAY * scale), 2)
        return cls(files_per_day=files, manifests=max(round(MANIFESTS * files / FILES_PER_DAY), 1))

    @property
    def files(self) -> int:
        """Data files of the table."""
        return self.days * self.files_per_day


def entries(shape: Shape, location: str, start: int, stop: int, spec: Any) -> Entries:
    """Entries of the files numbered [start, stop): by day, and within a day by `user_id`."""
    number = np.arange(start, stop)
    day, k = FIRST_DAY + number // shape.files_per_day, number % shape.files_per_day
    count = len(number)
    per_file = USERS // shape.files_per_day
    folders = {
        number: f"{location}/data/event_ts_day={dt.date(1970, 1, 1) + dt.timedelta(int(number))}"
        for number in np.unique(day)
    }

    def filled(value: int) -> pa.Array:
        return pa.array(np.full(count, value), pa.int64())

    columns: dict[str, pa.Array] = {
        "status": pa.array(np.ones(count), pa.int32()),
        "snapshot_id": pa.nulls(count, pa.int64()),
        "sequence_number": pa.nulls(count, pa.int64()),
        "file_sequence_number": pa.nulls(count, pa.int64()),
        "content": pa.array(np.zeros(count), pa.int32()),
        "file_path": pa.array(
            [f"{folders[d]}/{n:05d}.parquet" for d, n in zip(day, k, strict=True)]
        ),
        "file_format": pa.array(["parquet"] * count),
        "record_count": filled(100_000),
        "file_size_in_bytes": filled(128 << 20),
        "partition.1000": pa.array(day, pa.int32()),
    }
    for field_id in (1, 2, 3):
        columns |= {f"value_count.{field_id}": filled(100_000), f"null_count.{field_id}": filled(0)}
        columns[f"column_size.{field_id}"] = filled(40 << 20)
    columns["lower.1"] = pa.array(day * DAY_US, pa.int64())
    columns["upper.1"] = pa.array(day * DAY_US + DAY_US - 1, pa.int64())
    columns["lower.2"] = pa.array(k * per_file, pa.int64())
    columns["upper.2"] = pa.array(
        np.where(k == shape.files_per_day - 1, USERS, (k + 1) * per_file) - 1, pa.int64()
    )
    return Entries(pa.table(columns), spec)


def build(shape: Shape, storage: CountingStorage) -> Lakehouse:
    """Write the table: manifests with their columnar twins, a manifest list, one commit."""
    catalog = FilesystemCatalog(
        "memory://bench/warehouse", storage_factory=lambda _location, _properties: storage
    )
    lake = Lakehouse(catalog)
    table = lake.create_table(str(TABLE), SCHEMA, partition_by=["day(event_ts)"])
    workspace = SnapshotProducer(storage, Environment.system(), ())
    snapshot_id = 8124
    cuts = np.linspace(0, shape.files, shape.manifests + 1).astype(int)
    manifests = []
    for start, stop in itertools.pairwise(cuts):
        part = entries(shape, table.location, int(start), int(stop), table.spec())
        storage.add_keys(part.table["file_path"].to_pylist())
        manifests.append(
            workspace.manifest_writer.write(
                part, table.metadata, content=CONTENT_DATA_MANIFEST, snapshot_id=snapshot_id
            )
        )
    catalog.commit(
        TABLE, table.version, (), publish(workspace, table.metadata, manifests, snapshot_id)
    )
    return lake


def publish(
    workspace: SnapshotProducer, metadata: TableMetadata, manifests: list[Any], snapshot_id: int
) -> list[Any]:
    """Write the manifest list; the changes that make it the current snapshot."""
    data, _ = write_manifest_list(
        manifests,
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=1,
        format_version=2,
        first_row_id=None,
    )
    location = f"{metadata.location}/metadata/snap-{snapshot_id}.avro"
    workspace.files.write(location, data)
    workspace.files.flush()
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=1,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=location,
        summary={"operation": "append"},
        schema_id=metadata.current_schema_id,
    )
    return [AddSnapshot(snapshot), SetSnapshotRef("main", snapshot_id, "branch")]


def hive(storage: CountingStorage, location: str, days: Iterable[int] | None) -> dict[str, Any]:
    """List as a Hive-style planner does: all folders, or those that a metastore names."""
    storage.forget()
    if days is None:
        folders = storage.list_folders(f"{location}/data")
    else:
        folders = [f"event_ts_day={dt.date(1970, 1, 1) + dt.timedelta(day)}" for day in days]
    files = sum(1 for folder in folders for _ in storage.list(f"{location}/data/{folder}"))
    return measured(storage, files)


def ours(
    storage: CountingStorage,
    lake: Lakehouse,
    where: str,
    *,
    twins: bool,
    location: str | None = None,
) -> dict[str, Any]:
    """From the table's name to its files, with nothing cached.

    `known` is the metadata file when another catalog holds the pointer.
    """
    storage.forget()
    start = time.perf_counter()
    metadata = (
        lake.load_table(str(TABLE)).metadata
        if location is None
        else parse(storage.read(location), location)
    )
    plan = plan_scan(
        ScanRequest(metadata=metadata, where=where, use_columnar=twins), storage, cache=None
    )
    files = len(plan.files)
    spent = time.perf_counter() - start
    computing = {
        "manifests_read": plan.report.data_manifests.read,
        "seconds_of_computing": round(spent, 3),
    }
    return measured(storage, files) | computing


def measured(storage: CountingStorage, files: int) -> dict[str, Any]:
    requests = list(storage.requests)
    return {
        "requests": storage.counts(),
        "requests_total": len(requests),
        "bytes_read": sum(request.size for request in requests if request.verb == "GET"),
        "files_planned": files,
        "derived_seconds": round(derived_seconds(requests), 3),
    }


def derived_seconds(requests: Iterable[Request], *, parallel: int = PARALLEL) -> float:
    """Wall-clock that a log stands for.

    Requests of a chain follow each other; chains run side by side, after what is in none.
    """
    first, chains = 0.0, defaultdict[str, float](float)
    for request in requests:
        chain = chain_of(request)
        if chain is None:
            first += SECONDS[request.verb]
        else:
            chains[chain] += SECONDS[request.verb]
    workers = [0.0] * parallel
    for spent in sorted(chains.values(), reverse=True):
        heapq.heapreplace(workers, workers[0] + spent)
    return first + max(workers)


def chain_of(request: Request) -> str | None:
    """The partition or manifest of a request; None for requests that precede all of them."""
    folder, _, name = request.location.rpartition("/")
    if request.verb == "LIST":
        return None if name == "data" else request.location
    if folder.endswith("/metadata") and "-m" in name and not name.startswith("snap-"):
        return name.partition(".")[0]
    return None


def run(scale: float) -> dict[str, Any]:
    shape, storage = Shape.scaled(scale), CountingStorage()
    start = time.perf_counter()
    lake = build(shape, storage)
    built = time.perf_counter() - start
    table = lake.load_table(str(TABLE))
    location, pointer = table.location, table.metadata_location
    where = f"{WHERE} and user_id = 42"
    contenders: Mapping[str, dict[str, Any]] = {
        "hive, no filter on the partition column": hive(storage, location, None),
        "hive, the metastore names the week": hive(storage, location, WEEK),
        "filesystem catalog, columnar twins": ours(storage, lake, where, twins=True),
        "filesystem catalog, Avro manifests": ours(storage, lake, where, twins=False),
        "SQL catalog, columnar twins": ours(storage, lake, where, twins=True, location=pointer),
        "SQL catalog, Avro manifests": ours(storage, lake, where, twins=False, location=pointer),
        "SQL catalog, Avro, user_id of no use": ours(
            storage, lake, WHERE, twins=False, location=pointer
        ),
    }
    worst = contenders["hive, no filter on the partition column"]
    for contender in contenders.values():
        contender["hive_requests_to_it"] = round(
            worst["requests_total"] / contender["requests_total"], 1
        )
        contender["hive_seconds_to_it"] = round(
            worst["derived_seconds"] / contender["derived_seconds"], 1
        )
    return {
        "benchmark": "plan_cost",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "versions": {name: version(name) for name in ("pyarrow", "numpy")},
        "table": {
            "scale": scale,
            "days": shape.days,
            "files": shape.files,
            "manifests": shape.manifests,
        },
        "built_seconds": round(built, 1),
        "where": where,
        "derived_from": {"seconds_a_request": SECONDS, "parallel": PARALLEL},
        "contenders": contenders,
    }


def show(result: dict[str, Any]) -> None:
    table = result["table"]
    print(
        f"{table['files']:,} files in {table['days']} partitions, {table['manifests']} manifests; "
        f"{result['where']}"
    )
    print(f"{'':42} {'requests':>9} {'files':>8} {'derived s':>10}  by verb")
    for name, contender in result["contenders"].items():
        verbs = ", ".join(f"{verb} {count:,}" for verb, count in contender["requests"].items())
        print(
            f"  {name:40} {contender['requests_total']:9,} {contender['files_planned']:8,} "
            f"{contender['derived_seconds']:10.2f}  {verbs}"
        )
    print(
        "requests are counted by the storage; seconds are derived from them: 30 ms a LIST, 60 ms "
        "a GET or HEAD, 64 at a time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="part of the 1,400 files of each day"
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "plan_cost.json"
    )
    arguments = parser.parse_args()
    result = run(arguments.scale)
    show(result)
    if arguments.scale == 1.0:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
