"""Writing manifests of the Atlas table (with twins) beside pyiceberg and fastavro, in one run.

`python benchmarks/manifest_write.py [--entries 100000]`. Entries a second are for one thread and
for all cores (one manifest a thread), everything in memory; bytes are of Avro, per entry. The peers
write one manifest of 8,032 entries.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import os
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fastavro  # noqa: E402
from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: E402
from pyiceberg.manifest import ManifestEntry as PyManifestEntry  # noqa: E402
from pyiceberg.manifest import write_manifest  # noqa: E402

from benchmarks.atlas import SCHEMA, SPEC, partition_files  # noqa: E402
from lakehouse.manifests.manifest_reader import decode_avro  # noqa: E402
from lakehouse.manifests.manifest_writer import encode_manifest  # noqa: E402
from lakehouse.spec.manifests.columnar_manifest import encode_columnar  # noqa: E402
from lakehouse.spec.manifests.manifest_entries import Entries  # noqa: E402
from lakehouse.spec.schema.iceberg_types import field_types  # noqa: E402

TARGET_ENTRIES_PER_SECOND = 100_000
TARGET_BYTES_PER_ENTRY = 120
MANIFEST_ENTRIES = 8_032


def one_manifest(folder: Path) -> tuple[Path, float]:
    """A manifest of 8 Atlas partitions written by pyiceberg, and its entries per second."""
    path = folder / "pyiceberg-m0.avro"
    files = [
        file
        for hour in (0, 1)
        for bucket in range(4)
        for file in partition_files("/t", hour, bucket, MANIFEST_ENTRIES // 8)
    ]
    start = time.perf_counter()
    with write_manifest(
        2, SPEC, SCHEMA, PyArrowFileIO().new_output(str(path)), 1, "deflate"
    ) as writer:
        for file in files:
            writer.add(PyManifestEntry.from_args(status=1, snapshot_id=1, data_file=file))
    return path, len(files) / (time.perf_counter() - start)


def ours(entries: Entries) -> int:
    """Write a manifest and its twin to memory; bytes of Avro."""
    data = encode_manifest(entries, SCHEMA, format_version=2)
    encode_columnar(entries)
    return len(data)


def rate(count: int, threads: int, entries: Entries) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: ours(entries), range(count)))
    return count * len(entries) / (time.perf_counter() - start)


def fastavro_rate(path: Path) -> tuple[float, float]:
    """What fastavro makes of the same records: (entries a second, bytes an entry)."""
    with path.open("rb") as source:
        reader = fastavro.reader(source)
        schema, rows = reader.writer_schema, list(reader)
    sink = io.BytesIO()
    start = time.perf_counter()
    fastavro.writer(sink, fastavro.parse_schema(schema), rows, codec="deflate")
    return len(rows) / (time.perf_counter() - start), len(sink.getvalue()) / len(rows)


def run(folder: Path, wanted: int) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    path, pyiceberg_rate = one_manifest(folder)
    entries = decode_avro([(str(path), path.read_bytes())], SPEC, field_types(SCHEMA)).entries
    count = max(wanted // len(entries), 1)
    avro_bytes = ours(entries)
    fast, fast_bytes = fastavro_rate(path)
    one_thread, cores = (
        max(rate(count, 1, entries) for _ in range(3)),
        max(rate(count, os.cpu_count() or 1, entries) for _ in range(3)),
    )
    return {
        "benchmark": "manifest_write",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "versions": {name: version(name) for name in ("pyiceberg", "fastavro", "pyarrow", "numpy")},
        "entries": count * len(entries),
        "ours_with_columnar": {
            "entries_per_second_one_thread": round(one_thread),
            "entries_per_second": round(cores),
            "avro_bytes_per_entry": round(avro_bytes / len(entries), 1),
        },
        "pyiceberg": {
            "entries_per_second": round(pyiceberg_rate),
            "avro_bytes_per_entry": round(path.stat().st_size / len(entries), 1),
        },
        "fastavro": {
            "entries_per_second": round(fast),
            "avro_bytes_per_entry": round(fast_bytes, 1),
        },
        "times_faster_than_pyiceberg": round(cores / pyiceberg_rate, 1),
        "times_faster_than_fastavro": round(cores / fast, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=160_000)
    parser.add_argument("--folder", type=Path, default=ROOT / ".lakehouse" / "benchmarks")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "manifest_write.json"
    )
    arguments = parser.parse_args()
    result = run(arguments.folder, arguments.entries)
    mine = result["ours_with_columnar"]
    rate_text = (
        f"{mine['entries_per_second']:,} entries/s on all cores, "
        f"{mine['entries_per_second_one_thread']:,} on one"
    )
    print(f"ours, with twin: {rate_text} (target {TARGET_ENTRIES_PER_SECOND:,})")
    print(
        f"                 {mine['avro_bytes_per_entry']} bytes of Avro an entry (target "
        f"{TARGET_BYTES_PER_ENTRY})"
    )
    for name in ("pyiceberg", "fastavro"):
        peer = result[name]
        faster = result[f"times_faster_than_{name}"]
        print(
            f"{name}: {peer['entries_per_second']:,} entries/s, {peer['avro_bytes_per_entry']} "
            f"bytes; ours is {faster} x faster"
        )
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
