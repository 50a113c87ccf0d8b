"""Sources that do not fit in the memory of a merge: the same rows, and nothing left behind.

The oracle is DuckDB's MERGE of the same data. Varied: format version and mode, all kinds of
clauses, tables and streams, sorted and shuffled keys.
"""

from __future__ import annotations

import tempfile

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidExpressionError, InvalidInputError, StorageError
from lakehouse.row_changes.merge import source_rows
from tests.table_census import take_census

FORMS = [("copy-on-write", 2), ("merge-on-read", 2), ("merge-on-read", 3), ("copy-on-write", 3)]
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("x", pa.float64())])
SMALL = 1 << 20
EVERY = """MERGE INTO t USING s ON t.id = s.id AND t.k = s.k
    WHEN MATCHED AND s.x < 10 THEN DELETE
    WHEN MATCHED THEN UPDATE SET x = t.x + s.x
    WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT (id, k, x) VALUES (s.id, s.k, s.x)
    WHEN NOT MATCHED BY SOURCE AND t.id % 100 = 7 THEN UPDATE SET x = -1
    WHEN NOT MATCHED BY SOURCE AND t.id % 100 = 8 THEN DELETE"""


def rows(ids) -> pa.Table:
    ids = np.asarray(ids)
    keys = [None if one % 11 == 0 else f"key {one % 5}" for one in ids.tolist()]
    return pa.table({"id": ids, "k": keys, "x": (ids % 97).astype(float)}, SCHEMA)


@pytest.fixture(autouse=True)
def spilled_to(tmp_path, monkeypatch):
    """Where merges spill to in a test: nothing is there when it ends."""
    folder = tmp_path / "spilled"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.glob("lakehouse-merge-*")) == []


@pytest.fixture
def count_spills(monkeypatch):
    files = []
    made = source_rows.SpillFolder.file
    monkeypatch.setattr(
        source_rows.SpillFolder, "file", lambda self, name: files.append(name) or made(self, name)
    )
    return files


def new_table(folder, mode, version):
    table = lh.load_catalog(f"file://{folder}/warehouse").create_table(
        "raw.t",
        SCHEMA,
        format_version=version,
        properties={"write.merge.mode": mode},
    )
    for start in range(0, 40_000, 10_000):
        table.append(rows(range(start, start + 10_000)))
    return table


@pytest.fixture(params=FORMS, ids=str)
def table(tmp_path, request):
    return new_table(tmp_path, *request.param)


def census(table):
    found = take_census(table.catalog, table.identifier)
    assert not found.missing
    return found.present


def content(data):
    return sorted(map(repr, zip(*(column.to_pylist() for column in data.columns), strict=True)))


def source(count=40_000):
    return rows(np.random.default_rng(1).permutation(count) + 20_000)


@pytest.mark.parametrize("form", ["table", "stream", "generator"])
def test_a_spilled_merge_does_what_duckdb_does(table, count_spills, form):
    data = source()
    peer = duckdb.connect()
    peer.register("before", table.scan().to_arrow())
    peer.register("s", data)
    peer.execute("CREATE TABLE t AS SELECT * FROM before")
    changed = peer.execute(EVERY).fetchone()[0]
    forms = {
        "table": data,
        "stream": data.to_reader(max_chunksize=5_000),
        "generator": iter(data.to_batches(max_chunksize=5_000)),
    }
    merge = table.merge(forms[form], ["id", "k"], memory_bytes=SMALL)
    for clause in EVERY.split(" WHEN ")[1:]:
        merge = merge.when(clause)
    done = merge.execute()
    assert len(count_spills) > 10, "it was to be spilled"
    assert done.rows_inserted + done.rows_updated + done.rows_deleted == changed
    assert content(table.scan().to_arrow()) == content(peer.table("t").to_arrow_table())


def test_rows_keep_their_ids_and_a_file_has_one_vector(tmp_path):
    table = new_table(tmp_path, "merge-on-read", 3)
    columns = ["id", "_row_id"]
    before = dict(zip(*table.scan(select=columns).to_arrow().to_pydict().values(), strict=True))
    for turn in range(2):
        data = source().append_column("turn", pa.array([turn] * 40_000))
        table.upsert(data.drop("turn"), ["id"], memory_bytes=SMALL)
    after = dict(zip(*table.scan(select=columns).to_arrow().to_pydict().values(), strict=True))
    assert {one: after[one] for one in before} == before
    assert len(set(after.values())) == len(after) == 60_000
    vectors = [delete for task in table.scan().plan().tasks for delete in task.deletes]
    assert len(vectors) == len({vector.referenced_data_file for vector in vectors})


def test_what_fits_is_not_spilled(table, count_spills):
    table.upsert(source(1_000), ["id"], memory_bytes=SMALL)
    table.upsert(source(), ["id"])
    assert count_spills == []


def test_a_plan_writes_nothing_to_the_table(table, count_spills):
    before = table.metadata_location
    plan = table.plan_upsert(source(), ["id"], memory_bytes=SMALL)
    assert (plan.rows_updated, plan.rows_inserted) == (20_000, 20_000)
    assert (plan.files, plan.files_opened, plan.files_changed) == (4, 2, 2)
    assert count_spills
    assert table.refresh().metadata_location == before


def broken(data):
    yield from data.to_batches(max_chunksize=5_000)
    raise RuntimeError("the stream broke")


def test_nothing_is_left_when_the_stream_breaks(table):
    before = census(table)
    with pytest.raises(RuntimeError, match="the stream broke"):
        table.upsert(broken(source()), ["id"], memory_bytes=SMALL)
    assert census(table) == before


def test_nothing_is_left_of_a_merge_that_fails_late(table):
    before = census(table)
    data = source()
    with pytest.raises(InvalidInputError, match="share their key"):
        table.upsert(pa.concat_tables([data, data.slice(39_999)]), ["id"], memory_bytes=SMALL)
    value = "cast(CASE WHEN s.id = 39999 THEN 'no number' ELSE '1' END AS double)"
    merge = table.merge(data, ["id"], memory_bytes=SMALL).when_matched_update({"x": value})
    with pytest.raises(InvalidExpressionError, match="no number"):
        merge.execute()
    assert census(table) == before


def test_no_room_for_temporary_files_is_a_storage_error(table, monkeypatch, tmp_path):
    before = census(table)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(StorageError, match=r"nowhere.*TMPDIR names"):
        table.upsert(source(), ["id"], memory_bytes=SMALL)
    assert census(table) == before


def test_too_little_memory_is_refused(table):
    with pytest.raises(InvalidInputError, match="memory_bytes of 1024 at least, not 10"):
        table.upsert(source(), ["id"], memory_bytes=10)
