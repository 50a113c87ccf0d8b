"""Spark reads: pruned like unpruned, columns by id, deletes applied, snapshots pinned."""

from __future__ import annotations

import datetime as dt
import gc
import threading
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.errors import IllegalArgumentException

from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from tests.integration.spark_support import collected, configured, lake, run, session
from tests.waiting import eventually

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

UTC = dt.UTC
START = dt.datetime(1969, 12, 30, tzinfo=UTC)
DAYS = 6


def events():
    """Six days around the epoch, with nulls, NaN, infinities, and text beyond ASCII."""
    rows = []
    for number in range(DAYS * 48):
        moment = START + dt.timedelta(minutes=30 * number, microseconds=number % 3)
        rows.append(
            {
                "id": number,
                "event_ts": None if number % 37 == 5 else moment,
                "local_ts": moment.replace(tzinfo=None),
                "day": moment.date(),
                "user_id": None if number % 11 == 3 else number % 7,
                "amount": [float(number % 50), float("nan"), float("inf"), -0.0, None][
                    number % 5 if number % 9 == 0 else 0
                ],
                "ratio": [number / 7, float("nan")][number % 13 == 0],
                "name": [f"n{number % 20:02d}", "é", "\U0001f600", "", None][
                    number % 5 if number % 4 == 0 else 0
                ],
                "price": Decimal(number % 30) / 4,
                "flag": [True, False, None][number % 3],
                "place": None
                if number % 17 == 0
                else {"city": f"c{number // 48}", "zip": number % 100},
            }
        )
    schema = pa.schema([
        ("id", pa.int64()), ("event_ts", pa.timestamp("us", "UTC")),
        ("local_ts", pa.timestamp("us")), ("day", pa.date32()),
        ("user_id", pa.int32()), ("amount", pa.float64()), ("ratio", pa.float32()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)), ("flag", pa.bool_()),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ])  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema)


PREDICATES = [
    "date(event_ts) = '1970-01-01'",
    "date(event_ts) IN ('1969-12-31', '1970-01-02')",
    "event_ts >= '1969-12-31 12:00:00' AND event_ts < '1970-01-01 00:30:00'",
    "NOT (event_ts < '1970-01-03')",
    "event_ts IS NULL",
    "event_ts IS NULL OR user_id = 3",
    "year(event_ts) = 1969",
    "date_trunc('DAY', event_ts) = timestamp'1970-01-02 00:00:00'",
    "date(local_ts) = date'1969-12-30'",
    "local_ts > timestamp_ntz'1970-01-02 23:00:00'",
    "CAST(local_ts AS timestamp) <= timestamp'1969-12-30 10:00:00'",
    "to_timestamp_ntz(event_ts) >= timestamp_ntz'1970-01-03 20:00:00'",
    "day = '1970-01-01' AND user_id IN (1, 2)",
    "day BETWEEN '1969-12-30' AND '1969-12-31'",
    "user_id = 4",
    "user_id <> 4",
    "user_id <=> NULL",
    "NOT (user_id <=> 4)",
    "user_id NOT IN (1, 2, 3)",
    "user_id IN (1, NULL)",
    "user_id IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)",
    "CAST(user_id AS string) = '5'",
    "amount > 40",
    "amount >= double('NaN')",
    "amount = double('Infinity')",
    "amount = 0.0",
    "ratio < 1.1",
    "ratio = float('NaN')",
    "NOT (ratio <= 30.5)",
    "name LIKE 'n1%'",
    "name NOT LIKE 'n1%'",
    "name > 'z'",
    "name = '\U0001f600'",
    "upper(name) = 'N03'",
    "price >= 7.125",
    "price = 1.5",
    "flag",
    "NOT flag",
    "place.city = 'c3'",
    "place.zip > 95 AND place.city IS NOT NULL",
    "place IS NULL",
    "place.city IS NULL",
    "id % 2 = 0 AND day > '1970-01-01'",
    "id = (SELECT max(id) FROM {table})",
]


