"""A real process that appends to one table, many times: python race_worker.py <json>."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time

from lakehouse.catalog import open_catalog
from lakehouse.errors import LakehouseError
from lakehouse.transaction import Transaction
from tests.tables import EVENTS, data_file


def main() -> None:
    job = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)
    catalog = open_catalog(
        job["uri"],
        warehouse=job.get("warehouse"),
        name=job.get("name", "lakehouse"),
        **job.get("properties", {}),
    )
    acknowledged, failed, times, retries = [], [], [], 0
    version = catalog.load(EVENTS)
    location = version.metadata.location
    storage = catalog.storage(location)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    started = time.monotonic()
    for number in range(job["appends"]):
        name = f"{job['worker']}-{number}"
        file = dataclasses.replace(
            data_file(name), file_path=f"{location}/data/{name}.parquet", file_size_in_bytes=4
        )
        try:
            storage.write_new({file.file_path: b"rows"})
            committed = (
                Transaction(catalog, EVENTS, decided_on=version)
                .append([file])
                .commit(commit_id=name)
            )
        except LakehouseError as error:
            failed.append(f"{name}: {type(error).__name__}: {error.message}")
            continue
        version = committed.version
        retries += committed.retries
        acknowledged.append(name)
        times.append(time.monotonic())
        if job.get("log"):
            # Appended to, line by line, until killed.
            with open(job["log"], "a") as log:  # noqa: PTH123
                log.write(name + "\n")
    result = {"acknowledged": acknowledged, "failed": failed, "times": times, "retries": retries}
    sys.stdout.write(json.dumps({**result, "seconds": time.monotonic() - started}) + "\n")


if __name__ == "__main__":
    main()
