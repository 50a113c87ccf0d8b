"""Plans Netflix's Atlas query beside pyiceberg: `python benchmarks/plan_atlas.py [--scale 0.01]`.

The table is metadata only and written by pyiceberg (see atlas.py). Each contender plans in a fresh
process, with cold caches of its own: opening the table metadata and listing the planned files
counts, importing does not. The best of `--repeat` runs is kept.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pyiceberg.table import StaticTable  # noqa: E402

from benchmarks.atlas import FULL_FILES_PER_PARTITION, build, metric  # noqa: E402
from lakehouse.expressions.sql.sql_grammar import parsed  # noqa: E402
from lakehouse.lake import load_catalog  # noqa: E402
from lakehouse.maintenance.manifest_rewrite import execute_columnar, plan_columnar  # noqa: E402
from lakehouse.scan.planner import ScanRequest, plan_scan  # noqa: E402
from lakehouse.spec.manifests.columnar_manifest import COLUMNAR_SUFFIX  # noqa: E402
from lakehouse.spec.metadata.metadata_json import parse  # noqa: E402
from lakehouse.storage.storage_by_scheme import storage_for  # noqa: E402

TARGETS = {"with twins": 150.0, "without twins": 12.0}
RSS_MIB_MAX = 400
MONTH_SECONDS_MAX = 2.0


def queries(files_per_partition: int) -> dict[str, str]:
    """The talk's query, six days and one metric name, and the whole month by the name alone."""
    name = f"name = '{metric((files_per_partition // 2 + 0.5) / files_per_partition)}'"
    return {
        "six days, one name": (
            f"ts >= '2018-02-11T00:00:00+00:00' and ts < '2018-02-17T00:00:00+00:00' and {name}"
        ),
        "whole month, one name": name,
    }


def plan_ours(location: str, where: str, *, twins: bool) -> tuple[list[str], dict[str, Any]]:
    storage = storage_for(location)
    metadata = parse(storage.read(location), location)
    plan = plan_scan(
        ScanRequest(metadata=metadata, where=where, use_columnar=twins), storage, cache=None
    )
    return [file.file_path for file in plan.files], plan.report.to_dict()


def plan_pyiceberg(location: str, where: str) -> tuple[list[str], dict[str, Any]]:
    return [
        task.file.file_path
        for task in StaticTable.from_metadata(location).scan(row_filter=where).plan_files()
    ], {}


def child(contender: str, location: str, where: str) -> None:
    """Plan once and print what was measured."""
    parsed("loaded = 1")  # sqlglot is imported by the first filter, and importing does not count
    start, cpu = time.perf_counter(), time.process_time()
    if contender == "pyiceberg":
        paths, report = plan_pyiceberg(location, where)
    else:
        paths, report = plan_ours(location, where, twins=contender == "with twins")
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    digest = hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()
    measured = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "files": len(paths),
        "digest": digest,
        "rss_mib": peak_mib(),
    }
    print(json.dumps({**measured, "report": report}))


def peak_mib() -> float:
    """Peak resident memory of this process; `ru_maxrss` would include its parent's at the fork."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(contender: str, location: str, where: str, repeat: int) -> dict[str, Any]:
    runs = []
    for _ in range(repeat):
        command = [sys.executable, __file__, "--child", contender, location, where]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        runs.append(json.loads(done.stdout))
    best = min(runs, key=lambda run: run["seconds"])
    return {
        **best,
        "rss_mib": max(run["rss_mib"] for run in runs),
        "all_seconds": [round(run["seconds"], 4) for run in runs],
    }


def make_twins(location: str) -> tuple[str, float]:
    """Give every manifest its twin in one commit: (metadata of the new version, seconds)."""
    folder = Path(location).parent
    for made in itertools.chain(folder.glob(f"*{COLUMNAR_SUFFIX}"), folder.glob("*-t*.avro")):
        made.unlink()
    database = folder / "twins.db"
    database.unlink(missing_ok=True)
    lake = load_catalog(f"sqlite:///{database}", warehouse=str(folder.parent.parent))
    lake.create_namespace("bench")
    table = lake.register_table("bench.atlas", location)
    start = time.perf_counter()
    execute_columnar(table.catalog, plan_columnar(table.catalog, table.identifier))
    return table.refresh().metadata_location, time.perf_counter() - start


def run(folder: Path, scale: float, repeat: int) -> dict[str, Any]:
    files_per_partition = max(round(FULL_FILES_PER_PARTITION * scale), 8)
    atlas = build(folder, files_per_partition)
    location, twin_seconds = make_twins(atlas.metadata_location)
    result: dict[str, Any] = {
        "benchmark": "plan_atlas",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "versions": {
            name: version(name) for name in ("pyiceberg", "pyarrow", "datafusion", "numpy")
        },
        "table": {"files": atlas.files, "manifests": atlas.manifests, "scale": scale},
        "twins_built_seconds": round(twin_seconds, 2),
        "twins_built_entries_per_second": round(atlas.files / twin_seconds),
        "queries": {},
    }
    for title, where in queries(files_per_partition).items():
        result["queries"][title] = compare(location, where, repeat, peer=title.startswith("six"))
    return result


def compare(location: str, where: str, repeat: int, *, peer: bool) -> dict[str, Any]:
    """All contenders on one query; pyiceberg only where its patience allows."""
    measured = {
        name: measure(name, location, where, repeat) for name in ("with twins", "without twins")
    }
    if peer:
        measured["pyiceberg"] = measure("pyiceberg", location, where, 1)
        for name in ("with twins", "without twins"):
            measured[name]["times_faster_than_pyiceberg"] = round(
                measured["pyiceberg"]["seconds"] / measured[name]["seconds"], 1
            )
    assert len({times["digest"] for times in measured.values()}) == 1, (
        "the contenders planned different files"
    )
    return {"where": where, **measured}


def show(result: dict[str, Any]) -> None:
    table = result["table"]
    print(
        f"Atlas: {table['files']:,} files in {table['manifests']} manifests; twins built in "
        f"{result['twins_built_seconds']} s"
    )
    for title, query in result["queries"].items():
        print(f"\n{title}: {query['with twins']['files']} files planned")
        for name in ("with twins", "without twins", "pyiceberg"):
            if name in query:
                times = query[name]
                ratio = times.get("times_faster_than_pyiceberg")
                against = (
                    "" if ratio is None else f"  {ratio:7.1f} x faster (target {TARGETS[name]:.0f})"
                )
                print(
                    f"  {name:14} {times['seconds']:8.3f} s {times['cpu_seconds']:8.3f} s cpu "
                    f"{times['rss_mib']:6.0f} MiB{against}"
                )
    print(
        f"\ntargets: at most {RSS_MIB_MAX} MiB, whole month with twins under {MONTH_SECONDS_MAX} s"
    )


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="part of the 1,004 files of each partition"
    )
    parser.add_argument("--repeat", type=int, default=3)
    default = ROOT / ".lakehouse" / "benchmarks"
    parser.add_argument(
        "--folder", type=Path, default=default, help="where the table is kept between runs"
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "plan_atlas.json"
    )
    arguments = parser.parse_args()
    result = run(arguments.folder, arguments.scale, arguments.repeat)
    show(result)
    if arguments.scale == 1.0:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