@pytest.fixture(scope="module")
def pruned(spark, tmp_path_factory):
    """Rows as a table of many files and two specs (`pruned`), and as one file (`plain`)."""
    from lakehouse.lake import load_catalog
    from lakehouse.spark import attach

    lakehouse = load_catalog(f"file://{tmp_path_factory.mktemp('pruning')}")
    data = events()
    table = lakehouse.create_table(
        "raw.events", data.schema, partition_by=["day(event_ts)", "bucket(3, user_id)"]
    )
    table.append(data)
    with table.update_partition_spec() as spec:
        spec.replace("day(event_ts)", "month(event_ts)")
    again = data.slice(100, 80)
    again = again.set_column(0, "id", pc.add(again["id"], 1000))
    table.append(again)
    attach(spark, lakehouse).table("raw.events").createOrReplaceTempView("pruned")
    plain = tmp_path_factory.mktemp("plain") / "plain.parquet"
    pq.write_table(pa.concat_tables([data, again]), plain)
    spark.read.parquet(str(plain)).createOrReplaceTempView("plain")
    yield len(table.scan().plan().files)
    spark.catalog.dropTempView("pruned")
    spark.catalog.dropTempView("plain")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_pruned_equals_unpruned(spark, pruned, zone):
    wanted = PREDICATES if zone == "UTC" else [text for text in PREDICATES if "_ts" in text]
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        # as columns, so that nothing is filtered while reading
        flags = ", ".join(f"coalesce({text}, false)" for text in wanted).replace("{table}", "plain")
        oracle = [tuple(row) for row in spark.sql(f"SELECT id, {flags} FROM plain").collect()]
        for position, text in enumerate(wanted, 1):
            rows = spark.sql(
                f"SELECT id FROM pruned WHERE {text}".replace("{table}", "pruned")
            ).collect()
            assert sorted(row.id for row in rows) == sorted(
                row[0] for row in oracle if row[position]
            ), (zone, text)


def test_filters_skip_files(spark, pruned):
    total = pruned
    kept = {
        text: run(spark.sql(f"SELECT id FROM pruned WHERE {text}"))[1] for text in PREDICATES[:3]
    }
    assert all(0 < files < total / 2 for files in kept.values()), (total, kept)
    assert run(spark.sql("SELECT id FROM pruned"))[1] == total
    assert run(spark.sql("SELECT id FROM pruned WHERE name > '\U0010ffff'")) == ([], 0)


def test_columns_resolve_by_id(lake, session):
    data = pa.table(
        {
            "a": pa.array(range(100, 200), pa.int32()),
            "b": pa.array(range(100), pa.int32()),
            "c": ["x"] * 100,
        }
    )
    table = lake.create_table("t.swapped", data.schema)
    table.append(data)
    old = table.current_snapshot().snapshot_id
    for before, after in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        with table.update_schema() as change:
            change.rename_column(before, after)
    with table.update_schema() as change:
        change.drop_column("c")
    with table.update_schema() as change:
        change.add_column("c", "string")
        change.update_column("b", "long")
    table.append(pa.table({"b": pa.array([2**40]), "a": pa.array([5], pa.int32()), "c": ["new"]}))
    frame = session.table("t.swapped")
    assert frame.columns == ["b", "a", "c"]
    assert collected(frame.where("a = 5")) == [(105, 5, None), (2**40, 5, "new")]
    assert collected(frame.where("b = 199").select("a", "c")) == [(99, None)]
    assert frame.where("c IS NULL").count() == 100
    assert collected(session.table("t.swapped", snapshot_id=old).where("a = 105")) == [
        (105, 5, "x")
    ]


