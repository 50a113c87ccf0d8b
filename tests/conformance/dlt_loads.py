"""`make conformance-dlt`: dlt loads Iceberg tables through our REST server, and we read them.

dlt runs in an environment of its own: `python -m tests.conformance.dlt_loads PYTHON`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import lakehouse as lh
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app

LOADS = """
import datetime as dt
import dlt

pipeline = dlt.pipeline("shop", destination="filesystem", dataset_name="shop")

def load(name, rows, **how):
    resource = dlt.resource(rows, name=name, table_format="iceberg", **how)
    pipeline.run(resource).raise_on_failed_jobs()

def rows(first, last, **more):
    day = dt.datetime(2026, 6, 1, tzinfo=dt.timezone.utc)
    return [{"id": n, "at": day + dt.timedelta(hours=n), **more} for n in range(first, last)]

load("orders", rows(0, 3, lines=[{"sku": "x"}, {"sku": "y"}]))
load("orders", rows(3, 5, note="new column"))
for note in ("first", "second"):
    load("merged", rows(0, 3 if note == "first" else 5, note=note), primary_key="id",
         write_disposition={"disposition": "merge", "strategy": "upsert"})
    load("replaced", rows(0, 9 if note == "first" else 2), write_disposition="replace")
print(dlt.version.__version__)
"""
NOTES = {
    "orders": [None, None, None, "new column", "new column"],
    "merged": ["second"] * 5,
    "replaced": [None, None],
}
"""By table, what each of its rows says, by id."""


def main() -> int:
    """Say what was loaded; exit code 1 where it is not what was sent."""
    with tempfile.TemporaryDirectory() as folder:
        lake = lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/lake")
        with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
            version = loaded(Path(sys.argv[1]).absolute(), server.url, Path(folder))
        wrong = [name for name, notes in NOTES.items() if not is_as_sent(lake, name, notes)]
        skus = lake.load_table("shop.orders__lines").scan().to_arrow()["sku"].to_pylist()
        wrong += ["orders__lines"] * (sorted(skus) != ["x"] * 3 + ["y"] * 3)
        orders = lake.load_table("shop.orders")
        orders.compact()
        orders.refresh().delete("id = 0")
        wrong += ["compacted"] * (lake.load_table("shop.orders").scan().count() != 4)
    sys.stdout.write(f"dlt {version}: {', '.join(NOTES)}: {wrong or 'rows as sent'}\n")
    return 1 if wrong else 0


def is_as_sent(lake: lh.Lakehouse, name: str, notes: list[str | None]) -> bool:
    """Whether a table has these rows."""
    rows: list[Any] = lake.load_table(f"shop.{name}").scan().to_arrow().sort_by("id").to_pylist()
    hours = [dt.datetime(2026, 6, 1, row["id"], tzinfo=dt.UTC) for row in rows]
    return [(row["id"], row.get("note"), row["at"]) for row in rows] == list(
        zip(range(len(notes)), notes, hours, strict=False)
    )


def loaded(python: Path, url: str, folder: Path) -> str:
    """Run the loads, that of each kind once; dlt's version. Raises CalledProcessError."""
    catalog = {"type": "rest", "uri": url, "warehouse": "lakehouse"}
    settings = {
        "DESTINATION__FILESYSTEM__BUCKET_URL": f"file://{folder}/lake",
        "ICEBERG_CATALOG__ICEBERG_CATALOG_TYPE": "rest",
        "ICEBERG_CATALOG__ICEBERG_CATALOG_CONFIG": json.dumps(catalog),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "DLT_DATA_DIR": f"{folder}/dlt",
        "PYTHONPATH": "",
    }
    done = subprocess.run(
        [python, "-c", LOADS],
        check=True,
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
