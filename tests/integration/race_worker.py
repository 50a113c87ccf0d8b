"""A real process that appends to one table, many times: python race_worker.py <json>."""

from __future__ import annotations

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
        job["uri"], warehouse=job.get("warehouse"), name=job.get("name", "lakehouse"), **job.get("properties", {})
    )
    acknowledged, failed, retries = [], [], 0
    version = catalog.load(EVENTS)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    started = time.monotonic()
    for number in range(job["appends"]):
        name = f"{job['worker']}-{number}"
        try:
            committed = Transaction(catalog, EVENTS, base=version).append([data_file(name)]).commit(commit_id=name)
        except LakehouseError as error:
            failed.append(f"{name}: {type(error).__name__}: {error.message}")
            continue
        version = committed.version
        retries += committed.retries
        acknowledged.append(name)
        if job.get("log"):
            with open(job["log"], "a") as log:  # noqa: PTH123 - appended to, line by line, until killed
                log.write(name + "\n")
    seconds = time.monotonic() - started
    sys.stdout.write(json.dumps({"acknowledged": acknowledged, "failed": failed, "retries": retries, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