def test_parts_of_renamed_structs_resolve_by_id(lake, session):
    """Nested pruning takes the field id from the top of a pruned path.

    By its new name no old file has the struct.
    """
    point = pa.struct(
        [
            ("x", pa.int32()),
            ("y", pa.int32()),
            ("deep", pa.struct([("z", pa.string()), ("w", pa.float64())])),
        ]
    )
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("a", point),
            ("b", point),
            ("many", pa.list_(point)),
            ("named", pa.map_(pa.string(), point)),
        ]
    )

    def value(n):
        return {"x": n, "y": 10 * n, "deep": {"z": f"z{n}", "w": n / 2}}

    def rows(first):
        made = [(n, value(n), value(-n), [value(n)], [("k", value(n))]) for n in (first, first + 1)]
        return [dict(zip(("id", "a", "b", "many", "named"), one, strict=True)) for one in made]

    table = lake.create_table("t.nested", schema)
    table.append(pa.Table.from_pylist(rows(1), schema=schema))
    with table.update_schema() as change:
        change.rename_column("a", "tmp").rename_column("b", "a").rename_column("tmp", "b")
        change.rename_column("many", "several").rename_column("named", "called")
        change.rename_column("b.x", "tmp").rename_column("b.y", "x").rename_column("b.tmp", "y")
    frame = session.table("t.nested")
    columns = (
        "id",
        "b.y",
        "b.deep.z",
        "a.x AS ax",
        "several.x AS sx",
        "called['k'].y AS cy",
        "called['k'].deep.w",
    )
    picked = frame.selectExpr(*columns)
    assert collected(picked) == [(n, n, f"z{n}", -n, [n], 10 * n, n / 2) for n in (1, 2)]
    assert collected(frame.where("b.deep.z = 'z2'").select("id")) == [(2,)]
    assert collected(frame.where("a.x < -1").selectExpr("b.x")) == [(20,)]
    assert collected(frame.where("b.deep.w > 0.5").selectExpr("id")) == [(2,)]


def test_initial_defaults_fill_older_files(lake, session):
    table = lake.create_table("t.defaults", pa.schema([("id", pa.int64())]), format_version=3)
    table.append(pa.table({"id": [1, 2]}))
    with table.update_schema() as change:
        change.add_column("source", "string", default="it's old")
        change.add_column("day", "date", default=dt.date(2026, 1, 1))
    table.append(pa.table({"id": [3], "source": ["new"], "day": pa.array([None], pa.date32())}))
    expected = [
        (1, "it's old", dt.date(2026, 1, 1)),
        (2, "it's old", dt.date(2026, 1, 1)),
        (3, "new", None),
    ]
    assert collected(session.table("t.defaults")) == expected
    assert collected(session.table("t.defaults").where("source = 'it\\'s old'").select("id")) == [
        (1,),
        (2,),
    ]


def test_every_type_comes_through(lake, session):
    number = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    schema = Schema(
        ice.NestedField(1, "u", ice.UUIDType(), required=False),
        ice.NestedField(2, "f", ice.FixedType(3), required=False),
        ice.NestedField(3, "t", ice.TimeType(), required=False),
        ice.NestedField(4, "old", ice.TimestampType(), required=False),
        ice.NestedField(5, "dec", ice.DecimalType(38, 4), required=False),
        ice.NestedField(
            6,
            "li",
            ice.ListType(
                7, ice.StructType(ice.NestedField(8, "x", ice.LongType(), required=False)), False
            ),
        ),
        ice.NestedField(
            9, "m", ice.MapType(10, ice.StringType(), 11, ice.DoubleType(), False), required=False
        ),
        ice.NestedField(12, "d", ice.DateType(), required=False),
    )
    table = lake.create_table("t.types", schema)
    row = {
        "u": number.bytes, "f": b"abc", "t": dt.time(1, 2, 3, 4),
        "old": dt.datetime.fromisoformat("0001-01-01"),
        "dec": Decimal("123456789.1234"),
        "li": [{"x": 1}, None], "m": [("k", 1.5), ("n", None)], "d": dt.date(1500, 2, 28),
    }  # fmt: skip
    table.append(
        pa.Table.from_pylist([row, dict.fromkeys(row)], schema=table.scan().to_arrow().schema)
    )
    frame = session.table("t.types")
    found = [r.asDict(recursive=True) for r in frame.orderBy("u").collect()]
    assert found[0] == dict.fromkeys(row)
    assert found[1] == row | {"u": str(number), "li": [{"x": 1}, None], "m": {"k": 1.5, "n": None}}
    assert frame.where(f"u = '{number}'").count() == 1
    assert table.scan(where=f"u = '{number}'").to_spark(session.spark).count() == 1
    assert table.scan(limit=1).to_spark(session.spark).count() == 1
    assert table.scan(limit=0).to_spark(session.spark).count() == 0


