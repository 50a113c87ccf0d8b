"""What a delete is called in the history, what goes with it, which isolation level it obeys."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.errors import ValidationConflictError

SCHEMA = pa.schema({"id": pa.int64(), "s": pa.string()})


@pytest.fixture
def table(tmp_path):
    made = lh.load_catalog(tmp_path.as_uri()).create_table("raw.t", SCHEMA)
    made.append(rows((1, "a"), (2, "b")))
    made.append(rows((9, "z")))
    return made


def rows(*values):
    return pa.table({"id": [one for one, _ in values], "s": [one for _, one in values]})


@pytest.mark.parametrize(
    ("where", "operation", "left"),
    [
        ("id = 9", "delete", [1, 2]),
        ("id >= 0", "delete", []),
        ("s = 'z' and id > 0", "delete", [1, 2]),
        ("id = 1", "overwrite", [2, 9]),
        ("id = 1 or id = 9", "overwrite", [2]),
    ],
)
def test_a_copy_on_write_delete_that_only_drops_files_is_a_delete(table, where, operation, left):
    snapshot = table.delete(where)
    assert snapshot.operation == snapshot.summary["operation"] == operation
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == left


def test_an_overwrite_that_adds_nothing_is_a_delete(table):
    assert table.overwrite(rows(), "id = 9").operation == "delete"
    assert table.overwrite(rows((3, "c")), "id = 4").operation == "overwrite"


@pytest.mark.parametrize("version", [2, 3])
def test_an_overwrite_by_merge_on_read_rewrites_no_file(tmp_path, version):
    """SQLite does the same. Files that keep rows stay; in v2 so do those emptied by position."""
    table = lh.load_catalog(tmp_path.as_uri()).create_table(
        "raw.t",
        SCHEMA,
        format_version=version,
        properties={"write.delete.mode": "merge-on-read"},
    )
    sqlite = sqlite3.connect(":memory:")
    sqlite.execute("create table t (id, s, file)")

    def files():
        return {task.data_file.file_path for task in table.scan().plan().tasks}

    def add(new, write):
        before = files()
        done = write(rows(*new))
        (path,) = files() - before
        sqlite.executemany("insert into t values (?, ?, ?)", [(*row, path) for row in new])
        return done

    for first in (0, 10, 20):
        add([(first + n, "old") for n in range(10)], table.append)
    steps = ["id = 4", "id >= 20 and id < 30", "id < 12", "s = 'new 2'", "id = 99", "s = 'old'"]
    for number, where in enumerate(steps):
        before = files()
        deleted = sqlite.execute(f"delete from t where {where}").rowcount
        keeping = {name for (name,) in sqlite.execute("select file from t")}
        new = [(100 + number, f"new {number}")]
        done = add(new, lambda data, where=where: table.overwrite(data, where))
        assert (done.rows_inserted, done.operation) == (1, "overwrite")
        assert done.rows_deleted in (deleted, None)
        assert keeping <= files() & before if version == 2 else keeping == files() & before
        found = table.scan(select=["id", "s"]).to_arrow().to_pylist()
        assert sorted((row["id"], row["s"]) for row in found) == sorted(
            sqlite.execute("select id, s from t")
        )
    assert StaticTable.from_metadata(table.metadata_location).scan().to_arrow().num_rows == len(
        found
    )


REMOVALS = {
    "merge-on-read": lambda table: table.delete("s = 'a'"),
    "copy-on-write": lambda table: table.set_properties(
        {"write.delete.mode": "copy-on-write"}
    ).delete("id = 2"),
    "overwrite": lambda table: table.set_properties(
        {"write.delete.mode": "copy-on-write"}
    ).overwrite(rows((2, "a")), "id = 2"),
    "overwrite all": lambda table: table.overwrite(rows((2, "a"))),
    "compaction": lambda table: table.compact(lh.CompactionOptions(rewrite_all=True)),
    "files": lambda table: table.transaction().delete_files(table.scan().plan().files).commit(),
}


@pytest.mark.parametrize("verb", REMOVALS)
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_one_file_go_with_it(tmp_path, version, verb):
    """Read by pyiceberg as well, which refuses what it cannot make sense of."""
    table = lh.load_catalog(tmp_path.as_uri()).create_table(
        "raw.t",
        SCHEMA,
        format_version=version,
        partition_by=["s"],
        properties={"write.delete.mode": "merge-on-read"},
    )
    table.append(rows((1, "a"), (2, "a"), (3, "a")))
    table.delete("id = 1")
    assert table.inspect.delete_files().num_rows == 1
    REMOVALS[verb](table)
    table.refresh()
    assert table.inspect.delete_files().num_rows == 0
    assert table.current_snapshot().summary["total-delete-files"] == "0"
    expected = {
        "merge-on-read": [],
        "copy-on-write": [3],
        "overwrite": [2, 3],
        "overwrite all": [2],
        "compaction": [2, 3],
        "files": [],
    }[verb]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == expected
    theirs = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    assert sorted(theirs["id"].to_pylist()) == expected


@pytest.mark.parametrize("where", ["id = 1", "id = 9"], ids=["rewrites", "drops"])
@pytest.mark.parametrize("level", ["snapshot", "serializable"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_delete_obeys_the_isolation_level_of_deletes(table, where, level, mode):
    table.set_properties(
        {
            "write.delete.isolation-level": level,
            "write.update.isolation-level": "snapshot" if level != "snapshot" else "serializable",
            "write.delete.mode": mode,
        }
    )
    stale = lh.load_catalog(table.catalog.warehouse).load_table("raw.t")
    table.append(rows((1, "a"), (9, "z")))
    if level == "serializable":
        with pytest.raises(ValidationConflictError, match="added 1 file"):
            stale.delete(where)
    else:
        stale.delete(where)
        assert stale.scan().count() == 4


def test_an_overwrite_takes_rows_that_its_filter_does_not_match(table):
    """As Spark's `overwrite(condition)` does: it is a delete and an append in one snapshot."""
    for _ in range(2):
        table.overwrite(rows((1, "new"), (7, "other")), "id = 1")
    found = sorted(table.scan().to_arrow().to_pylist(), key=str)
    assert [(one["id"], one["s"]) for one in found] == [
        (1, "new"),
        (2, "b"),
        (7, "other"),
        (7, "other"),
        (9, "z"),
    ]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("id = 1", 1),
        ("id in (1, 7)", 0),
        ("id >= 1 and s = 'new'", 1),
        ("s is not null", 0),
        ("s < 'a'", 2),
        ("s <= 'other'", 0),
        ("id > 1 or s like 'n%'", 0),
        ("id % 6 = 1", 0),
        ("id % 2 = 0", 2),
        ("s like '%w'", 1),
    ],
)
def test_rows_of_an_overwrite_that_do_not_match_are_refused_on_demand(table, where, left):
    """Iceberg's validateAddedFilesMatchOverwriteFilter; SQLite counts rows that do not match."""
    new = [(1, "new"), (7, "other")]
    sqlite = sqlite3.connect(":memory:")
    sqlite.execute("create table t (id, s)")
    sqlite.executemany("insert into t values (?, ?)", new)
    (others,) = sqlite.execute(f"select count(*) from t where not coalesce({where}, 0)").fetchone()
    assert others == left
    before = table.metadata_location
    if left:
        with pytest.raises(lh.InvalidInputError, match=f"{left} of 2 rows"):
            table.overwrite(rows(*new), where, must_match=True)
        assert table.refresh().metadata_location == before
    else:
        once = table.overwrite(rows(*new), where, must_match=True)
        twice = table.overwrite(rows(*new), where, must_match=True)
        totals = [one.summary["total-records"] for one in (once, twice)]
        assert totals[0] == totals[1]


@pytest.mark.parametrize("partition_by", [[], ["s"]])
def test_a_row_whose_column_is_null_does_not_match(tmp_path, partition_by):
    table = lh.load_catalog(tmp_path.as_uri()).create_table(
        "raw.n", SCHEMA, partition_by=partition_by
    )
    with pytest.raises(lh.InvalidInputError, match="do not match"):
        table.overwrite(rows((1, "a"), (2, None)), "s = 'a'", must_match=True)
    data = tmp_path / "raw" / "n" / "data"
    assert [one for one in data.rglob("*") if one.is_file()] == []


def test_a_bound_that_was_cut_short_refuses_nothing(table):
    """The metrics of a long text do not tell: its rows are read."""
    long = "z" * 40
    for _ in range(2):
        table.overwrite(rows((1, long)), f"s = '{long}'", must_match=True)
    assert table.scan(f"s = '{long}'").count() == 1
