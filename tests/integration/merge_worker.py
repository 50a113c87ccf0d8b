"""A real process that merges into one table, many times: python merge_worker.py <json>."""

from __future__ import annotations

import json
import logging
import sys
import time

import pyarrow as pa

import lakehouse as lh
from lakehouse.errors import LakehouseError


def main() -> None:
    job = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)
    table = lh.load_catalog(job["uri"], **job.get("properties", {})).load_table("raw.t")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    started, failed, done = time.monotonic(), [], []
    for number, keys in enumerate(job["batches"]):
        source = pa.table({"id": pa.array(keys, pa.int64()), "v": [1] * len(keys)})
        try:
            base = table.refresh().metadata.current_snapshot_id
            merge = table.merge(source, ["id"]).when_matched_update({"v": "t.v + s.v"})
            made = merge.when_not_matched_insert_all().execute()
        except LakehouseError as error:
            failed.append(f"{number}: {type(error).__name__}: {error.message}")
            continue
        done.append(
            {
                "keys": keys,
                "base": base,
                "snapshot": made.snapshot_id,
                "again": made.decided_again,
                "rows_again": made.rows_decided_again,
                "retries": made.retries,
            }
        )
    result = {"failed": failed, "done": done, "seconds": time.monotonic() - started}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
