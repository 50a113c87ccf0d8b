"""Scans that engines read: as a dataset, and by the paths of their files; DuckDB knows the rows."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import random
import tempfile
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse import queries
from lakehouse.errors import CorruptMetadataError, NoSuchFileError, UnsupportedFeatureError
from lakehouse.expressions.arrow_expressions import understood
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.queries import QueryEngine
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.location import local_path
from lakehouse.table.engine_scans import handed_over
from lakehouse.table.scan_dataset import ScanDataset
from tests.unit.table.test_scan_results import (
    FILTERS,
    KINDS,
    SCHEMA,
    arrow,
    equality_delete,
    filled,
    made,
)

NAN = float("nan")
AT = dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC).replace(tzinfo=None)
CONDITIONS = [where for where in FILTERS if where] + [
    "id in (4, 21, 60, 61)",
    "id not in (4, 21)",
    "part is null or id = 7",
    "part like 'p1%'",
    "not (id < 30)",
    "price <> 3",
    "id = 5 or id = 65",
]


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "partitioned"),
    [(kind, False) for kind in KINDS] + [(kind, True) for kind in KINDS[:-1]],
)
def test_engines_see_the_rows_that_are_there(lake, kind, partitioned):
    table, rows = filled(lake, kind, partitioned=partitioned)
    engine, scan = QueryEngine(lake, lake.environment), table.scan()
    relation, frame = scan.to_duckdb(), scan.to_lazyframe()
    key = [("id", "ascending"), ("part", "ascending"), ("price", "ascending")]
    connection = duckdb.connect()
    connection.register("given", arrow(rows))
    connection.execute("create table told as select * from given")
    connection.register("dataset", scan.to_dataset())
    for where in CONDITIONS[partitioned::2]:
        ask = f"select id, part, price from {{}} where {where} order by all"
        expected = connection.sql(ask.format("told")).fetchall()
        assert connection.sql(ask.format("dataset")).fetchall() == expected, where
        assert relation.filter(where).order("all").fetchall() == expected, where
        answer = engine.run(f"select id, part, price from a.b where {where}")
        assert answer.sort_by(key) == pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in expected], SCHEMA
        ).sort_by(key), where
        condition = pl.sql_expr(where.replace("<>", "!="))
        by_polars = frame.filter(condition).select(SCHEMA.names).collect()
        assert sorted(by_polars.rows(), key=repr) == sorted(expected, key=repr), where


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_deletes_are_read_by_the_engine(lake, kind):
    table, _ = filled(lake, kind, partitioned=False)
    parts = handed_over(table.scan())
    tasks = table.scan().plan().tasks
    clean = {local_path(t.data_file.file_path) for t in tasks if not t.deletes}
    assert set(parts.paths) == clean
    assert (parts.rest is None) == (len(clean) == len(tasks))
    for_duckdb = handed_over(table.scan(), positions=True)
    assert (for_duckdb.rest is None) == (kind != "equality deletes")
    assert sum(len(gone) for gone in for_duckdb.deleted.values()) == (
        80 - table.scan().count() if kind in ("position deletes", "vectors") else 0
    )
    assert parts.rest is None or parts.rest.count() + sum(
        t.data_file.record_count for t in tasks if not t.deletes
    ) == table.scan().count() == len(parts.rest.to_arrow()) + sum(
        pq.read_metadata(path).num_rows for path in parts.paths
    )


def test_filters_of_engines_skip_files(lake):
    table = lake.create_table("a.b", SCHEMA, partition_by=["bucket(8, id)"])
    table.append(arrow(made(range(200))))
    reports = []

    class Listener:
        def scan_planned(self, report):
            reports.append(report.plan.data_files.planned)

    table.listeners.add(Listener())
    dataset = table.scan().to_dataset()
    assert duckdb.sql("select count(*) from dataset where id = 57").fetchall() == [(1,)]
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") == 57).collect().height == 1
    assert dataset.count_rows(filter=pc.field("id") == 57) == 1
    assert dataset.count_rows() == 200
    assert reports == [1, 1, 1, 9]  # and one of nulls


def test_pyarrow_filters_what_has_no_counterpart(lake):
    table, rows = filled(lake, "position deletes", partitioned=True)
    dataset = table.scan().to_dataset()
    odd = (pc.field("id") > 20) & (pc.bit_wise_and(pc.field("id"), 1) == 1)
    expected = sorted(r["id"] for r in rows if r["id"] and r["id"] > 20 and r["id"] % 2)
    found = dataset.to_table(columns=["id"], filter=odd)
    assert sorted(found["id"].to_pylist()) == expected
    named = dataset.to_table(columns={"twice": pc.field("id") * 2}, filter=odd)
    assert sorted(named["twice"].to_pylist()) == [2 * one for one in expected]
    assert dataset.to_table(columns=["part"], filter=odd).column_names == ["part"]
    limited = table.scan(limit=5).to_dataset()
    assert limited.count_rows() == 5
    assert limited.count_rows(filter=pc.field("id") >= 0) <= 5


def test_nan_is_above_every_number(lake):
    table = lake.create_table("a.b", pa.schema([("x", pa.float64()), ("f", pa.float32())]))
    values = [NAN, None, 0.0, -0.0, 0.1, 1.5, -3.0, float("inf"), float("-inf")]
    rows = pa.table({"x": values, "f": pa.array(values, pa.float32())})
    table.append(rows)
    connection = duckdb.connect()
    connection.execute("create table told as select * from rows")
    connection.register("given", table.scan().to_dataset())
    for name, op, value in itertools.product(
        "xf", ("<", "<=", ">", ">=", "=", "<>"), ("0", "0.1", "1.5", "'nan'", "-0.0::float")
    ):
        if (op, value) == ("<=", "'nan'"):
            continue  # DuckDB asks any dataset for `true` then, which holds for nulls, too
        where = f"{name} {op} {value}"
        given, told = (
            connection.sql(f"select x from {source} where {where} order by all").fetchall()
            for source in ("given", "told")
        )
        assert repr(given) == repr(told), where
    for where in ("isnan(x)", "not isnan(x)", "x is null", "x in (1.5, 0)", "x not in (1.5)"):
        assert repr(connection.sql(f"select x from given where {where} order by 1").fetchall()) == (
            repr(connection.sql(f"select x from told where {where} order by 1").fetchall())
        ), where


def test_files_with_nan_are_read_by_us(lake):
    """Engines skip row groups by bounds of Parquet, which leave NaN out, and would lose it."""
    inner = pa.struct([("f", pa.float32()), ("l", pa.list_(pa.float64()))])
    table = lake.create_table(
        "a.b", pa.schema([("id", pa.int64()), ("x", pa.float64()), ("st", inner)])
    )
    stored = [(1.0, 1.0), (NAN, 1.0), (1.0, NAN), (None, None), (-0.0, -0.0), (0.0, 0.0)]
    for number, (x, f) in enumerate(stored):
        st = [{"f": f, "l": [NAN]}, {"f": 2.0, "l": None}]
        table.append(pa.table({"id": [number, -number], "x": [x, 2.0], "st": pa.array(st, inner)}))
    assert len(handed_over(table.scan()).paths) == 4
    assert len(handed_over(table.scan(select="id")).paths) == 6
    connection, engine = duckdb.connect(), QueryEngine(lake, lake.environment)
    connection.register("rows", table.scan().to_arrow())
    connection.execute("create table told as select * from rows")
    table.scan().to_duckdb(connection).create_view("given")
    for where in ("x > 5", "x >= 0", "x = 0", "x <> 2", "st.f > 5", "not (x < 5)", "x is null"):
        ask = f"select id from {{}} where {where} order by id"
        expected = [number for (number,) in connection.sql(ask.format("told")).fetchall()]
        assert [number for (number,) in connection.sql(ask.format("given")).fetchall()] == expected
        sql = where.replace("st.f", "a.b.st['f']").replace("a.b.", "")
        assert engine.run(f"select id from a.b where {sql} order by id")["id"].to_pylist() == (
            expected
        ), where


def test_every_form_that_engines_hand_over_is_understood(lake):
    """Which pyarrow's next version may write otherwise: then engines read more, and no test else
    would say so."""
    kinds = {
        "i": (pa.int32(), 5), "l": (pa.int64(), 5), "x": (pa.float64(), 0.1),
        "f": (pa.float32(), 0.5), "s": (pa.string(), "a"), "b": (pa.bool_(), True),
        "m": (pa.decimal128(12, 2), decimal.Decimal("1.5")),
        "d": (pa.date32(), dt.date(2020, 1, 2)), "ts": (pa.timestamp("us"), AT),
        "tz": (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
        "t": (pa.time64("us"), dt.time(1)), "y": (pa.binary(), b"a"),
    }  # fmt: skip
    nested = pa.struct([("n", pa.int32())])
    table = lake.create_table(
        "a.b", pa.schema([(n, k) for n, (k, _) in kinds.items()] + [("st", nested)])
    )
    schema = table.schema()
    for name, (kind, value) in kinds.items():
        field, literal = pc.field(name), pa.scalar(value, kind)
        for condition in (
            field == literal, field != literal, field < literal, literal <= field,
            field.isin(pa.array([value], kind)), ~field.isin(pa.array([value], kind)),
            field.is_null(), field.is_valid(), (field == literal) & ~(field > literal),
            (field == literal) | field.is_null(),
        ):  # fmt: skip
            known = understood(condition, schema)
            assert (known.whole, known.columns) == (True, {name}), condition
            assert known.where != TRUE, condition
    for condition in (pc.field("b"), ~pc.field("b"), pc.field("st", "n") > 3,
                      pc.starts_with(pc.field("s"), "a"), pc.field("x").is_nan()):  # fmt: skip
        assert understood(condition, schema).whole, condition
    for condition in (pc.field("l") + 1 > 2, pc.field("f") > 0.1, pc.field("l").cast("int8") == 1,
                      pc.field("x").is_null(nan_is_null=True), pc.field("tz") > pc.field("tz"),
                      pc.field("l") == pa.scalar(None, pa.int64()), pc.field(0) > 1):  # fmt: skip
        assert not understood(condition, schema).whole, condition


def test_random_expressions_of_pyarrow_pass_what_pyarrow_passes(lake):
    table, rows = filled(lake, "vectors", partitioned=True)
    told, dataset, chance = arrow(rows), table.scan().to_dataset(), random.Random(7)

    def expression(depth: int) -> pc.Expression:
        if depth and chance.random() < 0.7:
            left = expression(depth - 1)
            how = chance.choice("&|~")
            if how == "~":
                return ~left
            right = expression(depth - 1)
            return left & right if how == "&" else left | right
        name = chance.choice(SCHEMA.names)
        field = pc.field(name)
        values = {"id": range(80), "part": ["p0", "p1", "p3"], "price": [0.0, 3.0, 4.5]}[name]
        value = chance.choice(list(values))
        return chance.choice(
            [field == value, field != value, field < value, field >= value, field.is_null(),
             field.is_valid(), pc.field("part").isin(chance.choices(["p0", "p1", "p4"], k=2))]
        )  # fmt: skip

    for _ in range(30):
        where = expression(3)
        found = dataset.to_table(filter=where).sort_by([(n, "ascending") for n in SCHEMA.names])
        expected = told.filter(where).sort_by([(n, "ascending") for n in SCHEMA.names])
        assert found == expected, where


def test_evolved_schemas_snapshots_and_branches(lake):
    table = lake.create_table("a.b", pa.schema([("id", pa.int32()), ("old", pa.string())]))
    ids = pa.table({"id": pa.array([1, 2], pa.int32()), "old": ["a", "b"]})
    table.append(ids)
    first = table.current_snapshot().snapshot_id
    with table.update_schema() as changed:
        changed.rename_column("old", "new").add_column("old", "string").update_column("id", "long")
    table.append(pa.table({"id": [3], "new": ["c"], "old": ["z"]}))
    table.append(pa.table({"id": [9], "new": ["n"], "old": ["y"]}), branch="audit")
    now = [(1, "a", None), (2, "b", None), (3, "c", "z")]
    for scan, expected, whole in (
        (table.scan(), now, 1),
        (table.scan(ref="audit"), [*now, (9, "n", "y")], 2),
        (table.scan(snapshot_id=first), [(1, "a"), (2, "b")], 1),
        (table.scan(select=["old", "id"]), [(o, i) for i, _, o in now], 1),
    ):
        assert len(handed_over(scan).paths) == whole
        dataset = scan.to_dataset()
        columns = ", ".join(dataset.schema.names)
        order = f"select {columns} from {{}} order by id"
        assert duckdb.sql(order.format("dataset")).fetchall() == expected
        assert scan.to_duckdb().order("id").fetchall() == expected
        assert duckdb.sql("select count(*) from dataset where id < 3").fetchone() == (2,)
        frame = scan.to_lazyframe()
        assert frame.sort("id").collect().rows() == expected
        assert frame.head(2).select(pl.len()).collect().item() == 2
        assert frame.slice(1, 9).select(pl.len()).collect().item() == len(expected) - 1
        late = frame.filter(pl.col("id") > 1).head(1).select("old").collect().height
        assert late == 1
        assert len(frame.head(2).filter(pl.col("id") > 0).select("id").collect()) == 2
    engine = QueryEngine(lake, lake.environment)
    asked = engine.run("select * from a.b order by id")
    assert asked.schema.types == [pa.int64(), pa.string(), pa.string()]
    assert [tuple(row.values()) for row in asked.to_pylist()] == now
    before = engine.run(f"select * from a.b for version as of {first} order by id")
    assert before.to_pydict() == {"id": [1, 2], "old": ["a", "b"]}


def test_dates_and_times_in_sql_mean_what_they_do_in_duckdb(lake):
    days = [dt.date(2020, 1, 1) + dt.timedelta(day) for day in range(5)]
    moments = [AT + dt.timedelta(hours=7 * number) for number in range(5)]
    zoned = [moment.replace(tzinfo=dt.UTC) for moment in moments]
    kinds = {"d": pa.date32(), "t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC")}
    rows = pa.table({"d": days, "t": moments, "z": zoned}, pa.schema(kinds))
    table = lake.create_table("a.b", rows.schema, partition_by=["d", "hour(z)"])
    table.append(rows)
    engine, connection = QueryEngine(lake, lake.environment), duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("create table told as select * from rows")
    for name, op, literal in itertools.product(
        kinds, ("<", ">=", "="), ("date '2020-01-03'", "cast('2020-01-02 10:00:00' as timestamp)")
    ):
        where = f"{name} {op} {literal}"
        expected = connection.sql(f"select count(*) as n from told where {where}").fetchall()
        answer = engine.run(f"select count(*) as n from a.b where {where}")
        assert answer["n"].to_pylist() == [expected[0][0]], where
        given = f"select count(*) from {{}} where {where}"
        dataset = table.scan().to_dataset()
        connection.register("given", dataset)
        assert connection.sql(given.format("given")).fetchall() == expected, where


def test_files_of_others_that_only_look_alike_are_read_by_us(lake, tmp_path):
    """Names and types are the table's; ids, units, or the file's place in the schema are not."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    table = lake.create_table("a.b", schema)
    at = AT

    def with_ids(*ids: int, unit: str = "us") -> pa.Table:
        kinds = (pa.int64(), pa.timestamp(unit))
        fields = [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
            for name, kind, number in zip(("id", "at"), kinds, ids, strict=True)
        ]
        return pa.table([pa.array([5]), pa.array([at], kinds[1])], pa.schema(fields))

    table.append(pa.table({"id": [1], "at": [at]}))
    files = []
    for rows, options in (
        (with_ids(1, 7), {}),
        (with_ids(1, 2, unit="ms"), {}),
        (with_ids(1, 2).select(["at", "id"]), {}),
        (with_ids(1, 2), {"use_deprecated_int96_timestamps": True}),
    ):
        path = tmp_path / "a" / "b" / "data" / f"{len(files)}.parquet"
        pq.write_table(rows, path, **options)
        size = path.stat().st_size
        files.append(
            DataFile(file_path=path.as_uri(), record_count=1, file_size_in_bytes=size, spec_id=0)
        )
    table.transaction().append(files).commit()
    without = tmp_path / "a" / "b" / "data" / "without.parquet"
    pq.write_table(pa.table({"id": [6], "at": [at]}), without)
    table.refresh().add_files([str(without)])
    scan = table.scan()
    assert len(handed_over(scan).paths) == 1
    expected = scan.to_arrow().sort_by([("id", "ascending"), ("at", "ascending")])
    assert expected["at"].to_pylist().count(at) == 5
    relation = scan.to_duckdb()
    assert relation.order('id, "at"').fetchall() == [
        tuple(row.values()) for row in expected.to_pylist()
    ]
    engine = QueryEngine(lake, lake.environment)
    assert engine.run("select * from a.b order by id, at nulls last") == expected


