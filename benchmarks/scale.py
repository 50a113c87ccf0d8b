"""What tables cost by their size and number: `python -m benchmarks.scale`.

The Atlas table of `plan_atlas` as it grows by time: 96,384 files a day, 8,032 a manifest, metadata
only, written by this library. What two sizes cost gives constants: a start, and a rate by the
manifest. What they say of the largest size stands beside what is measured there. The plan is of six
days and one name, the same files at every size, in a process of its own with cold caches, the best
of `--repeat`. Requests are those that an object store would serve. Then a catalog of ten thousand
tables is listed, opened and looked at.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.fs as pafs  # noqa: E402

from benchmarks.atlas import FULL_FILES_PER_PARTITION, SCHEMA, _manifest, metric  # noqa: E402
from benchmarks.plan_atlas import measure  # noqa: E402
from benchmarks.plan_cost import publish  # noqa: E402
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog  # noqa: E402
from lakehouse.environment import Environment  # noqa: E402
from lakehouse.lake import Lakehouse, load_catalog  # noqa: E402
from lakehouse.manifests.manifest_reader import decode_avro  # noqa: E402
from lakehouse.scan.planner import ScanRequest, plan_scan  # noqa: E402
from lakehouse.spec.manifests.columnar_manifest import COLUMNAR_SUFFIX  # noqa: E402
from lakehouse.spec.manifests.manifest_entries import Entries  # noqa: E402
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST  # noqa: E402
from lakehouse.spec.metadata.metadata_json import parse  # noqa: E402
from lakehouse.spec.metadata.table_metadata import TableMetadata  # noqa: E402
from lakehouse.spec.schema.iceberg_types import field_types  # noqa: E402
from lakehouse.storage.arrow_filesystem import StorageHandler  # noqa: E402
from lakehouse.storage.storage_by_scheme import storage_for  # noqa: E402
from lakehouse.transaction.snapshot_producer import SnapshotProducer  # noqa: E402

HOURS_PER_MANIFEST = 2
HOUR_US = 3_600_000_000
TABLE = "bench.atlas"
SNAPSHOT_ID = 8124
PARTITIONS = ("hour(ts)", "bucket(4, name)")
WHERE = "ts >= '2018-02-09T00:00:00+00:00' and ts < '2018-02-15T00:00:00+00:00' and name = '{name}'"
VERBS = {"read": "GET", "read_range": "GET", "exists": "HEAD", "size": "HEAD", "list": "LIST"}
VERBS |= {"list_folders": "LIST", "write": "PUT", "create": "PUT", "open_output": "PUT"}


@dataclass
class Counting:
    """A storage that counts what an object store would serve.

    Attributes:
        inner: does the work.
        requests: by verb.
        read_bytes: returned by GET.
        written: bytes by location.
    """

    inner: Any
    requests: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    written: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in VERBS:
            return method

        def counted(*arguments: Any, **options: Any) -> Any:
            self.requests[VERBS[name]] += 1
            answer = method(*arguments, **options)
            if VERBS[name] == "GET":
                self.read_bytes += len(answer)
            elif name in ("write", "create"):
                self.written[arguments[0]] = len(arguments[1])
            return answer

        return counted

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        """One that reads through this storage."""
        return pafs.PyFileSystem(StorageHandler(self)), location

    def write_new(self, files: Mapping[str, bytes]) -> None:
        """Write new files."""
        self.requests["PUT"] += len(files)
        self.written |= {location: len(data) for location, data in files.items()}
        self.inner.write_new(files)


@cache
def template(folder: str, location: str) -> Entries:
    """The entries of a manifest, as table `folder` has them."""
    spec = load_catalog(folder).load_table(TABLE).spec()
    return decode_avro(
        [(location, storage_for(location).read(location))], spec, field_types(SCHEMA)
    ).entries


def shifted(entries: Entries, hour: int) -> Entries:
    """The same files `hour` hours later, as a commit hands them over."""
    table, nothing = entries.table, pa.nulls(len(entries), pa.int64())
    paths = table["file_path"]
    for number in range(HOURS_PER_MANIFEST):
        later = f"ts_hour={hour + number}/"
        paths = pc.replace_substring(paths, f"ts_hour={number}/", later)
    changed = {"file_path": paths, "partition.1000": pc.add(table["partition.1000"], hour)}
    changed["partition.1000"] = changed["partition.1000"].cast(pa.int32())
    for bound in ("lower.1", "upper.1"):
        changed[bound] = pc.add(table[bound], hour * HOUR_US)
    for inherited in ("snapshot_id", "sequence_number", "file_sequence_number"):
        changed[inherited] = nothing
    for name, column in changed.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return Entries(table, entries.spec)


def written(job: tuple[str, str, str, Sequence[int]]) -> list[Any]:
    """Write the manifests that begin at these hours, with twins."""
    folder, location, first, hours = job
    entries, storage = template(folder, first), storage_for(location)
    metadata = parse(storage.read(location), location)
    workspace = SnapshotProducer(storage, Environment.system(), ())
    made = []
    for hour in hours:
        made.append(
            workspace.manifest_writer.write(
                shifted(entries, hour),
                metadata,
                content=CONTENT_DATA_MANIFEST,
                snapshot_id=SNAPSHOT_ID,
            )
        )
        workspace.files.flush()
    return made


def build(folder: Path, days: int, files_per_partition: int) -> float:
    """Write the table of so many days below the folder; seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    lake = load_catalog(str(folder))
    lake.create_namespace("bench")
    # manifests stay as they are: each size has the same kind
    properties = {"commit.manifest-merge.enabled": "false"}
    table = lake.create_table(TABLE, SCHEMA, partition_by=PARTITIONS, properties=properties)
    begin = time.perf_counter()
    hours = list(range(0, days * 24, HOURS_PER_MANIFEST))
    first = _manifest((str(folder), 0, HOURS_PER_MANIFEST, files_per_partition)).manifest_path
    jobs = [
        (str(folder), table.metadata_location, first, hours[at : at + 12])
        for at in range(0, len(hours), 12)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        manifests = [manifest for part in pool.map(written, jobs) for manifest in part]
    workspace = SnapshotProducer(table.storage, Environment.system(), ())
    updates = publish(workspace, table.metadata, manifests, SNAPSHOT_ID)
    lake.catalog.commit(table.identifier, table.version, (), updates)
    return time.perf_counter() - begin


def point(folder: Path, days: int, files_per_partition: int, repeat: int) -> dict[str, float]:
    """What one size costs."""
    seconds = build(folder, days, files_per_partition)
    table = load_catalog(str(folder)).load_table(TABLE)
    name = metric((files_per_partition // 2 + 0.5) / files_per_partition)
    where = WHERE.format(name=name)
    best = measure("with twins", table.metadata_location, where, repeat)
    planned = plan_requests(table.metadata, table.storage, where)
    on_disk = sizes(Path(table.location.removeprefix("file://")) / "metadata")
    files = days * 24 * 4 * files_per_partition
    return {
        "days": days,
        "files": files,
        "manifests": days * 24 // HOURS_PER_MANIFEST,
        "build_files_per_second": round(files / seconds),
        "manifest_bytes": on_disk["manifests"],
        "twin_bytes": on_disk["twins"],
        "list_bytes": on_disk["list"],
        "planned_files": best["files"],
        "plan_seconds": round(best["seconds"], 4),
        "plan_cpu_seconds": round(best["cpu_seconds"], 4),
        "plan_memory_mib": round(best["rss_mib"], 1),
        **planned,
        **append(folder),
    }


def sizes(metadata: Path) -> dict[str, int]:
    """Bytes of a table's metadata folder by kind."""
    bytes_by_kind: Counter[str] = Counter()
    for file in os.scandir(metadata):
        kind = "twins" if file.name.endswith(COLUMNAR_SUFFIX) else "manifests"
        kind = "list" if file.name.startswith("snap-") else kind
        kind = "metadata" if ".metadata.json" in file.name else kind
        bytes_by_kind[kind] += file.stat().st_size
    return dict(bytes_by_kind)


def plan_requests(metadata: TableMetadata, storage: Any, where: str) -> dict[str, float]:
    """Requests of the plan, and the bytes that they return."""
    counting = Counting(storage)
    request = ScanRequest(metadata=metadata, where=where)
    assert plan_scan(request, counting, cache=None).files
    return {"plan_requests": counting.requests["GET"], "plan_bytes": counting.read_bytes}


def append(folder: Path) -> dict[str, float]:
    """One row more: what the commit of its file writes and asks for."""
    counting = Counting(storage_for(str(folder)))
    lake = Lakehouse(FilesystemCatalog(str(folder), storage_factory=lambda _where, _: counting))
    table = lake.load_table(TABLE)
    row: dict[str, Any] = {field.name: None for field in SCHEMA.fields}
    row |= {"ts": dt.datetime(2018, 2, 9, tzinfo=dt.UTC), "name": metric(0.5)}
    data = pa.Table.from_pylist([row], table.schema().as_arrow())
    table.append(data)  # the first commit caches what later ones need
    counting.requests.clear()
    counting.written.clear()
    begin = time.perf_counter()
    table.append(data)
    seconds = time.perf_counter() - begin
    kinds = Counter[str]()
    for location, size in counting.written.items():
        kinds["data" if "/data/" in location else "metadata"] += size
    return {
        "append_seconds": round(seconds, 4),
        "append_requests": counting.requests.total(),
        "append_metadata_bytes": kinds["metadata"],
    }


def many_tables(folder: Path, count: int) -> dict[str, float]:
    """What a SQL catalog of so many tables costs: seconds for all of them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    uri, warehouse = f"sqlite:///{folder}/catalog.db", str(folder / "warehouse")
    lake = load_catalog(uri, warehouse=warehouse)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    begin = time.perf_counter()
    for number in range(count):
        if number % 1_000 == 0:
            lake.create_namespace(f"n{number // 1_000}")
        lake.create_table(f"n{number // 1_000}.t{number}", schema, partition_by=["day(at)"])
    created = time.perf_counter() - begin
    lake = load_catalog(uri, warehouse=warehouse)
    begin = time.perf_counter()
    names = list(lake.list_tables())
    listed = time.perf_counter() - begin
    begin = time.perf_counter()
    tables = [lake.load_table(name) for name in names]
    loaded = time.perf_counter() - begin
    begin = time.perf_counter()
    for table in tables:
        table.refresh()
    refreshed = time.perf_counter() - begin
    seconds_by_step = {"create": created, "list": listed, "load": loaded, "refresh": refreshed}
    shutil.rmtree(folder)
    return {
        "tables": len(names),
        **{name: round(seconds, 3) for name, seconds in seconds_by_step.items()},
    }


MODELLED: tuple[str, ...] = (
    "manifest_bytes",
    "twin_bytes",
    "list_bytes",
    "plan_requests",
    "plan_bytes",
    "append_requests",
    "append_metadata_bytes",
)
# they differ less by the size than from run to run: no rate could be told
SEEN: tuple[str, ...] = ("plan_seconds", "plan_cpu_seconds", "plan_memory_mib", "append_seconds")


def modelled(points: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """By cost: the start and the rate by the manifest, from two sizes; prediction and truth."""
    small, medium, large = points
    models = {}
    for name in MODELLED:
        rate = (medium[name] - small[name]) / (medium["manifests"] - small["manifests"])
        start = small[name] - rate * small["manifests"]
        predicted = start + rate * large["manifests"]
        models[name] = {
            "start": round(start, 4),
            "by_manifest": round(rate, 6),
            "predicted": round(predicted, 4),
            "measured": large[name],
            "measured_to_predicted": round(large[name] / predicted, 3),
        }
    return models


def run(folder: Path, days: Iterable[int], files: int, tables: int, repeat: int) -> dict[str, Any]:
    points = []
    for number in sorted(days):
        points.append(point(folder / f"scale-{number}", number, files, repeat))
        shutil.rmtree(folder / f"scale-{number}")
        print(f"{points[-1]['files']:,} files are measured", flush=True)
    return {
        "benchmark": "scale",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
        "versions": {name: version(name) for name in ("pyarrow", "numpy")},
        "load": round(os.getloadavg()[0], 2),
        "points": points,
        "model": modelled(points),
        "plan_seconds_to_medium": round(points[2]["plan_seconds"] / points[1]["plan_seconds"], 2),
        "many_tables": many_tables(folder / "scale-tables", tables),
    }


def show(result: dict[str, Any]) -> None:
    small, medium, large = result["points"]
    sizes_text = " and ".join(f"{size['files']:,}" for size in (small, medium))
    print(f"constants from {sizes_text} files; predicted and measured: {large['files']:,} files")
    print(f"{'':24}{'start':>16}{'by manifest':>16}{'predicted':>18}{'measured':>18}{'':>8}")
    for name, model in result["model"].items():
        print(
            f"{name:24}{model['start']:16,.4g}{model['by_manifest']:16,.4g}"
            f"{model['predicted']:18,.4g}{model['measured']:18,.4g}{model['measured_to_predicted']:8.2f}"
        )
    for name in SEEN:
        print(f"{name:24}{', '.join(str(point[name]) for point in result['points'])} by size")
    times = result["plan_seconds_to_medium"]
    print(f"the plan takes {times} x the time of {medium['files']:,} files")
    tables = dict(result["many_tables"])
    print(
        f"{tables.pop('tables'):,} tables: {', '.join(f'{k} {v:.2f} s' for k, v in tables.items())}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", default="7,28,280", help="three sizes, 96,384 files a day")
    parser.add_argument("--files-per-partition", type=int, default=FULL_FILES_PER_PARTITION)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=ROOT / ".lakehouse" / "benchmarks")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "scale.json"
    )
    arguments = parser.parse_args()
    days = [int(count) for count in arguments.days.split(",")]
    result = run(
        arguments.folder,
        days,
        arguments.files_per_partition,
        arguments.tables,
        arguments.repeat,
    )
    show(result)
    if arguments.files_per_partition == FULL_FILES_PER_PARTITION:
        arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