def test_nanoseconds_are_text_that_scans_filter_by(lake, session):
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "at", ice.TimestampNanoType())
    )
    table = lake.create_table("t.beside", schema, format_version=3, partition_by=["day(at)"])
    table.append(pa.table({"id": [1, 2], "at": pa.array([5, None], pa.timestamp("ns"))}))
    shown = "1970-01-01 00:00:00.000000005"
    assert collected(session.table("t.beside")) == [(1, shown), (2, None)]
    for where, found in (("at is null", 2), (f"at >= '{shown}'", 1), ("at < '1970-01-02'", 1)):
        frame = table.scan(select=["id"], where=where).to_spark(session.spark)
        assert collected(frame) == [(found,)]
    table.append(session.table("t.beside"))
    assert table.scan().count() == 4


def test_paths_are_literal(lake, session):
    names = ["a b", "100%", "é#?&=+", "x/y", "%2F", "a:b", "日本"]
    table = lake.create_table(
        "t.paths", pa.schema([("name", pa.string()), ("id", pa.int64())]), partition_by=["name"]
    )
    table.append(pa.table({"name": names, "id": list(range(len(names)))}))
    assert collected(session.table("t.paths")) == sorted(
        (name, number) for number, name in enumerate(names)
    )
    delete_rows(table, lambda ids: ids == 2)
    assert session.table("t.paths").count() == len(names) - 1


def delete_rows(table, chosen, request=None):
    """Delete the rows whose id is chosen, by position."""
    table = table.refresh()
    for task in table.scan().plan().tasks:
        ids = (
            pq.read_table(task.data_file.file_path.removeprefix("file://"), columns=["id"])
            .column(0)
            .to_numpy()
        )
        positions = np.flatnonzero(chosen(ids))
        if len(positions):
            deletes = write_deletes(
                [FileDeletes(task.data_file, positions)], table.write_request(), table.storage
            )
            table.transaction().row_delta(delete_files=deletes).commit()


