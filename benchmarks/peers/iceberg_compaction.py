"""Iceberg's Spark procedure `rewrite_data_files`: the peer of `benchmarks/compaction.py`.

It works on a table of a Hadoop catalog.

Runs with a Python of its own, that has nothing but the PySpark which the Iceberg runtime was built
for.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", required=True, help="jar of iceberg-spark-runtime")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--table", required=True)
    arguments = parser.parse_args()
    catalog = "spark.sql.catalog.bench"
    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", arguments.runtime)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "hadoop")
        .config(f"{catalog}.warehouse", arguments.warehouse)
        .getOrCreate()
    )
    session.sql(f"SELECT * FROM bench.{arguments.table} LIMIT 1").collect()
    start, processor = time.perf_counter(), _processor_seconds(session)
    row = session.sql(
        f"CALL bench.system.rewrite_data_files(table => 'bench.{arguments.table}')"
    ).collect()[0]
    result = {
        "seconds": round(time.perf_counter() - start, 3),
        "processor_seconds": round(_processor_seconds(session) - processor, 3),
        "peak_memory_bytes": _peak_memory(session),
        "rewritten_files": row["rewritten_data_files_count"],
        "files": row["added_data_files_count"],
        "bytes": row["rewritten_bytes_count"],
        "spark": session.version,
        "runtime": arguments.runtime.rsplit("/", 1)[-1],
    }
    session.stop()
    print(json.dumps(result))


def _processor_seconds(session: SparkSession) -> float:
    """Of the JVM, which does all the work; from Linux."""
    fields = _process(session, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_memory(session: SparkSession) -> int:
    """Resident memory of the JVM at its highest; from Linux."""
    return next(
        int(line.split()[1]) * 1024
        for line in _process(session, "status").splitlines()
        if line.startswith("VmHWM")
    )


def _process(session: SparkSession, name: str) -> str:
    jvm = session.sparkContext._jvm  # noqa: SLF001 - the only way to it
    return Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/{name}").read_text()


if __name__ == "__main__":
    main()
