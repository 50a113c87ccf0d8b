"""`format("lakehouse")`: batch reading and writing through the Python data source."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyspark.sql import datasource as ds

from lakehouse.errors import InvalidInputError
from lakehouse.spark.data_source import (
    LakehouseDataSource,
    LakehouseReader,
    open_table,
    pushed_filter,
)
from lakehouse.spec.types.arrow_types import schema_from_arrow
from tests.integration.spark_support import collected, configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

INSTANT = pa.timestamp("us", "UTC")
DATA = pa.table({
    "id": pa.array(range(40)),
    "k": pa.array([n % 4 for n in range(40)], pa.int32()),
    "at": pa.array([dt.datetime(2026, 1, 1 + n % 4, tzinfo=dt.UTC) for n in range(40)], INSTANT),
    "name": [f"n{n}" for n in range(40)],
})  # fmt: skip


def test_read_filter_travel_append_overwrite(lake, session, spark):
    spark.dataSource.register(LakehouseDataSource)
    with configured(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        table = lake.create_table("d.events", DATA.schema, partition_by=["k"])
        table.append(DATA)
        first = table.current_snapshot().snapshot_id
        reader = spark.read.format("lakehouse").option("catalog", lake.warehouse)
        assert collected(reader.load("d.events").where("k = 2")) == collected(
            session.table("d.events").where("k = 2")
        )
        more = session.table("d.events").selectExpr("id + 100 AS id", "k", "at", "name")
        more.write.format("lakehouse").option("catalog", lake.warehouse).mode("append").save(
            "d.events"
        )
        assert reader.load("d.events").count() == 80
        assert reader.option("snapshot-id", first).load("d.events").count() == 40
        writer = (
            spark.createDataFrame(DATA.slice(0, 3))
            .write.format("lakehouse")
            .option("catalog", lake.warehouse)
        )
        writer.mode("overwrite").save("d.events")
        assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_pushed_filters_prune_partitions(lake):
    table = lake.create_table("d.pruned", DATA.schema, partition_by=["k"])
    table.append(DATA)
    reader = LakehouseReader(table.scan().request, table.storage.properties, None)
    filters = [ds.EqualTo(("k",), 3), ds.StringContains(("name",), "n")]
    assert list(reader.pushFilters(filters)) == filters
    assert [
        task.data_file.partition for part in reader.partitions() for task in part.group.tasks
    ] == [(3,)]


def test_options_are_honoured_refused_or_warned_of(lake, caplog):
    lake.create_table("d.asked", DATA.schema)
    given = {"catalog": lake.warehouse, "path": "d.asked"}
    open_table({**given, "catalog.a": "b", "splitsize": "1"})
    assert caplog.text.count("the option") == 1
    assert "honours the option splitsize" in caplog.text
    for name in ("overwrite-mode", "branch", "versionAsOf"):
        with pytest.raises(InvalidInputError, match=name.lower()):
            open_table({**given, name: "x"})


@pytest.mark.parametrize(
    ("one", "understood"),
    [
        (ds.EqualTo(("id",), 3), True),
        (ds.In(("name",), ("a", "b")), True),
        (ds.GreaterThan(("at",), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), True),
        (ds.GreaterThan(("at",), dt.datetime.fromisoformat("2026-01-01")), False),
        (ds.Not(ds.EqualTo(("id",), 3)), False),
        (ds.EqualTo(("nope",), 3), False),
        (ds.EqualTo(("name",), None), False),
        (ds.EqualTo(("id",), 3.5), False),
        (ds.IsNull(("name",)), True),
    ],
)
def test_filters_understood(one, understood):
    found = pushed_filter(one, schema_from_arrow(DATA.schema))
    assert (found != AlwaysTrue()) is understood
    if one == ds.EqualTo(("id",), 3):
        assert isinstance(found, EqualTo)
