"""Tables that DuckDB writes, over the whole matrix: we open and extend them, DuckDB reads on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from tests.conformance.matrix import (
    OLD,
    Cell,
    deleted_ids,
    first_rows,
    in_cells,
    rows_of,
    same_rows,
    second_batch,
)
from tests.conformance.plain_rest import PlainCatalog, plain_rest

COLUMNS = (
    "id INTEGER, note VARCHAR, region VARCHAR, ts TIMESTAMPTZ, amount FLOAT, place STRUCT(city "
    "VARCHAR, zip INTEGER)"
)
SPEC = {"unpartitioned": "", "day": "PARTITIONED BY (day(ts))", "region": "PARTITIONED BY (region)"}
NEW_SPEC = {"unpartitioned": "region", "day": "month(ts)", "region": "region, bucket(4, id)"}
FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "region = 'eu'": lambda row: row["region"] == "eu",
    "region is null": lambda row: row["region"] is None,
    "id < 0": lambda row: row["id"] < 0,
}
# What keeps DuckDB from writing such a cell; when it learns, the test says so.
SAME_FIELD_TWICE = 'duplicate name "identity_region_3" in struct'


@pytest.fixture(scope="module")
def server(duck, tmp_path_factory):
    with plain_rest(tmp_path_factory.mktemp("duckdb")) as started:
        duck.sql(
            f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{started.url}', AUTHORIZATION_TYPE "
            "'none', STAGE_CREATE_TABLES false)"
        )
        yield started
        duck.sql("DETACH lake")


def small(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what only a long inside a struct can hold: DuckDB widens no column there."""
    place = row["place"]
    return row if place is None else {**row, "place": {**place, "zip": place["zip"] % 2**40}}


def rows_in_duckdb(cell: Cell) -> list[dict[str, Any]]:
    return [small(row) for row in rows_of(cell)]


def written_by_duckdb(duck: duckdb.DuckDBPyConnection, server: PlainCatalog, cell: Cell) -> str:
    """The location of the table's metadata."""
    name = str(cell).replace("-", "_")
    table = f"lake.m.{name}"
    duck.register("first", pa.Table.from_pylist(first_rows(), schema=OLD))
    duck.register(
        "second",
        pa.Table.from_pylist(
            [small(row) for row in second_batch(cell).to_pylist()], schema=cell.arrow
        ),
    )
    duck.sql(
        f"CREATE TABLE {table} ({COLUMNS}) {SPEC[cell.spec]} WITH ('format-version' = "
        f"'{cell.version}')"
    )
    duck.sql(f"INSERT INTO {table} FROM first")
    if cell.evolved:
        for change in (
            "RENAME COLUMN amount TO price",
            "RENAME COLUMN place.city TO town",
            "ADD COLUMN place.country VARCHAR",
            "ALTER COLUMN id TYPE BIGINT",
            "ALTER COLUMN price TYPE DOUBLE",
            *(
                ["ADD COLUMN size INTEGER"]
                if cell.schema == "grown"
                else ["DROP COLUMN note", "ADD COLUMN note INTEGER"]
            ),
        ):
            duck.sql(f"ALTER TABLE {table} {change}")
    if cell.new_spec:
        duck.sql(f"ALTER TABLE {table} SET PARTITIONED BY ({NEW_SPEC[cell.spec]})")
    duck.sql(f"INSERT INTO {table} SELECT {', '.join(cell.arrow.names)} FROM second")
    if cell.deletes:
        duck.sql(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, deleted_ids(cell)))})")
    return str(server.locations[name])


def scanned(duck: duckdb.DuckDBPyConnection, location: str) -> list[dict[str, Any]]:
    return duck.execute("SELECT * FROM iceberg_scan(?)", [location]).to_arrow_table().to_pylist()


@in_cells()
def test_we_read_what_duckdb_writes(duck, server, readers, cell):
    if cell.spec == "region" and cell.new_spec and cell.deletes:
        with pytest.raises(duckdb.TransactionException, match=SAME_FIELD_TWICE):
            written_by_duckdb(duck, server, cell)
        return
    location = written_by_duckdb(duck, server, cell)
    ours = readers.register_table(f"duckdb.{cell}", location)
    assert ours.metadata.format_version == cell.version
    assert same_rows(ours.scan().to_arrow().to_pylist(), rows_in_duckdb(cell))
    first = ours.snapshots()[0].snapshot_id
    assert same_rows(ours.scan(snapshot_id=first).to_arrow().to_pylist(), first_rows())
    for where, test in FILTERS.items():
        assert same_rows(
            ours.scan(where).to_arrow().to_pylist(), filter(test, rows_in_duckdb(cell))
        ), where
    listed = duck.execute(
        "SELECT file_path FROM iceberg_metadata(?) WHERE status <> 'DELETED'", [location]
    ).fetchall()
    assert {path for (path,) in listed} == set(ours.inspect.files()["file_path"].to_pylist())
    snapshots = duck.execute(
        "SELECT sequence_number, snapshot_id FROM iceberg_snapshots(?)", [location]
    ).fetchall()
    assert sorted(snapshots) == [(s.sequence_number, s.snapshot_id) for s in ours.snapshots()]
    if cell.deletes and cell.schema != "grown":
        gone_on_with(duck, ours, cell)


def gone_on_with(duck: duckdb.DuckDBPyConnection, ours: lh.Table, cell: Cell) -> None:
    """We append, delete beside DuckDB's own deletes and compact; DuckDB reads every version."""
    expected = rows_in_duckdb(cell)
    more = [small(row) for row in second_batch(cell).to_pylist()]
    ours.append(pa.Table.from_pylist(more, schema=ours.scan().to_arrow().schema))
    expected += more
    assert same_rows(scanned(duck, ours.metadata_location), expected)
    ours.set_properties({"write.delete.mode": "merge-on-read"})
    ours.delete("id < 0")
    expected = [row for row in expected if not row["id"] < 0]
    assert same_rows(ours.scan().to_arrow().to_pylist(), expected)
    assert same_rows(scanned(duck, ours.metadata_location), expected)
    ours.compact(lh.CompactionOptions(min_input_files=2))
    assert same_rows(ours.scan().to_arrow().to_pylist(), expected)
    assert same_rows(scanned(duck, ours.metadata_location), expected)
