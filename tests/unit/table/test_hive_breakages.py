"""Three ways in which a folder of files by convention breaks, each beside a table that survives it.

The Hive side is a real layout of files (`dt=2026-06-09/`) read by readers that follow the
convention: folders are partitions, listing is the table, position or name is the column.
"""

from __future__ import annotations

import csv
import datetime as dt

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakehouse as lh

UTC = dt.UTC
START = dt.datetime(2026, 6, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [("event_ts", pa.timestamp("us", tz="UTC")), ("user_id", pa.int64()), ("amount", pa.float64())]
)
DAYS = 10


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse")


def day(number: int) -> pa.Table:
    moments = [START + dt.timedelta(days=number, hours=hour) for hour in range(0, 24, 6)]
    return pa.table(
        {"event_ts": moments, "user_id": [1, 2, 3, 4], "amount": [float(number)] * 4}, schema=SCHEMA
    )


def write_hive_day(root, number: int) -> None:
    folder = root / f"dt={(START + dt.timedelta(days=number)).date()}"
    folder.mkdir(parents=True)
    pq.write_table(day(number), folder / "part-0.parquet")


def hive(root) -> ds.Dataset:
    return ds.dataset(root, format="parquet", partitioning="hive")


def test_a_filter_on_event_time_scans_everything_in_hive_and_one_day_here(tmp_path, catalog):
    for number in range(DAYS):
        write_hive_day(tmp_path / "hive", number)
    wanted = START + dt.timedelta(days=8)
    by_time = (ds.field("event_ts") >= wanted) & (
        ds.field("event_ts") < wanted + dt.timedelta(days=1)
    )
    by_folder = ds.field("dt") == str(wanted.date())
    assert len(list(hive(tmp_path / "hive").get_fragments(by_time))) == DAYS
    assert len(list(hive(tmp_path / "hive").get_fragments(by_folder))) == 1
    assert hive(tmp_path / "hive").to_table(filter=by_time).num_rows == 4

    table = catalog.create_table("raw.events", SCHEMA, partition_by=["day(event_ts)"])
    table.append(pa.concat_tables([day(number) for number in range(DAYS)]))
    until = (wanted + dt.timedelta(days=1)).isoformat()
    scan = table.scan(where=f"event_ts >= '{wanted.isoformat()}' and event_ts < '{until}'")
    assert (len(table.scan().plan().files), len(scan.plan().files)) == (DAYS, 1)
    assert scan.to_arrow().num_rows == 4


def test_a_dropped_middle_column_shifts_its_neighbours_in_hive_and_not_here(tmp_path, catalog):
    """A Hive text table: the schema lies in the metastore, files hold positions."""
    old = [{"id": 1, "secret": 999, "amount": 10}, {"id": 2, "secret": 888, "amount": 20}]
    with (tmp_path / "part-0.csv").open("w", newline="") as file:
        csv.DictWriter(file, ["id", "secret", "amount"]).writerows(old)

    def hive_rows(columns: list[str]) -> list[dict[str, int]]:
        with (tmp_path / "part-0.csv").open(newline="") as file:
            return [
                dict(zip(columns, map(int, values), strict=False)) for values in csv.reader(file)
            ]

    assert hive_rows(["id", "secret", "amount"]) == old
    assert hive_rows(["id", "amount"]) == [{"id": 1, "amount": 999}, {"id": 2, "amount": 888}]

    table = catalog.create_table(
        "raw.t", pa.schema([(name, pa.int64()) for name in ("id", "secret", "amount")])
    )
    before = table.append(pa.Table.from_pylist(old))
    with table.update_schema() as schema:
        schema.drop_column("secret")
    kept = [{"id": row["id"], "amount": row["amount"]} for row in old]
    assert table.scan().to_arrow().to_pylist() == kept
    with table.update_schema() as schema:
        schema.add_column("secret", "long")
    assert table.scan().to_arrow().to_pylist() == [{**row, "secret": None} for row in kept]
    assert table.scan(snapshot_id=before.snapshot_id).to_arrow().to_pylist() == old


def test_a_reader_sees_half_a_job_in_hive_and_all_or_nothing_here(tmp_path, catalog):
    """The job replaces two days. Readers come before it, in its middle and after it."""
    for number in range(2):
        write_hive_day(tmp_path / "hive", number)

    def hive_sum() -> float:
        return sum(hive(tmp_path / "hive").to_table()["amount"].to_pylist())

    seen = [hive_sum()]
    for number in range(2):
        path = (
            tmp_path
            / "hive"
            / f"dt={(START + dt.timedelta(days=number)).date()}"
            / "part-0.parquet"
        )
        path.unlink()
        seen.append(hive_sum())
        pq.write_table(day(number + 100), path)
        seen.append(hive_sum())
    assert seen[0] == 4 * (0 + 1)
    assert seen[-1] == 4 * (100 + 101)
    assert len(set(seen)) == 4, "the folder was read half-done"

    table = catalog.create_table("raw.events", SCHEMA, partition_by=["day(event_ts)"])
    table.append(pa.concat_tables([day(0), day(1)]))

    def our_sum() -> float:
        return sum(catalog.load_table("raw.events").scan().to_arrow()["amount"].to_pylist())

    ours = [our_sum()]
    job = catalog.load_table("raw.events")
    removed = job.scan().plan().files[:]
    added = []
    for number in range(2):
        added += job.write_files(
            day(number).set_column(2, "amount", pa.array([float(number + 100)] * 4))
        )
        ours.append(our_sum())
    job.transaction().overwrite(added, removed).commit()
    ours.append(our_sum())
    assert ours == [4.0, 4.0, 4.0, 804.0]
