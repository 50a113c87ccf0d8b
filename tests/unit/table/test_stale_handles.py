"""A verb that finds nothing in an old version looks at the newest: others' rows may match."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import LakehouseError, NoSuchFileError

SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64()})
GONE = pa.table({"id": [7]}, schema=pa.schema({"id": pa.int64()}))


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "n": [0] * len(ids)}, schema=SCHEMA)


def _merge(table: lh.Table) -> object:
    return (
        table.merge(GONE, on="t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_delete()
        .execute()
    )


VERBS = {
    "delete": lambda table: table.delete(where="id = 7"),
    "update": lambda table: table.update({"n": "n + 1"}, where="id = 7"),
    "merge": _merge,
}
AFTER = {
    "delete": [(1, 0)],
    "update": [(1, 0), (7, 1)],
    "merge": [(1, 0)],
}


def found(table: lh.Table) -> list[tuple[int, int]]:
    read = table.refresh().scan().to_arrow().to_pylist()
    return sorted((row["id"], row["n"]) for row in read)


@pytest.fixture(params=["filesystem", "sqlite"])
def lake(request, tmp_path):
    if request.param == "filesystem":
        return lh.load_catalog(str(tmp_path))
    return lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("retries", ["0", "4"])
@pytest.mark.parametrize("verb", VERBS)
def test_rows_that_others_added_since_are_found(lake, verb, retries, mode):
    modes = {f"write.{one}.mode": mode for one in ("delete", "update", "merge")}
    properties = {**modes, "commit.retry.num-retries": retries}
    table = lake.create_table("t.rows", SCHEMA, properties=properties)
    table.append(rows(1))
    lake.load_table("t.rows").append(rows(7))
    VERBS[verb](table)
    assert found(table) == AFTER[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_where_nothing_matches_nothing_is_committed(lake, verb):
    table = lake.create_table("t.rows", SCHEMA)
    table.append(rows(1))
    other = lake.load_table("t.rows")
    other.append(rows(2))
    VERBS[verb](table)
    assert table.metadata_location == other.metadata_location, "it moved to the newest version"
    VERBS[verb](table)
    assert found(table) == [(1, 0), (2, 0)]
    assert table.metadata_location == other.metadata_location


def test_a_column_that_others_dropped_since_is_told(lake):
    table = lake.create_table("t.rows", SCHEMA)
    table.append(rows(1))
    with lake.load_table("t.rows").update_schema() as change:
        change.drop_column("n")
    with pytest.raises(LakehouseError, match="n"):
        table.delete(where="n = 7")


def test_another_table_of_the_name_is_not_changed(lake):
    table = lake.create_table("t.rows", SCHEMA)
    table.append(rows(1))
    lake.drop_table("t.rows")
    lake.create_table("t.rows", SCHEMA).append(rows(7))
    with pytest.raises(LakehouseError):
        table.delete(where="id = 7")
    assert found(lake.load_table("t.rows")) == [(7, 0)]


def _all_verbs() -> dict[str, object]:
    return {
        **VERBS,
        "overwrite": lambda table: table.overwrite(rows(8), where="id = 7"),
        "upsert": lambda table: table.upsert(rows(7), keys=["id"]),
    }


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("verb", _all_verbs())
def test_where_the_snapshot_expired_meanwhile_the_newest_is_read(lake, verb, mode):
    modes = {f"write.{one}.mode": mode for one in ("delete", "update", "merge")}
    table = lake.create_table("t.rows", SCHEMA, properties=modes)
    table.append(rows(1))
    slow = lake.load_table("t.rows")
    table.append(rows(7))
    table.expire_snapshots(lh.ExpiryOptions(retain_last=1, older_than_ms=1 << 60))
    _all_verbs()[verb](slow)
    right = {**AFTER, "overwrite": [(1, 0), (8, 0)], "upsert": [(1, 0), (7, 0)]}
    assert found(table) == right[verb]


def test_a_file_that_is_gone_from_a_snapshot_that_is_there_is_no_expiry(lake):
    table = lake.create_table("t.rows", SCHEMA)
    table.append(rows(1, 7))
    slow = lake.load_table("t.rows")
    (file,) = table.scan().plan().files
    table.append(rows(8))
    table.storage.delete([file.file_path])
    with pytest.raises(NoSuchFileError):
        slow.delete(where="id = 7")
