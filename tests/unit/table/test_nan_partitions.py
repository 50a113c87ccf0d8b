"""NaN is one partition value like any other: found, deleted from, counted once and fought over."""

from __future__ import annotations

import math
import uuid

import pyarrow as pa
import pytest

import lakehouse as lh

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])


def rows(*pairs):
    return pa.table([[pair[0] for pair in pairs], [pair[1] for pair in pairs]], schema=SCHEMA)


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def table(request):
    catalog = lh.load_catalog(f"memory://{uuid.uuid4().hex}/warehouse")
    made = catalog.create_table(
        "raw.t", SCHEMA, partition_by=["x"], properties={"write.delete.mode": request.param}
    )
    made.append(rows((1, math.nan), (2, math.nan), (3, 0.5), (4, None)))
    made.append(rows((5, math.nan), (6, -0.0), (7, 0.0)))
    return made


def ids(table, where=None):
    return sorted(table.scan(where).to_arrow()["id"].to_pylist())


def test_filters_and_deletes(table):
    assert ids(table, "x is nan") == [1, 2, 5]
    assert ids(table, "x = 0.0") == [6, 7]
    table.delete("id = 2")
    assert ids(table, "x is nan") == [1, 5]
    assert ids(table, "x > 100") == [1, 5]
    table.delete("x is nan")
    assert ids(table) == [3, 4, 6, 7]


def test_one_partition_in_the_counts(table):
    counted = table.inspect.partitions().to_pylist()
    assert sorted((str(row["partition"]["x"]), row["record_count"]) for row in counted) == [
        ("-0.0", 1), ("0.0", 1), ("0.5", 1), ("None", 1), ("nan", 3),
    ]  # fmt: skip
    assert table.current_snapshot().summary["changed-partition-count"] == "3"
    assert table.delete("x is nan").summary["changed-partition-count"] == "1"


def test_writers_conflict_over_it(table):
    first = next(
        file for file in table.scan("id = 5").plan().files if math.isnan(file.partition[0])
    )
    late = table.transaction().overwrite(table.write_files(rows((8, math.nan))), [first])
    table.append(rows((9, math.nan)))
    with pytest.raises(lh.ValidationConflictError, match="x=nan"):
        late.commit()
    other = table.transaction().overwrite(table.write_files(rows((8, math.nan))), [first])
    table.append(rows((10, 0.5)))
    other.commit()


def test_deletes_made_meanwhile_are_noticed(table):
    target = next(
        file for file in table.scan("id = 5").plan().files if math.isnan(file.partition[0])
    )
    rewrite = table.transaction().rewrite_files([target], table.write_files(rows((5, math.nan))))
    table.delete("id = 5")
    with pytest.raises(lh.ValidationConflictError):
        rewrite.commit()


def test_a_stream_of_batches_makes_one_file_a_partition(table):
    batch = rows((1, math.nan), (2, 0.0), (3, -0.0)).to_batches()[0]
    before = {file.file_path for file in table.scan().plan().files}
    table.append(pa.RecordBatchReader.from_batches(SCHEMA, [batch] * 20))
    new = [file for file in table.scan().plan().files if file.file_path not in before]
    assert sorted((str(file.partition[0]), file.record_count) for file in new) == [
        ("-0.0", 20),
        ("0.0", 20),
        ("nan", 20),
    ]


def test_its_files_are_compacted_together(table):
    expected = ids(table)
    table.compact(lh.CompactionOptions(min_input_files=2))
    assert ids(table) == expected
    nan = [
        file
        for file in table.scan().plan().files
        if file.partition[0] is not None and math.isnan(file.partition[0])
    ]
    assert [file.record_count for file in nan] == [3]
