"""A verb that finds nothing in an old version looks at the newest: others' rows may match."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.errors import LakehouseError, NoSuchFileError
from lakehouse.inspect.metadata_tables import METADATA_TABLES
from lakehouse.storage.location import local_path
from lakehouse.table.verbs.merge_verbs import MergeBuilder
from lakehouse.transaction.transaction import Transaction

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


def _file(table: lh.Table, name: str, row: int) -> str:
    path = f"{local_path(table.location)}/{name}.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(row), path)
    return path


def _head(table: lh.Table) -> int:
    return table.current_snapshot().snapshot_id


def _hive(table: lh.Table) -> str:
    return _file(table, "hive/part", 8).rpartition("/")[0]


def _pick(table: lh.Table) -> None:
    with suppress(lh.ValidationConflictError):  # of main already
        table.cherry_pick(_head(table))


def _column(table: lh.Table) -> None:
    with table.update_schema() as change:
        change.add_column("z", "int")


def _partition(table: lh.Table) -> None:
    with table.update_partition_spec() as change:
        change.add("id")


def _order(table: lh.Table) -> None:
    with table.update_sort_order() as change:
        change.asc("id")


def _committed(
    change: Callable[[lh.Table, Transaction], object],
) -> Callable[[lh.Table], object]:
    def commit(table: lh.Table) -> object:
        transaction = table.transaction()
        change(table, transaction)
        return transaction.commit()

    return commit


def _merging(table: lh.Table, **named: object) -> MergeBuilder:
    merge = table.merge(rows(7), on=["id"], **named)
    return merge.when_matched_update_all().when_not_matched_insert_all()


HELD = {
    "add_files": lambda t: t.add_files([_file(t, "a", 8)]),
    "append": lambda t: t.append(rows(8)),
    "apply_changes": lambda t: t.apply_changes(rows(7), keys=["id"], sequence_by=["n"]),
    "changelog": lambda t: t.changelog().to_arrow(),
    "changelog plan": lambda t: t.changelog().plan(),
    "cherry_pick": _pick,
    "compact": lambda t: t.compact(lh.CompactionOptions(rewrite_all=True)),
    "compute_key_filters": lambda t: t.compute_key_filters(["id"]),
    "compute_statistics": lambda t: t.compute_statistics(),
    "create_branch": lambda t: t.create_branch("b"),
    "create_tag": lambda t: t.create_tag("b"),
    "delete": lambda t: t.delete("id = 7"),
    "expire_snapshots": lambda t: t.expire_snapshots(),
    "health": lambda t: t.health(),
    "import_hive": lambda t: t.import_hive(_hive(t)),
    "merge": lambda t: _merging(t).execute(),
    "merge plan": lambda t: _merging(t).plan(),
    "overwrite": lambda t: t.overwrite(rows(8)),
    "plan_upsert": lambda t: t.plan_upsert(rows(7), keys=["id"]),
    "remove_orphan_files": lambda t: t.remove_orphan_files(),
    "remove_properties": lambda t: t.remove_properties("write.merge.mode"),
    "rewrite_manifests": lambda t: t.rewrite_manifests(),
    "rollback_to": lambda t: t.rollback_to(_head(t)),
    "scan": lambda t: t.scan().to_arrow(),
    "scan batches": lambda t: t.scan().to_batches().read_all(),
    "scan count": lambda t: t.scan(where="n + id = 0").count(),
    "scan limit": lambda t: t.scan(limit=1).to_pandas(),
    "scan plan": lambda t: t.scan(ref="main").plan(),
    "scan_appends": lambda t: t.scan_appends(t.snapshots()[0].snapshot_id).to_polars(),
    "set_properties": lambda t: t.set_properties({"owner": "a"}),
    "transaction append": _committed(lambda t, tx: tx.append(t.write_files(rows(8)))),
    "transaction delete": _committed(
        lambda t, tx: t.update({"n": "1"}, where="id = 7", transaction=tx)
    ),
    "transaction manifests": _committed(lambda _, tx: tx.rewrite_manifests()),
    "transaction merge": _committed(lambda t, tx: _merging(t, transaction=tx).execute()),
    "transaction overwrite": _committed(lambda t, tx: tx.overwrite(t.write_files(rows(8)), [])),
    "transaction upsert": _committed(lambda t, tx: t.upsert(rows(7), keys=["id"], transaction=tx)),
    "update": lambda t: t.update({"n": "1"}, where="id = 7"),
    "update_partition_spec": _partition,
    "update_schema": _column,
    "update_sort_order": _order,
    "upsert": lambda t: t.upsert(rows(7), keys=["id"]),
    **{f"inspect {name}": lambda t, name=name: t.inspect.table(name) for name in METADATA_TABLES},
}
READS_NO_SNAPSHOT = {
    *("compute_partition_statistics", "current_snapshot", "fast_forward", "history", "identifier"),
    *("location", "metadata", "metadata_location", "move_to", "name", "properties", "refresh"),
    *("refs", "remove_ref", "schema", "snapshots", "spec", "storage", "version", "write_files"),
    "write_request",
}


def test_every_verb_is_tried_with_a_snapshot_that_expired():
    verbs = {name for name in dir(lh.Table) if not name.startswith("_")}
    assert {name.partition(" ")[0] for name in HELD} | READS_NO_SNAPSHOT == verbs


@pytest.mark.parametrize("verb", HELD)
def test_a_snapshot_that_expired_meanwhile_is_called_so(tmp_path, verb):
    lake = lh.load_catalog(str(tmp_path))
    properties = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
    table = lake.create_table(
        "t.rows", SCHEMA, properties={**properties, "commit.retry.num-retries": "0"}
    )
    table.append(rows(1))
    table.append(rows(7))
    slow = lake.load_table("t.rows")
    table.append(rows(9))
    table.compact(lh.CompactionOptions(rewrite_all=True))
    table.expire_snapshots(lh.ExpiryOptions(retain_last=1, older_than_ms=1 << 60))
    expired = None
    try:
        HELD[verb](slow)
    except lh.SnapshotExpiredError as error:
        expired = error
    if expired is not None:
        assert expired.retryable
        assert found(table) == [(1, 0), (7, 0), (9, 0)]
        HELD[verb](slow.refresh())


def test_a_transaction_over_tables_says_that_its_snapshot_expired(tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"))
    table = lake.create_table("t.rows", SCHEMA)
    table.append(rows(1, 7))

    def change(between: Callable[[], object]) -> None:
        with lake.transaction() as transaction:
            held = transaction.table("t.rows")
            between()
            held.delete("id = 7")

    def others() -> None:
        table.append(rows(9))
        table.compact(lh.CompactionOptions(rewrite_all=True))
        table.expire_snapshots(lh.ExpiryOptions(retain_last=1, older_than_ms=1 << 60))

    with pytest.raises(lh.SnapshotExpiredError, match=r"t\.rows"):
        change(others)
    change(lambda: None)
    assert found(table) == [(1, 0), (9, 0)]
