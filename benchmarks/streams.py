"""A stream of many small batches into a table, beside Spark's Parquet sink on the same files.

    python -m benchmarks.streams [--batches 500] [--rows 1000]

Each landing file is a batch. What counts is the files that are left, their bytes, and how long a
batch takes; ours also with small files left as they are. Results go to
benchmarks/results/streams.json, with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import lakehouse as lh
from lakehouse.spark import build_session

RESULTS = Path(__file__).parent / "results" / "streams.json"
COLUMNS = "id long, at timestamp, amount double"


def landed(folder: Path, batches: int, rows: int) -> None:
    """One file a batch."""
    folder.mkdir()
    for batch in range(batches):
        lines = (
            json.dumps({"id": one, "at": "2026-01-01T00:00:00Z", "amount": one / 7})
            for one in range(batch * rows, (batch + 1) * rows)
        )
        (folder / f"{batch:05}.json").write_text("\n".join(lines))


def streamed(writer: Any, table: str | None) -> list[int]:
    """Run a stream to its end; milliseconds of each batch."""
    query = writer.toTable(table) if table else writer.start()
    query.awaitTermination()
    return [one["durationMs"]["triggerExecution"] for one in query.recentProgress]


def main() -> None:
    """Stream the same files into each sink, print and keep what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        landed(place / "landing", given.batches, given.rows)
        lake = lh.load_catalog(f"file://{place}/warehouse")
        progress = {"spark.sql.streaming.numRecentProgressUpdates": str(given.batches)}
        spark = build_session(
            "streams", master="local[2]", config=progress, catalogs={"lake": lake}
        )
        for name, options in (
            ("ours", {}),
            ("ours, not joined", {"tail-files": "0"}),
            ("parquet", {}),
        ):
            reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
            writer = reader.json(str(place / "landing")).writeStream.trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(place / f"checkpoint {name}"))
            if name == "parquet":
                took = streamed(writer.format("parquet").option("path", str(place / name)), None)
                sizes = [one.stat().st_size for one in (place / name).glob("*.parquet")]
                rows = spark.read.parquet(str(place / name)).count()
            else:
                table = f"raw.t{len(results)}"
                lake.create_namespace("raw", exist_ok=True)
                took = streamed(writer.options(**options), f"lake.{table}")
                found = lake.load_table(table)
                sizes = [one.file_size_in_bytes for one in found.scan().plan().files]
                rows = found.scan().count()
            if rows != given.batches * given.rows:
                raise AssertionError(f"{name}: {rows} rows of {given.batches * given.rows}")
            results[name] = {
                "files": len(sizes),
                "bytes": sum(sizes),
                "median_ms": statistics.median(took),
                "p99_ms": sorted(took)[int(0.99 * len(took))],
            }
            sys.stdout.write(f"{name}: {results[name]}\n")
            sys.stdout.flush()
        spark.stop()
    kept = {"batches": given.batches, "rows": given.rows, "load": os.getloadavg()[0]}
    RESULTS.write_text(json.dumps({**kept, "sinks": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
