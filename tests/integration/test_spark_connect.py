"""Spark Connect reads planned paths: a client process, and the server that PySpark brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile

ROOT = Path(__file__).resolve().parents[2]
EVENTS = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("amount", pa.int64())])


def events(days):
    ids = [day * 10 + n for day in days for n in range(10)]
    columns = {
        "id": ids,
        "day": [day for day in days for _ in range(10)],
        "amount": [one - 9 for one in ids],
    }
    return pa.table(columns, schema=EVENTS)


def build(lake, folder):
    table = lake.create_table("raw.events", EVENTS, partition_by=["day"])
    table.append(events([1, 2]))
    table.append(events([3]))
    with table.update_schema() as schema:
        schema.rename_column("id", "key")
        schema.rename_column("amount", "id")
        schema.rename_column("key", "amount")
    with table.update_schema() as schema:
        schema.rename_column("amount", "tmp")
        schema.rename_column("id", "amount")
        schema.rename_column("tmp", "id")
    lake.create_table("raw.empty", EVENTS)
    for name, version in (("positions", 2), ("vectors", 3)):
        deleted = lake.create_table(
            f"raw.{name}",
            EVENTS,
            partition_by=["day"],
            format_version=version,
            properties={"write.delete.mode": "merge-on-read"},
        )
        deleted.append(events([1, 2]))
        deleted.delete("id = 13 or id = 17")
        assert [len(task.deletes) for task in deleted.scan().plan().tasks].count(1) == 1
    place = pa.schema(
        [("id", pa.int64()), ("place", pa.struct([("x", pa.int32()), ("y", pa.int32())]))]
    )
    nested = lake.create_table("raw.nested", place)
    nested.append(pa.Table.from_pylist([{"id": 1, "place": {"x": 5, "y": 6}}], schema=place))
    with nested.update_schema() as schema:
        schema.rename_column("place", "spot")
    equality = lake.create_table("raw.equality", EVENTS)
    equality.append(events([1]))
    path = f"{folder}/raw/equality/data/eq.parquet"
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    pq.write_table(pa.table([pa.array([11])], schema=pa.schema([field])), path)
    size = Path(path).stat().st_size
    delete = DataFile(
        content=CONTENT_EQUALITY_DELETES,
        file_path=path,
        record_count=1,
        file_size_in_bytes=size,
        equality_ids=(1,),
    )
    equality.transaction().row_delta(delete_files=[delete]).commit()


@pytest.mark.spark
@pytest.mark.slow
def test_a_connect_session_reads_by_planned_paths(tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpc: pip install 'pylakehouse[spark]'")
    # braces, brackets and stars in a location are no patterns
    folder = tmp_path / "odd {a,b}[1]*"
    build(lh.load_catalog(f"file://{folder}"), folder)
    # SPARK_TESTING lets the server choose a free port
    environment = {**os.environ, "SPARK_TESTING": "1", "PYTHONPATH": str(ROOT)}
    script = Path(__file__).with_name("connect_client.py")
    done = subprocess.run(
        [sys.executable, str(script), f"file://{folder}"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    if "unavailable" in found:
        pytest.skip(f"the Spark Connect server did not start: {found['unavailable']}")

    def rows_of(days):
        return sorted(map(list, zip(*events(days).to_pydict().values(), strict=True)))

    assert found["remote"].startswith("pyspark.sql.connect")
    assert found["columns"] == ["id", "day", "amount"]
    assert found["all"] == rows_of([1, 2, 3])
    assert found["one day"] == [[amount] for _, day, amount in rows_of([2]) if amount > 15]
    assert found["planned"] == [3, 3, 1]
    assert found["first"] == rows_of([1, 2])
    assert found["sql"] == [[1, 10, "{}"], [2, 10, "{}"]]
    assert found["snapshots"] == 2
    assert found["empty"] == []
    left = [row for row in rows_of([1, 2]) if row[0] not in (13, 17)]
    assert found["positions"] == left
    assert found["vectors"] == left
    assert found["nested"] == [[5]]
    assert found["equality"].startswith(
        "UnsupportedFeatureError: raw.equality: 1 files have equality deletes"
    )