@pytest.mark.parametrize("version", [2, 3])
def test_position_deletes_and_deletion_vectors(lake, session, version):
    data = pa.table(
        {
            "id": pa.array(range(400)),
            "day": pa.array([dt.date(2026, 1, 1 + n // 100) for n in range(400)]),
        }
    )
    table = lake.create_table(
        "t.deletes", data.schema, partition_by=["day"], format_version=version
    )
    table.append(data)
    before = table.current_snapshot().snapshot_id
    delete_rows(table, lambda ids: (ids % 10 == 0) & (ids < 200))
    left = sorted(n for n in range(400) if n % 10 or n >= 200)
    frame = session.table("t.deletes")
    assert sorted(row.id for row in frame.select("id").collect()) == left
    assert frame.where("day = '2026-01-01'").count() == 90
    assert frame.where("day = '2026-01-04'").count() == 100
    assert session.table("t.deletes", snapshot_id=before).count() == 400
    assert sorted(table.refresh().scan(where="id < 30").to_arrow()["id"].to_pylist()) == sorted(
        row.id for row in table.refresh().scan(where="id < 30").to_spark(session.spark).collect()
    )


def test_equality_deletes_are_applied_by_the_workers(lake, session, tmp_path):
    data = pa.table({"id": pa.array(range(50)), "name": [f"n{n % 5}" for n in range(50)]})
    table = lake.create_table("t.equality", data.schema)
    table.append(data)
    path = f"{tmp_path}/warehouse/t/equality/data/eq.parquet"
    field = pa.field("name", pa.string(), metadata={b"PARQUET:field_id": b"2"})
    pq.write_table(pa.table([pa.array(["n1", "n3"])], schema=pa.schema([field])), path)
    delete = DataFile(
        content=CONTENT_EQUALITY_DELETES,
        file_path=path,
        record_count=2,
        file_size_in_bytes=Path(path).stat().st_size,
        equality_ids=(2,),
    )
    table.refresh().transaction().row_delta(delete_files=[delete]).commit()
    table.refresh().append(pa.table({"id": [100], "name": ["n1"]}))
    frame = session.table("t.equality")
    assert sorted(row.id for row in frame.collect()) == [
        n for n in range(50) if n % 5 not in (1, 3)
    ] + [100]
    assert frame.where("name = 'n1'").count() == 1


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("deleted", [("equality",), ("positions",), ("positions", "equality")])
def test_queries_that_need_no_column_count_the_rows_left(lake, session, version, deleted):
    """`RecordBatch.from_arrays` without arrays has no rows, whatever was read."""
    name = f"t.columnless_{version}_{'_'.join(deleted)}"
    rows = pa.table({"id": pa.array(range(8)), "name": [f"n{n % 4}" for n in range(8)]})
    mode = {"write.delete.mode": "merge-on-read"}
    table = lake.create_table(name, rows.schema, format_version=version, properties=mode)
    table.append(rows)
    left = 8
    if "positions" in deleted:
        table.delete("id = 0")
        left -= 1
    if "equality" in deleted:
        path = f"{table.location}/data/eq.parquet"
        field = pa.field("name", pa.string(), metadata={b"PARQUET:field_id": b"2"})
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([pa.array(["n1"])], schema=pa.schema([field])), sink)
        data = sink.getvalue().to_pybytes()
        table.storage.write(path, data)
        delete = DataFile(
            content=CONTENT_EQUALITY_DELETES,
            file_path=path,
            record_count=1,
            file_size_in_bytes=len(data),
            equality_ids=(2,),
        )
        table.refresh().transaction().row_delta(delete_files=[delete]).commit()
        left -= 2
    frame = session.table(name)
    assert frame.count() == left
    assert len(frame.selectExpr("1 as one").collect()) == left
    assert not frame.isEmpty()
    assert frame.crossJoin(session.table(name)).count() == left * left
    assert table.refresh().scan().to_spark(session.spark).count() == left
    assert table.scan(where="id > 3").to_spark(session.spark).count() == 4 - ("equality" in deleted)


def test_a_relation_shows_one_snapshot(lake, session):
    table = lake.create_table("t.pinned", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    frame = session.table("t.pinned")
    cached = session.table("t.pinned").where("id > 0").cache()
    assert cached.count() == 1
    table.append(pa.table({"id": [2]}))
    assert (frame.count(), cached.count(), session.table("t.pinned").count()) == (1, 1, 2)
    cached.unpersist()


def test_threads_ask_at_the_same_time(lake, session):
    data = pa.table({"id": pa.array(range(60)), "k": pa.array([n % 6 for n in range(60)])})
    table = lake.create_table("t.threads", data.schema, partition_by=["k"])
    table.append(data)
    frame = session.table("t.threads")
    counts, errors = {}, []

    def ask(k):
        try:
            counts[k] = frame.where(f"k = {k}").join(frame.where(f"k = {k}"), "id").count()
        except Exception as error:  # noqa: BLE001 - a failing thread must fail the test
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, counts) == ([], dict.fromkeys(range(6), 10))


def test_a_failure_while_planning_is_a_clear_error(lake, session):
    table = lake.create_table("t.broken", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    frame = session.table("t.broken")
    manifest = table.current_snapshot().manifest_list
    table.storage.delete([manifest])
    with pytest.raises(IllegalArgumentException, match=r"NoSuchFileError.*snap-"):
        frame.collect()


def test_relations_are_forgotten(lake, session):
    """A long session keeps neither callbacks nor answers of frames that nobody holds."""
    table = lake.create_table("t.many", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    pool = session.spark.sparkContext._gateway.gateway_property.pool

    def forgotten():
        gc.collect()
        session.spark._jvm.java.lang.System.gc()
        return len(pool) < before + 15

    before = len(pool)
    for _ in range(30):
        session.table("t.many").count()
    eventually(forgotten)


def test_joins_see_the_size_after_pruning(lake, session, spark):
    data = pa.table(
        {"id": pa.array(range(20000)), "k": pa.array([n // 1000 for n in range(20000)])}
    )
    table = lake.create_table("t.sized", data.schema, partition_by=["k"])
    table.append(data)
    frame = session.table("t.sized")

    def size(one):
        return int(str(one._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))

    assert 0 < size(frame.where("k = 3")) * 10 < size(frame)


def test_another_session_of_the_same_spark(lake, session, spark):
    table = lake.create_table(
        "t.other", pa.schema([("id", pa.int64()), ("k", pa.int64())]), partition_by=["k"]
    )
    table.append(pa.table({"id": [1, 2], "k": [1, 2]}))
    from lakehouse.spark import attach

    other = attach(spark.newSession(), lake)
    rows, files = run(other.table("t.other").where("k = 2"))
    assert (rows, files) == ([(2, 2)], 1)
    other.spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    frame = other.table("t.other")
    other.spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    assert collected(frame) == [(1, 1), (2, 2)], "what the reader needs goes with the relation"


def test_an_empty_table(lake, session):
    lake.create_table("t.empty", pa.schema([("id", pa.int64())]), partition_by=["bucket(4, id)"])
    assert session.table("t.empty").where("id = 1").collect() == []
    assert session.table("t.empty").count() == 0


KINDS = {
    "i": pa.int32(),
    "f": pa.float32(),
    "x": pa.float64(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "small": pa.decimal128(8, 2),
    "middle": pa.decimal128(16, 2),
    "large": pa.decimal128(30, 2),
    "word": pa.string(),
    "text": pa.string(),
    "raw": pa.binary(),
    "place": pa.struct([("city", pa.string()), ("zip", pa.int32())]),
    "parts": pa.list_(pa.int64()),
}


def of_all_kinds(count):
    """Rows of more batches than one, whose values tell them apart, and nulls in all but the id."""

    def cells(number):
        moment = dt.datetime(2000, 1, 1, tzinfo=UTC) + dt.timedelta(minutes=number)
        price = Decimal(number) / 4
        return (
            number, number / 8, number / 7, number % 3 == 0, moment.date(), moment,
            moment.replace(tzinfo=None), price, price, price, f"w{number % 9}", f"text {number}",
            b"%d" % number, {"city": f"c{number}", "zip": number}, [number] * (number % 4),
        )  # fmt: skip

    columns = zip(*map(cells, range(count)), strict=True)
    arrays = [
        pa.array(
            [None if (row + at) % 13 == 0 and at % 3 else cell for row, cell in enumerate(column)],
            kind,
        )
        for at, (column, kind) in enumerate(zip(columns, KINDS.values(), strict=True))
    ]
    return pa.table([pa.array(range(count)), *arrays], names=["id", *KINDS])


@pytest.mark.parametrize(("dictionary", "off_heap"), [("true", "false"), ("false", "true")])
def test_rows_beside_deleted_ones_keep_their_values(lake, session, tmp_path, dictionary, off_heap):
    """Spark's own reader knows the rows, of a file that pyarrow wrote without the others."""
    rows = of_all_kinds(9_000)
    properties = {"write.delete.mode": "merge-on-read"} | {
        f"write.parquet.dict-encoding-enabled.column.{name}": dictionary for name in KINDS
    }
    table = lake.create_table("t.kinds", rows.schema, format_version=3, properties=properties)
    table.append(rows)
    whole, numbers = table.refresh().current_snapshot().snapshot_id, np.arange(9_000)
    gone = np.zeros(9_000, dtype=bool)
    for where, chosen in (
        ("id % 1000 = 3", numbers % 1_000 == 3),
        ("id between 4091 and 4199", (numbers >= 4_091) & (numbers <= 4_199)),
        ("id in (0, 8999) or id between 4096 and 8191", np.isin(numbers, [0, 8_999]) | (
            (numbers >= 4_096) & (numbers <= 8_191)
        )),
        ("id % 5 <> 0", numbers % 5 != 0),
    ):  # fmt: skip
        gone |= chosen
        table.refresh().delete(where)
        left = str(tmp_path / f"left_{gone.sum()}.parquet")
        pq.write_table(rows.filter(pa.array(~gone)), left)
        expected = session.spark.read.parquet(left).orderBy("id").collect()
        frame = session.table("t.kinds")
        with configured(session.spark, {"spark.sql.columnVector.offheap.enabled": off_heap}):
            assert frame.orderBy("id").collect() == expected
        numbered = frame.select("id", "_pos", "_row_id", "text", "_metadata.row_index").collect()
        # in the order of the file, each beside its own number
        assert [tuple(row) for row in numbered] == [
            (row.id, row.id, row.id, row.text, row.id) for row in expected
        ]
        assert frame.where("text = 'text 4200'").select("i", "parts").collect() == [
            (row.i, row.parts) for row in expected if row.text == "text 4200"
        ]
    assert session.table("t.kinds", snapshot_id=whole).count() == 9_000
