"""The names that docs, benchmarks and outside checks use, on the embedded catalog."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("event_ts", pa.timestamp("us", tz="UTC")),
        pa.field("user_id", pa.int64()),
        pa.field("amount", pa.float64()),
    ]
)


def rows(days: range, users: int = 4) -> pa.Table:
    start = dt.datetime(2026, 6, 1, tzinfo=UTC)
    made = [
        {
            "event_ts": start + dt.timedelta(days=day, hours=user),
            "user_id": user,
            "amount": float(day * 10 + user),
        }
        for day in days
        for user in range(users)
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse")


@pytest.fixture
def events(catalog):
    return catalog.create_table(
        "raw.events",
        SCHEMA,
        partition_by=["day(event_ts)", "bucket(16, user_id)"],
        sort_by=["event_ts"],
    )


def amounts(table: pa.Table) -> list[float]:
    return sorted(table["amount"].to_pylist())


def test_every_exported_name_exists_and_is_sorted():
    assert sorted(lh.__all__) == list(lh.__all__)
    assert all(getattr(lh, name) is not None for name in lh.__all__)


def test_append_then_read_through_every_door(events):
    snapshot = events.append(rows(range(3)))
    assert snapshot.summary["added-records"] == "12"
    assert events.scan().to_arrow().num_rows == 12
    assert events.scan().to_batches().read_all().num_rows == 12
    assert events.scan().count() == 12
    assert duckdb.sql(
        "select count(*) from stream", connection=_with(stream=events.scan().to_batches())
    ).fetchone() == (12,)


def _with(**relations):
    connection = duckdb.connect()
    for name, relation in relations.items():
        connection.register(name, relation)
    return connection


def test_a_filter_on_event_time_touches_only_its_day(events):
    events.append(rows(range(10)))
    scan = events.scan(
        where="event_ts >= '2026-06-03T00:00:00+00:00' and event_ts < '2026-06-04T00:00:00+00:00'"
    )
    plan = scan.plan()
    every = [f.file_path for f in events.scan().plan().files]
    assert sorted(f.file_path for f in plan.files) == sorted(
        path for path in every if "event_ts_day=2026-06-03" in path
    )
    assert (plan.report.data_files.total, plan.report.data_files.planned) == (
        len(every),
        len(every) // 10,
    )
    assert scan.to_arrow().num_rows == 4


def test_select_projects_in_the_order_asked(events):
    events.append(rows(range(1)))
    assert events.scan(select=["amount", "user_id"]).to_arrow().column_names == [
        "amount",
        "user_id",
    ]


def test_overwrite_replaces_what_matches_and_nothing_else(events):
    events.append(rows(range(3)))
    events.overwrite(
        pa.Table.from_pylist(
            [{"event_ts": dt.datetime(2026, 6, 2, tzinfo=UTC), "user_id": 1, "amount": -1.0}],
            schema=SCHEMA,
        ),
        where="event_ts >= '2026-06-02T00:00:00+00:00' and event_ts < '2026-06-03T00:00:00+00:00'",
    )
    assert amounts(events.scan().to_arrow()) == sorted([-1.0, 0, 1, 2, 3, 20, 21, 22, 23])


def test_delete_of_part_of_a_file_keeps_the_rest(events):
    events.append(rows(range(2)))
    snapshot = events.delete(where="amount = 11.0")
    assert snapshot is not None
    assert amounts(events.scan().to_arrow()) == [0, 1, 2, 3, 10, 12, 13]
    assert events.delete(where="amount = 99.0") is None


def test_time_travel_by_id_time_and_ref(events):
    first = events.append(rows(range(1)))
    events.create_tag("q3", first.snapshot_id)
    events.append(rows(range(1, 2)))
    assert events.scan(snapshot_id=first.snapshot_id).count() == 4
    assert events.scan(as_of=first.timestamp_ms).count() == 4
    assert events.scan(as_of=dt.datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)).count() == 4
    assert events.scan(ref="q3").count() == 4
    assert events.scan().count() == 8
    with pytest.raises(lh.NoSuchSnapshotError):
        events.scan(snapshot_id=1).count()
    with pytest.raises(lh.NoSuchRefError, match="nowhere"):
        events.scan(ref="nowhere").count()
    with pytest.raises(lh.InvalidInputError, match="not both"):
        events.scan(snapshot_id=first.snapshot_id, as_of=0)


def test_snapshots_are_oldest_first_and_rollback_moves_main(events):
    made = [events.append(rows(range(day, day + 1))).snapshot_id for day in range(3)]
    assert [s.snapshot_id for s in events.snapshots()] == made
    assert [s.snapshot_id for s in events.history()] == made
    events.rollback_to(made[0])
    assert events.scan().count() == 4
    assert [s.snapshot_id for s in events.history()] == made[:1]


def test_a_branch_is_seen_on_main_only_after_fast_forward(events):
    events.append(rows(range(1)))
    events.create_branch("audit")
    events.append(rows(range(1, 2)), branch="audit")
    assert (events.scan().count(), events.scan(ref="audit").count()) == (4, 8)
    events.fast_forward("main", "audit")
    assert events.scan().count() == 8


def test_schema_evolution_by_id(events):
    before = events.append(rows(range(1)))
    with events.update_schema() as schema:
        schema.add_column("device", "string")
        schema.rename_column("amount", "price")
    events.append(
        pa.table(
            {
                "event_ts": pa.array(
                    [dt.datetime(2026, 6, 9, tzinfo=UTC)], pa.timestamp("us", tz="UTC")
                ),
                "user_id": [9],
                "price": [9.0],
                "device": ["phone"],
            }
        )
    )
    read = events.scan(select=["price", "device"]).to_arrow().sort_by("price")
    assert read["price"].to_pylist() == [0, 1, 2, 3, 9]
    assert read["device"].to_pylist() == [None] * 4 + ["phone"]
    assert events.scan(snapshot_id=before.snapshot_id).to_arrow().column_names == [
        "event_ts",
        "user_id",
        "amount",
    ]


def test_partition_evolution_serves_both_specs(catalog):
    table = catalog.create_table("raw.evolving", SCHEMA, partition_by=["month(event_ts)"])
    table.append(rows(range(5)))
    with table.update_partition_spec() as spec:
        spec.replace("month(event_ts)", "day(event_ts)")
    table.append(rows(range(5, 8)))
    where = "event_ts >= '2026-06-07T00:00:00+00:00'"
    assert table.scan(where=where).count() == 8
    assert {f.spec_id for f in table.scan().plan().files} == {0, 1}


def test_an_error_inside_a_change_commits_nothing(events):
    def half_done():
        with events.update_schema() as schema:
            schema.add_column("device", "string")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_done()
    assert "device" not in events.refresh().schema().column_names


def test_the_same_commit_id_commits_once(events):
    first = events.append(rows(range(1)), commit_id="run-1")
    again = events.append(rows(range(1)), commit_id="run-1")
    assert again.snapshot_id == first.snapshot_id
    assert events.scan().count() == 4
    assert data_files(events) == {f.file_path for f in events.scan().plan().files}


def data_files(table: lh.Table) -> set[str]:
    return {info.location for info in table.storage.list(f"{table.location}/data")}


def test_a_write_that_certainly_failed_leaves_no_data_files(catalog, events):
    events.append(rows(range(2)))
    stale = catalog.load_table("raw.events")
    events.append(rows(range(2)))
    before = data_files(events)
    with pytest.raises(lh.ValidationConflictError, match="Load the table again"):
        stale.overwrite(rows(range(1)), where="amount >= 0")
    assert data_files(events) == before
    with pytest.raises(lh.InvalidSchemaError, match="nonsense"):
        events.append(pa.table({"nonsense": [1]}))
    assert data_files(events) == before


def test_maintenance_keeps_the_rows(events):
    for _ in range(6):
        events.append(rows(range(2)))
    before = amounts(events.scan().to_arrow())
    events.compact()
    files = len(events.scan().plan().files)
    assert files == 6
    events.rewrite_manifests()
    events.expire_snapshots(older_than=dt.datetime.now(UTC) + dt.timedelta(hours=1), retain_last=1)
    assert amounts(events.scan().to_arrow()) == before
    assert len(events.snapshots()) == 1
    assert events.health().small_files == files
    with pytest.raises(lh.MaintenanceRefusedError):
        events.remove_orphan_files(older_than=dt.datetime.now(UTC))
    assert events.inspect.files().num_rows == files


def test_the_catalog_lists_renames_and_drops(catalog, events):
    assert catalog.list_tables() == ["raw.events"]
    assert catalog.table_exists("raw.events")
    with pytest.raises(lh.TableAlreadyExistsError):
        catalog.create_table("raw.events", SCHEMA)
    catalog.drop_table("raw.events", purge=True)
    with pytest.raises(lh.NoSuchTableError, match=r"raw\.events"):
        catalog.load_table("raw.events")


@pytest.mark.parametrize("name", ["../../../escape", "raw.../x", "", "raw.", "raw.a/b", "raw.\x00"])
def test_names_stay_inside_the_warehouse(catalog, name):
    with pytest.raises(lh.InvalidIdentifierError):
        catalog.create_table(name, SCHEMA)


def test_rows_that_are_not_rows_are_refused(events):
    with pytest.raises(lh.InvalidInputError, match=r"raw\.events"):
        events.append(42)
