"""`write.metadata.*`: compressed metadata files, their folder, deletion of old ones.

On the catalogs that write them.
"""

from __future__ import annotations

import gzip
import threading

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.spec.metadata.table_updates import SetProperties

SCHEMA = pa.schema([pa.field("id", pa.int64())])
CODEC = "write.metadata.compression-codec"


@pytest.fixture(params=["filesystem", "sqlite"])
def lake(request, tmp_path):
    warehouse = f"file://{tmp_path}/warehouse"
    if request.param == "filesystem":
        return lh.load_catalog(warehouse, **{"commit.turns.enabled": "false"})
    return lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def read_by_others(location: str) -> list[int]:
    theirs = sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist())
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        import_extension(name, con=connection)
        connection.load_extension(name)
    codec = "gzip" if ".gz." in location else "none"
    found = connection.execute(
        f"SELECT id FROM iceberg_scan('{location}', metadata_compression_codec = '{codec}')"
    ).fetchall()
    connection.close()
    assert sorted(number for (number,) in found) == theirs
    return theirs


def test_metadata_is_compressed_when_the_table_asks_for_it(lake):
    table = lake.create_table("raw.t", SCHEMA, properties={CODEC: "gzip"})
    table.append(rows(1))
    table.append(rows(2))
    assert table.metadata_location.endswith(".gz.metadata.json")
    assert gzip.decompress(table.storage.read(table.metadata_location)).startswith(b"{")
    assert read_by_others(table.metadata_location) == [1, 2]
    table.set_properties({CODEC: "none"})
    table.append(rows(3))
    assert not table.metadata_location.endswith(".gz.metadata.json")
    assert table.storage.read(table.metadata_location).startswith(b"{")
    assert lake.load_table("raw.t").scan().count() == 3
    assert read_by_others(table.metadata_location) == [1, 2, 3]


def test_writers_that_disagree_about_compression_lose_nothing(lake):
    """Compression is switched on and off while others append.

    If that gave two names to one version, appends would vanish.
    """
    lake.create_table(
        "raw.t",
        SCHEMA,
        properties={"commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "1"},
    )
    errors: list[BaseException] = []

    def guarded(work) -> None:
        try:
            work(lake.load_table("raw.t"))
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    def append(table: lh.Table) -> None:
        for number in range(4):
            table.append(rows(number))

    def switch(table: lh.Table) -> None:
        for number in range(4):
            table.set_properties({CODEC: "gzip" if number % 2 else "none"})

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (append, append, switch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(lake.load_table("raw.t").scan().to_arrow()["id"].to_pylist()) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]


def test_a_dropped_table_with_compressed_metadata_stays_dropped(lake):
    table = lake.create_table("raw.t", SCHEMA, properties={CODEC: "gzip"})
    table.append(rows(1))
    late = lake.load_table("raw.t")
    lake.drop_table("raw.t")
    assert not lake.table_exists("raw.t")
    with pytest.raises(lh.LakehouseError):
        late.append(rows(2))
    assert not lake.table_exists("raw.t")


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_old_metadata_goes_where_the_table_asks_for_it(lake, codec):
    wanted = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
        CODEC: codec,
    }
    table = lake.create_table("raw.t", SCHEMA, properties=wanted)
    for number in range(6):
        table.append(rows(number))
    folder = table.metadata_location.rpartition("/")[0]
    left = {
        info.location
        for info in table.storage.list(folder)
        if info.location.endswith(".metadata.json")
    }
    logged = {entry.metadata_file for entry in table.metadata.metadata_log}
    assert {one.rpartition("/")[2] for one in left} == {
        one.rpartition("/")[2] for one in {*logged, table.metadata_location}
    }
    assert len(left) == 3
    assert lake.load_table("raw.t").scan().count() == 6


def test_a_relative_metadata_path_is_below_the_table(lake):
    table = lake.create_table("raw.t", SCHEMA, properties={"write.metadata.path": "elsewhere/meta"})
    snapshot = table.append(rows(1))
    assert snapshot.manifest_list.startswith(f"{table.location}/elsewhere/meta/")
    assert read_by_others(table.metadata_location) == [1]
    assert lake.load_table("raw.t").scan().count() == 1
    with pytest.raises(lh.LakehouseError):
        table.set_properties({"write.metadata.path": "../../../outside"})


def test_one_version_has_one_name_whatever_its_writers_want(tmp_path, monkeypatch):
    """Two writers on one base, neither of whom sees the other's file: the second must lose."""
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    catalog = lake.catalog.inside
    base = lake.create_table("raw.t", SCHEMA).version
    monkeypatch.setattr(catalog._versions, "at", lambda folder, number: None)
    catalog.commit(base.identifier, base, (), (SetProperties({CODEC: "gzip"}),))
    with pytest.raises(lh.CommitConflictError):
        catalog.commit(base.identifier, base, (), (SetProperties({"comment": "lost"}),))
