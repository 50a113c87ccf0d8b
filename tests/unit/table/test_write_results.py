"""What a write gives back, judged by rows before and after; and refs named alike by every verb."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("part", pa.string())])
MODES = [(2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")]


def rows(ids: range) -> pa.Table:
    return pa.table({"id": list(ids), "part": [f"p{one % 3}" for one in ids]}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(str(tmp_path))


def live(table: lh.Table, ref: str = "main") -> int:
    return table.scan(ref=ref).to_arrow().num_rows


@pytest.mark.parametrize(("version", "mode"), MODES)
def test_counts_are_those_of_the_rows(lake, version, mode):
    table = lake.create_table(
        "a.b",
        SCHEMA,
        partition_by=["part"],
        format_version=version,
        properties={"write.delete.mode": mode},
    )
    result = table.append(rows(range(30)))
    assert (result.rows_inserted, result.rows_deleted, result.replayed) == (30, 0, False)
    assert result.snapshot == table.current_snapshot()
    assert (result.snapshot_id, result.operation) == (result.snapshot.snapshot_id, "append")
    for where in ("id in (1, 2, 3)", "id < 10", "part = 'p0'", "id > 25 or part = 'p1'"):
        before = live(table)
        result = table.delete(where)
        gone = before - live(table)
        assert gone > 0
        # position deletes of v2 are not read when a file goes whole
        whole = version == 2 and mode == "merge-on-read" and "part" in where
        assert (result.rows_inserted, result.rows_deleted) == (0, None if whole else gone)
    assert table.delete("id = 99") is None


def test_an_overwrite_counts_what_came_and_what_went(lake):
    table = lake.create_table("a.b", SCHEMA)
    table.append(rows(range(10)))
    result = table.overwrite(rows(range(5, 12)), where="id >= 4")
    assert (result.rows_inserted, result.rows_deleted, live(table)) == (7, 6, 11)
    result = table.overwrite(rows(range(2)))
    assert (result.rows_inserted, result.rows_deleted, live(table)) == (2, 11, 2)


def test_a_replay_says_so(lake):
    table = lake.create_table("a.b", SCHEMA)
    first = table.append(rows(range(3)), commit_id="once")
    again = lake.load_table("a.b").append(rows(range(3)), commit_id="once")
    assert (again.snapshot, again.replayed, again.rows_inserted) == (first.snapshot, True, None)


def test_added_files_are_counted(lake, tmp_path):
    (tmp_path / "outside").mkdir()
    path = str(tmp_path / "outside" / "some.parquet")
    pq.write_table(rows(range(8)), path)
    result = lake.create_table("a.b", SCHEMA).add_files([path])
    assert (result.rows_inserted, result.rows_deleted) == (8, 0)


def test_every_reading_verb_takes_a_ref(lake):
    table = lake.create_table("a.b", SCHEMA)
    first = table.append(rows(range(4)))
    table.create_branch("audit")
    second = table.append(rows(range(4, 6)), branch="audit")
    table.create_tag("kept", ref="audit").create_branch("later", ref="kept")
    for ref in ("audit", "kept", "later"):
        assert live(table, ref) == 6
        assert table.current_snapshot(ref=ref) == second.snapshot
        assert table.history(ref=ref) == [first.snapshot, second.snapshot]
        assert table.scan_appends(first.snapshot_id, ref=ref).to_arrow().num_rows == 2
        assert table.changelog(first.snapshot_id, ref=ref).to_arrow().num_rows == 2
    assert table.history() == [first.snapshot]
    assert table.scan_appends(first.snapshot_id).to_arrow().num_rows == 0
    table.compute_statistics(ref="audit")
    assert [statistic["snapshot-id"] for statistic in table.metadata.statistics] == [
        second.snapshot_id
    ]


def test_a_snapshot_is_named_once(lake):
    table = lake.create_table("a.b", SCHEMA)
    first = table.append(rows(range(4))).snapshot_id
    table.create_branch("audit")
    for verb in (
        lambda: table.scan(snapshot_id=first, ref="audit"),
        lambda: table.scan(run="a", ref="audit"),
        lambda: table.scan_appends(first, first, ref="audit"),
        lambda: table.changelog(None, first, ref="audit"),
        lambda: table.create_tag("x", first, ref="audit"),
        lambda: table.create_branch("x", first, ref="audit"),
        lambda: table.compute_statistics(snapshot_id=first, ref="audit"),
    ):
        with pytest.raises(lh.InvalidInputError, match=r"a\.b.*not.* both"):
            verb()
    with pytest.raises(lh.NoSuchRefError):
        table.history(ref="nowhere")


def test_a_branch_is_compacted_by_its_name(lake):
    table = lake.create_table("a.b", SCHEMA)
    for start in range(3):
        table.append(rows(range(start, start + 1)), branch="audit")
    eager = lh.CompactionOptions(min_input_files=2)
    assert table.compact(eager).rewritten_files == 0
    with pytest.raises(lh.InvalidInputError, match=r"a\.b.*'audit'.*'other'.*not both"):
        table.compact(lh.CompactionOptions(branch="other"), branch="audit")
    assert table.compact(branch="audit").rewritten_files == 0
    table.set_properties({"lakehouse.maintenance.min-input-files": "3"})
    assert table.compact(branch="audit").rewritten_files == 3, "by the table's policy"
    table.append(rows(range(9, 10)), branch="audit")
    assert table.compact(eager, branch="audit").rewritten_files == 2
    assert len(table.scan(ref="audit").plan().files) == 1


def broken_rows():
    """More rows than a file holds, then no more."""
    for start in range(0, 100_000, 10_000):
        yield rows(range(start, start + 10_000))
    raise RuntimeError("the source is gone")


@pytest.mark.parametrize("how", ["generator", "reader", "capsule"])
def test_a_source_that_breaks_leaves_no_file(lake, tmp_path, how):
    table = lake.create_table("a.b", SCHEMA, properties={"write.target-file-size-bytes": "4096"})
    source = broken_rows()
    if how != "generator":
        batches = (batch for one in source for batch in one.to_batches())
        source = pa.RecordBatchReader.from_batches(SCHEMA, batches)
    if how == "capsule":
        source = pa.RecordBatchReader.from_stream(source)
    with pytest.raises((RuntimeError, pa.ArrowInvalid), match="the source is gone"):
        table.append(source)
    assert list(tmp_path.rglob("*.parquet")) == []
    assert table.refresh().current_snapshot() is None


def test_options_are_said_once(lake):
    table = lake.create_table("a.b", SCHEMA)
    table.append(rows(range(4)))
    table.append(rows(range(4)))
    with pytest.raises(lh.InvalidInputError, match=r"a\.b.*not both"):
        table.expire_snapshots(lh.ExpiryOptions(retain_last=1), retain_last=2)
    with pytest.raises(lh.InvalidInputError, match=r"a\.b.*not both"):
        table.remove_orphan_files(lh.OrphanOptions(), force=True)
    newest = table.snapshots()[-1].timestamp_ms + 1
    table.expire_snapshots(lh.ExpiryOptions(older_than_ms=newest, retain_last=1))
    assert len(table.snapshots()) == 1
