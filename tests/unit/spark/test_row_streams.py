"""What a stream of rows answers without Spark: how far it is behind its table."""

from __future__ import annotations

import json

import pyarrow as pa

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.spark.reading.row_streams import RowStreamAnswers


def test_a_stream_is_behind_by_the_snapshots_that_it_has_not_read_whole(tmp_path):
    lake = lh.load_catalog(f"file://{tmp_path}", environment=Environment.seeded(1))
    rows = pa.table({"id": [1, 2]})
    table = lake.create_table("raw.t", rows.schema)
    first, second = (table.append(rows).snapshot_id for _ in range(2))
    table.compact(lh.CompactionOptions(rewrite_all=True))
    stream = RowStreamAnswers(
        lambda: None, "raw.t", table, "main", table.schema(), {}, changes=False
    )

    def behind(*read):
        position = dict(zip(("snapshot_id", "units"), read, strict=False))
        told = stream.behind({"read": json.dumps(position)} if read else {}, None)
        return told["snapshotsBehind"], float(told["secondsBehind"]) > 0

    assert behind() == ("2", True)
    assert behind(first) == ("1", True)
    assert behind(second, 0) == ("1", True)
    assert behind(second) == ("0", False)
