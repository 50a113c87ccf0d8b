"""Opening a table with a long history beside pyiceberg, in one run.

Ours decodes a snapshot when it is needed.

`python benchmarks/open_table.py [--snapshots 600,10000,50000] [--repeat 7]`. From the bytes of a
metadata file to the current snapshot and its manifest list; the median of the repeats.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402
from pyiceberg.table.metadata import TableMetadataUtil  # noqa: E402

import lakehouse as lh  # noqa: E402
from lakehouse.spec.metadata.metadata_json import parse, serialize  # noqa: E402


def document(snapshots: int) -> bytes:
    """Metadata of a table after so many appends, each with the summary that a commit writes."""
    table = lh.load_catalog(f"memory://open-{snapshots}/warehouse").create_table(
        "raw.t", pa.schema([("id", pa.int64())])
    )
    base = json.loads(serialize(table.metadata))
    now = base["last-updated-ms"]
    summary = {
        "operation": "append",
        "added-data-files": "1",
        "added-records": "1000",
        "added-files-size": "52431",
    }
    summary |= {
        "total-data-files": "1",
        "total-records": "1000",
        "total-files-size": "52431",
        "changed-partition-count": "1",
    }
    made = [
        {
            "snapshot-id": 10**18 + number,
            **({"parent-snapshot-id": 10**18 + number - 1} if number else {}),
            "sequence-number": number + 1,
            "timestamp-ms": now + number,
            "manifest-list": (
                "memory://open/warehouse/raw/t/metadata/"
                f"snap-{10**18 + number}-1-5a0c4c7e-7d0a-4a53-9f0e.avro"
            ),
            "summary": summary,
            "schema-id": 0,
        }
        for number in range(snapshots)
    ]
    last = made[-1]["snapshot-id"]
    base |= {
        "snapshots": made,
        "current-snapshot-id": last,
        "last-sequence-number": snapshots,
        "last-updated-ms": now + snapshots,
    }
    base["refs"] = {"main": {"snapshot-id": last, "type": "branch"}}
    base["snapshot-log"] = [
        {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": snapshot["timestamp-ms"]}
        for snapshot in made
    ]
    return json.dumps(base, separators=(",", ":")).encode()


def median_ms(work: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(times), 3)


def run(counts: list[int], repeat: int) -> dict[str, Any]:
    rows = []
    for count in counts:
        data = document(count)
        text = data.decode()
        ours = parse(data, "m").current_snapshot()
        theirs = TableMetadataUtil.parse_raw(text).current_snapshot()
        assert ours is not None
        assert theirs is not None
        assert ours.manifest_list == theirs.manifest_list
        row: dict[str, Any] = {"snapshots": count, "bytes": len(data)}
        # Called at once.
        row["ours_ms"] = median_ms(
            lambda: parse(data, "m").current_snapshot(),  # noqa: B023
            repeat,
        )
        row["pyiceberg_ms"] = median_ms(
            lambda: TableMetadataUtil.parse_raw(text).current_snapshot(),  # noqa: B023 - at once
            min(repeat, 3),
        )
        row["times_faster_than_pyiceberg"] = round(row["pyiceberg_ms"] / row["ours_ms"], 1)
        rows.append(row)
    return {
        "benchmark": "open_table",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "versions": {name: version(name) for name in ("pyiceberg", "orjson")},
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", default="600,10000,50000")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "open_table.json"
    )
    arguments = parser.parse_args()
    result = run([int(count) for count in arguments.snapshots.split(",")], arguments.repeat)
    for row in result["rows"]:
        faster = f"{row['times_faster_than_pyiceberg']} x faster"
        print(
            f"{row['snapshots']:>6} snapshots: {row['ours_ms']} ms, pyiceberg "
            f"{row['pyiceberg_ms']} ms, ours is {faster}"
        )
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