def test_paths_with_any_letters_are_one_file(lake):
    table = lake.create_table("a.b", SCHEMA, partition_by=["part"])
    odd = ["*", "a[b]c", "p?", "50%", "x=y", "a b", "{c}", "d'e", 'f"g', "ü", "h\\i", "%2A"]
    table.append(arrow([{"id": n, "part": part, "price": 1.0} for n, part in enumerate(odd)]))
    expected = list(enumerate(odd))
    relation, frame = table.scan().to_duckdb(), table.scan().to_lazyframe()
    assert relation.select("id, part").order("id").fetchall() == expected
    assert frame.select("id", "part").sort("id").collect().rows() == expected
    answer = QueryEngine(lake, lake.environment).run("select id, part from a.b order by id")
    table.set_properties({"write.delete.mode": "merge-on-read"}).append(
        arrow([{"id": 99, "part": part, "price": 1.0} for part in odd])
    )
    table.delete("id = 99")
    relation = table.scan().to_duckdb()
    assert relation.select("id, part").order("id").fetchall() == expected
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected


NAMES = ["file_row_number", "FILE_INDEX", "filename", "live", "*", "^a$", "^.*$", 'a"b']


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_names_that_mean_something_to_an_engine(lake, name):
    """DuckDB numbers rows and files by some; to Polars some are patterns."""
    table = lake.create_table(
        "a.b",
        pa.schema([("id", pa.int64()), (name, pa.int64())]),
        properties={"write.delete.mode": "merge-on-read", "format-version": "3"},
    )
    table.append(pa.table({"id": [1, 2, 3, 4], name: [1, 7, 0, 1]}))
    table.delete("id = 2")
    for more in ([], [(5, 5), (6, 6)]):  # in a file without deletes, beside it
        if more:
            table.append(pa.table({"id": [5, 6], name: [5, 6]}))
        expected = [(1, 1), (3, 0), (4, 1), *more]
        everything, ids = table.scan(), table.scan(select="id")
        assert everything.to_duckdb().order("id").fetchall() == expected
        assert ids.to_duckdb().order("id").fetchall() == [row[:1] for row in expected]
        frame = everything.to_lazyframe()
        assert frame.collect_schema().names() == ["id", name]
        assert sorted(frame.collect().rows()) == expected
        assert sorted(ids.to_lazyframe().collect().rows()) == [row[:1] for row in expected]
    table.transaction().row_delta((), [equality_delete(table, [6])]).commit()
    frame = lake.load_table("a.b").scan().to_lazyframe()  # some files are read by us
    assert sorted(frame.collect().rows()) == expected[:-1]
    picked = frame.filter(pl.col("id") > 3).select(pl.nth(1)).collect()
    assert sorted(picked.rows()) == [(1,), (5,)]


