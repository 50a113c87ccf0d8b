"""Commits per second beside pyiceberg: one writer, one data file an append, SQLite, our fsync on.

python -m benchmarks.commit [--snapshots 10,600,5000] [--alone 10000] [--commits 30]. A table with N
snapshots is made by writing its metadata file at once, so that both sides begin with the same
table; then each side appends the same file again and again. `--alone`: without pyiceberg, which
needs ten seconds a commit there. Beside each row stands what the bytes of the metadata file alone
cost (write them and sync them): what is left of a commit must not grow.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import tempfile
import time
import uuid
from dataclasses import replace
from importlib.metadata import version as version_of
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.catalog import open_catalog
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import new_table_metadata
from lakehouse.spec.metadata.table_updates import AddSnapshot, SetSnapshotRef
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.storage import LocalStorage
from lakehouse.storage.location import local_path
from lakehouse.transaction import Transaction

RESULTS = Path(__file__).parent / "results" / "commit.json"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
TABLE = Identifier.parse("bench.events")
START_MS = 1_767_225_600_000


def prepare(folder: Path, snapshots: int) -> str:
    """A catalog whose table has `snapshots` snapshots of one data file; returns its URL."""
    uri = f"sqlite:///{folder}/catalog.db"
    catalog = open_catalog(uri, warehouse=str(folder / "warehouse"))
    catalog.create_namespace(TABLE.namespace)
    location = catalog.default_location(TABLE)
    unique = str(uuid.uuid4())
    metadata = new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, {}, 2, unique, START_MS
    )
    catalog.create(TABLE, metadata)
    first = Transaction(catalog, TABLE).append([write_data(location, 0)]).commit()
    head = first.snapshot
    assert head is not None
    metadata = first.version.metadata
    for number in range(1, snapshots):
        head = replace(
            head,
            snapshot_id=10_000_000 + number,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=head.sequence_number + 1,
            timestamp_ms=metadata.last_updated_ms + 1000,
        )
        metadata = apply_updates(metadata, _added(head), now_ms=head.timestamp_ms)
    grown = f"{location}/metadata/grown.metadata.json"
    Path(local_path(grown)).write_bytes(serialize(metadata))
    catalog.drop(TABLE)
    catalog.register(TABLE, grown)
    return uri


def _added(head: Snapshot) -> tuple[AddSnapshot, SetSnapshotRef]:
    return AddSnapshot(head), SetSnapshotRef("main", head.snapshot_id)


def write_data(location: str, number: int) -> DataFile:
    path = Path(local_path(f"{location}/data/{number}-{uuid.uuid4()}.parquet"))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)
    return DataFile(file_path=str(path), record_count=1, file_size_in_bytes=path.stat().st_size)


def ours(folder: Path, uri: str, commits: int) -> list[float]:
    catalog = open_catalog(uri, warehouse=str(folder / "warehouse"))
    version = catalog.load(TABLE)
    location = version.metadata.location
    files = [write_data(location, number) for number in range(commits)]
    seconds = []
    for file in files:
        started = time.perf_counter()
        version = Transaction(catalog, TABLE, decided_on=version).append([file]).commit().version
        seconds.append(time.perf_counter() - started)
    return seconds


def theirs(folder: Path, uri: str, commits: int) -> list[float]:
    catalog = PyIcebergSqlCatalog("lakehouse", uri=uri, warehouse=str(folder / "warehouse"))
    table = catalog.load_table(("bench", "events"))
    data = Path(local_path(table.location())) / "data"
    data.mkdir(parents=True, exist_ok=True)
    paths = [data / f"py-{number}.parquet" for number in range(commits)]
    rows = table.schema().as_arrow()
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}).cast(rows), path)
    seconds = []
    for path in paths:
        started = time.perf_counter()
        table.add_files([str(path)], check_duplicate_files=False)
        seconds.append(time.perf_counter() - started)
    catalog.engine.dispose()
    return seconds


def metadata_bytes(folder: Path) -> int:
    """Size of the newest metadata file."""
    return (
        max(folder.rglob("*.metadata.json"), key=lambda path: path.stat().st_mtime).stat().st_size
    )


def cost_of_bytes(folder: Path) -> float:
    """Median seconds to write the newest metadata file again and sync it: what its bytes cost."""
    newest = max(folder.rglob("*.metadata.json"), key=lambda path: path.stat().st_mtime)
    storage = LocalStorage()
    metadata = parse(newest.read_bytes(), str(newest))
    seconds = []
    for number in range(15):
        started = time.perf_counter()
        data = serialize(metadata)
        storage.write_new({f"{folder}/bytes-{number}": data})
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit")
    parser.add_argument("--snapshots", default="10,600,5000")
    parser.add_argument("--alone", default="10000")
    parser.add_argument("--commits", type=int, default=30)
    options = parser.parse_args()
    rows = []
    alone = [int(number) for number in options.alone.split(",") if number]
    for snapshots in [*map(int, options.snapshots.split(",")), *alone]:
        row: dict[str, float] = {"snapshots": snapshots}
        for name, work in (("lakehouse", ours), ("pyiceberg", theirs))[
            : 1 if snapshots in alone else 2
        ]:
            folder = Path(tempfile.mkdtemp(prefix="commit-", dir=Path.cwd()))
            try:
                uri = prepare(folder, snapshots)
                count = (
                    options.commits
                    if name == "lakehouse" or snapshots < 2000
                    else max(5, options.commits // 4)
                )
                seconds = work(folder, uri, count)
                row[f"{name}_commits_per_s"] = round(1 / statistics.median(seconds), 1)
                row[f"{name}_ms_median"] = round(statistics.median(seconds) * 1000, 1)
                row[f"{name}_metadata_bytes"] = metadata_bytes(folder)
                if name == "lakehouse":
                    row["bytes_alone_ms"] = round(cost_of_bytes(folder) * 1000, 1)
                    row["rest_ms"] = round(row["lakehouse_ms_median"] - row["bytes_alone_ms"], 1)
            finally:
                shutil.rmtree(folder)
        if "pyiceberg_commits_per_s" in row:
            row["ratio"] = round(row["lakehouse_commits_per_s"] / row["pyiceberg_commits_per_s"], 1)
        rows.append(row)
        print(json.dumps(row))
    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "what": (
            "median time of one append of one data file, SQLite catalog, local disk, fsync on "
            "(ours)"
        ),
        "versions": {name: version_of(name) for name in ("pyiceberg", "pyarrow", "sqlalchemy")}
        | {"python": platform.python_version()},
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