def test_a_file_that_is_in_a_table_twice_has_deletes_of_its_own_each_time(lake):
    table = lake.create_table(
        "a.b",
        pa.schema([("id", pa.int64())]),
        properties={"write.delete.mode": "merge-on-read", "format-version": "2"},
    )
    table.append(pa.table({"id": [1, 2, 3]}))
    table.delete("id = 2")
    table.transaction().append(table.scan().plan().files).commit()
    scan, expected = table.refresh().scan(), [1, 1, 2, 3, 3]
    assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
    assert scan.to_duckdb().order("id").fetchall() == [(one,) for one in expected]
    assert scan.to_lazyframe().sort("id").collect()["id"].to_list() == expected
    answer = QueryEngine(lake, lake.environment).run("select id from a.b order by id")
    assert answer["id"].to_pylist() == expected


@pytest.mark.parametrize("folder", ["[ab]", "*", "q?", "{a,b}", "h\\i", "x=1", "50%", "#h", "a b"])
def test_temporary_folders_with_any_letters_lose_no_rows(lake, tmp_path, monkeypatch, folder):
    place = tmp_path / folder
    place.mkdir()
    table = lake.create_table("a.b", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    answer = QueryEngine(lake, lake.environment).run("select id from a.b order by id")
    assert answer["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_polars_counts_rows_of_which_it_needs_no_column(lake, kind):
    table, rows = filled(lake, kind, partitioned=False)
    frame = table.scan().to_lazyframe()
    for one in (frame, pl.scan_pyarrow_dataset(table.scan().to_dataset())):
        counted = pl.SQLContext(rows=one).execute("select count(*) from rows", eager=True)
        assert counted.item() == len(rows)
        assert one.with_row_index().select("index").collect().height == len(rows)
        assert one.head(3).select(pl.len()).collect().item() == 3


def test_conditions_that_contradict_each_other_find_nothing(lake):
    """DataFusion folds them, and has its dataset filtered by a literal."""
    filled(lake, "equality deletes", partitioned=False)
    engine = QueryEngine(lake, lake.environment)
    for where in ("id = 2 and id = 3", "1 = 0", "part = 'p1' and null"):
        answer = engine.run(f"select count(*) as n from a.b where {where}")
        assert answer.to_pydict() == {"n": [0]}, where


def test_timestamps_of_older_writers_keep_their_zone(lake, tmp_path):
    """With a converted type alone, as before LogicalType, DuckDB and Polars read no zone."""
    table = lake.create_table("a.b", pa.schema([("z", pa.timestamp("us", "UTC"))]))
    at = AT.replace(tzinfo=dt.UTC)
    table.append(pa.table({"z": [at]}))
    path = Path(handed_over(table.scan()).paths[0])
    rows = pq.ParquetFile(path).read()
    older = path.with_name("older.parquet")
    pq.write_table(rows, older, store_schema=False)
    data = older.read_bytes()
    # field 10 of the SchemaElement: TIMESTAMP, adjusted to UTC, MICROS
    logical = bytes.fromhex("1c8c111c2c00000000")
    assert data.count(logical) == 1
    length = int.from_bytes(data[-8:-4], "little") - len(logical)
    data = data.replace(logical, b"")[:-8] + length.to_bytes(4, "little") + b"PAR1"
    older.write_bytes(data)
    size = len(data)
    file = DataFile(file_path=older.as_uri(), record_count=1, file_size_in_bytes=size, spec_id=0)
    table.overwrite(pa.table({"z": pa.array([], pa.timestamp("us", "UTC"))}))
    table.transaction().append([file]).commit()
    scan = table.refresh().scan()
    assert scan.to_duckdb().types == ["TIMESTAMP WITH TIME ZONE"]
    assert scan.to_lazyframe().collect()["z"].to_list() == [at]


def test_a_filter_of_the_scan_holds(lake):
    table, rows = filled(lake, "plain", partitioned=True)
    for where, whole in (("part = 'p1'", True), ("id > 30", False)):
        scan = table.scan(where)
        assert bool(handed_over(scan).paths) == whole
        expected = sum(bool(FILTERS.get(where, lambda r: (r["id"] or 0) > 30)(r)) for r in rows)
        assert scan.to_duckdb().aggregate("count(*)").fetchone() == (expected,)
        assert scan.to_lazyframe().select(pl.len()).collect().item() == expected
        assert scan.to_dataset().count_rows() == expected
    assert table.scan(limit=3).to_duckdb().aggregate("count(*)").fetchone() == (3,)
    marked = table.scan(select=["id", "_deleted", "_file"]).to_duckdb()
    assert marked.columns == ["id", "_deleted", "_file"]


def test_files_that_are_gone_or_damaged_are_named(lake):
    table = lake.create_table("a.b", SCHEMA)
    for start in (0, 10):
        table.append(arrow(made(range(start, start + 10))))
    engine = QueryEngine(lake, lake.environment)
    assert engine.run("select count(*) as n from a.b").to_pydict() == {"n": [20]}
    path = Path(table.scan().to_duckdb() and handed_over(table.scan()).paths[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes(60) + whole[100:])
    with pytest.raises(CorruptMetadataError, match=path.name):
        engine.run("select sum(id), max(part), sum(price) from a.b")
    path.unlink()
    with pytest.raises(NoSuchFileError, match=path.name):
        engine.run("select sum(id) from a.b")
    with pytest.raises(duckdb.Error, match=path.name):
        table.scan().to_duckdb().fetchall()


@pytest.mark.parametrize("readers", ["engine", "both", "ours", "no disk"])
def test_a_query_is_reported_once_whoever_reads_the_files(tmp_path, readers):
    """Layouts are chosen by how often queries ran."""
    lake = lh.load_catalog("memory://reported/warehouse" if readers == "no disk" else str(tmp_path))
    lake.create_namespace("a")
    table = lake.create_table("a.b", pa.schema({"id": pa.int64(), "x": pa.float64()}))
    for x in {"both": (1.0, NAN), "ours": (NAN,)}.get(readers, (1.0,)):
        table.append(pa.table({"id": [1, 2], "x": [x, 2.0]}))
    reports = []

    class Listener:
        def scan_planned(self, report):
            reports.append(report.plan.filter)

    lake.add_listener(Listener())
    answer = QueryEngine(lake, lake.environment).run("select count(x) as n from a.b where id > 1")
    assert answer.to_pydict() == {"n": [2 if readers == "both" else 1]}
    assert len(reports) == 1, reports
    reports.clear()
    assert len(lake.load_table("a.b").scan().to_lazyframe().collect()) == answer["n"][0].as_py() * 2
    assert len(reports) == 1, reports


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.parametrize("kind", ["plain", "vectors"])
def test_a_query_that_our_reader_had_to_answer_says_so(lake, caplog, monkeypatch, damage, kind):
    """It is slower: nobody is to wonder why."""
    filled(lake, kind, partitioned=False)
    engine, link = QueryEngine(lake, lake.environment), queries._link
    query = "select count(id) as n from a.b where id >= 0"
    ids = lake.load_table("a.b").scan(where="id is not null").count()
    assert engine.run(query).to_pydict() == {"n": [ids]}
    assert not caplog.records

    def damaged(parts, folder, file):
        made = link(parts, folder, file)
        first = min(folder.rglob("*.parquet"))
        first.unlink()
        if damage == "cut":
            first.write_bytes(b"PAR1 and no more")
        else:
            first.symlink_to("/nowhere/at/all.parquet")
        return made

    monkeypatch.setattr(queries, "_link", damaged)
    assert engine.run(query).to_pydict() == {"n": [ids]}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "our reader" in record.getMessage()


def test_a_query_leaves_no_links(lake, tmp_path, monkeypatch):
    place = tmp_path / "links"
    place.mkdir()
    filled(lake, "plain", partitioned=False)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    engine = QueryEngine(lake, lake.environment)
    assert engine.run("select count(*) as n from a.b").to_pydict() == {"n": [80]}
    with pytest.raises(lh.LakehouseError):
        engine.run("select nothing from a.b")
    assert [path.name for path in place.iterdir() if "sql" in path.name] == []


def test_what_pyarrow_does_with_its_own_datasets_is_refused(lake):
    dataset = filled(lake, "plain", partitioned=False)[0].scan().to_dataset()
    assert isinstance(dataset, ScanDataset)
    assert dataset.schema.names == SCHEMA.names
    assert len(dataset.head(3)) == 3
    assert sum(batch.num_rows for batch in dataset.to_batches()) == 80
    for attempt in (
        lambda: dataset.filter(pc.field("id") > 1),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: dataset.sort_by("id"),
        lambda: dataset.join(dataset, "id"),
        lambda: dataset.join_asof(dataset, "id", "part", 1),
        lambda: dataset.partition_expression,
    ):
        with pytest.raises(UnsupportedFeatureError, match=r"a\.b"):
            attempt()


def test_random_tables_mean_the_same_by_paths_as_in_memory(lake):
    """Each engine beside itself over the same rows as an Arrow table: rows and types."""
    chance, engine = random.Random(5), QueryEngine(lake, lake.environment)
    dec, long = decimal.Decimal, "prefix-" * 12
    kinds = {
        "i": (pa.int32(), [-(2**31), 2**31 - 1, 0, 1], ["i < 0", "i = 2147483648", "i in (1, 0)"]),
        "x": (pa.float64(), [0.0, -0.0, 0.1, 1e300], ["x = 0", "x < 0.1", "x > 5"]),
        "m": (pa.decimal128(12, 3), [dec("1.5"), dec("2")], ["m = 2", "m >= 1.5005"]),
        "d": (pa.date32(), [AT.date(), dt.date(1960, 1, 1)], ["d < date '1970-01-01'"]),
        "t": (pa.timestamp("us"), [AT, AT.replace(year=1960)], ["t > date '2020-01-02'"]),
        "s": (pa.string(), [long + "a", long + "b", "ü", ""], ["s like 'p%b'", "s < 'ü'"]),
    }
    for number in range(3):
        names = chance.sample(sorted(kinds), k=4)
        schema = pa.schema([("id", pa.int64()), *((name, kinds[name][0]) for name in names)])
        properties = {"write.delete.mode": chance.choice(["merge-on-read", "copy-on-write"])}
        table = lake.create_table(f"a.b{number}", schema, properties=properties)
        for start in (0, 20):
            rows = [
                {"id": start + at} | {n: chance.choice([None, *kinds[n][1]]) for n in names}
                for at in range(chance.choice([1, 9]))
            ]
            table.append(pa.Table.from_pylist(rows, schema))
            table.delete(f"id = {start}") if chance.random() < 0.5 else None
        scan = table.refresh().scan()
        told, connection = scan.to_arrow(), duckdb.connect()
        connection.register("rows", told)
        connection.execute("create table told as select * from rows")
        scan.to_duckdb(connection).create_view("given")
        frames = scan.to_lazyframe(), pl.from_arrow(told).lazy()
        for where in ["true", *(one for name in names for one in kinds[name][2])]:
            ask = f"select id, {names[0]} from {{}} where {where} order by id"
            given, known = (connection.sql(ask.format(name)) for name in ("given", "told"))
            assert given.types == known.types
            rows = known.fetchall()
            assert given.fetchall() == rows, where
            answer = engine.run(ask.format(f"a.b{number}"))
            assert [tuple(row.values()) for row in answer.to_pylist()] == rows, where
            by_paths, in_memory = (
                pl.SQLContext(rows=one).execute(ask.format("rows"), eager=True) for one in frames
            )
            assert by_paths.equals(in_memory), where
            assert by_paths.schema == in_memory.schema


@pytest.mark.parametrize("version", ["2", "3"])
def test_engines_leave_out_deleted_rows_by_their_numbers(lake, tmp_path, version):
    """Whatever row groups and pages a filter skips, rows keep their numbers; DuckDB knows which."""
    schema = pa.schema([("id", pa.int64()), ("row", pa.int64()), ("File", pa.string())])
    table = lake.create_table(
        "a.b", schema, properties={"write.delete.mode": "merge-on-read", "format-version": version}
    )
    chance, connection, files = random.Random(int(version)), duckdb.connect(), []
    connection.execute('create table told (id bigint, row bigint, "File" varchar)')
    stored = pa.schema(
        [field.with_metadata({"PARQUET:field_id": str(n)}) for n, field in enumerate(schema, 1)]
    )
    for number, count in enumerate((1000, 1, 17, 2500)):
        ids = range(number * 10_000, number * 10_000 + count)
        numbers = [chance.randrange(50) for _ in ids]
        rows = pa.table([ids, numbers, [f"f{number}"] * count], stored)
        path = tmp_path / "a" / "b" / "data" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(
            rows, path, row_group_size=400, write_page_index=True, write_batch_size=20,
            data_page_size=64, use_dictionary=False,
        )  # fmt: skip
        size = path.stat().st_size
        files.append(
            DataFile(
                file_path=path.as_uri(), record_count=count, file_size_in_bytes=size, spec_id=0
            )
        )
        connection.execute("insert into told select * from rows")
    table.transaction().append(files).commit()
    engine = QueryEngine(lake, lake.environment)
    # the first and the last row of a file and of a row group, whole row groups, a whole file
    for gone in (
        "id in (0, 399, 400, 999)",
        "row = 7 or id = 10000 or id > 32400 or id between 30400 and 30799",
    ):
        table.delete(gone)
        connection.execute(f"delete from told where {gone}")
        parts = handed_over(table.scan(), positions=True)
        assert parts.rest is None
        assert parts.deleted
        relation, frame = table.scan().to_duckdb(connection), table.scan().to_lazyframe()
        for where in (
            "true",
            "id >= 900 and id < 30500",
            "id > 32390",
            "row < 10 and id between 350 and 450",
            "id in (20005, 30401, 0) or \"File\" = 'f2'",
        ):
            ask = f'select id, row, "File" from {{}} where {where} order by id'
            expected = connection.sql(ask.format("told")).fetchall()
            answer = engine.run(ask.format("a.b"))
            assert [tuple(row.values()) for row in answer.to_pylist()] == expected, where
            assert relation.filter(where).order("id").fetchall() == expected, where
            filtered = frame.filter(pl.sql_expr(where))
            assert filtered.sort("id").collect().rows() == expected, where
            assert filtered.select(pl.len()).collect(engine="streaming").item() == len(expected)
            assert filtered.head(3).select(pl.len()).collect().item() == min(3, len(expected))
        ask = (
            "select l.row, count(*) as n, min(r.id) as least from {0} l join {0} r "
            "on l.row = r.id where l.id > 500 group by l.row order by l.row"
        )
        expected = connection.sql(ask.format("told")).fetchall()
        answer = engine.run(ask.format("a.b"))
        assert [tuple(row.values()) for row in answer.to_pylist()] == expected
